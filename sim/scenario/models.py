"""What a scenario says: the job and the machine, resolved, frozen and consistent.

Knows its blocks, how it comes from a document, and how it is written as one: what says nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ...hardware.fields import SecondsAboveZero, Text
from ...hardware.quantities import format_quantity
from ...schedules.orders.schedule import Shape
from .aliases import with_recompute
from .blocks import (
    ClusterSpec,
    Parallelism,
    PublishedFigures,
    ScenarioBlock,
    ScheduleChoice,
    ScheduleOptions,
    Training,
)
from .build import fields_of
from .consistency import ScenarioParts, findings
from .documents import Changes, canonical_tree, with_overrides
from .errors import Mark, ScenarioError
from .explain import problems_of
from .fault_blocks import fault_blocks
from .finding import Finding, Inconsistent
from .frameworks import lookup_in, with_own_defaults
from .machine import gpu_of
from .model.model import Model
from .optimizers import OptimizerSpec
from .pipeline_shape import pipeline_shape
from .presets import with_attention_of
from .read_from import READ_FROM, Checked
from .software.presets import get_software, software_names
from .software.software import Software
from .tree import TreeNode, from_plain

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

    from .faults.detection import Detection
    from .faults.faults import Faults
    from .faults.recovery import Checkpoint, Recovery, Run

_FAULT_BLOCKS = ("step_time", "faults", "detection", "recovery", "checkpoint", "run")
"""Blocks that ``to_document`` writes as they were given, since some of their fields stand for others."""


class Scenario(ScenarioBlock):
    """One training step on one cluster: all that a prediction depends on."""

    name: Text = Field(description="how results call it; default: the file's name")
    title: Text = Field(default="", description="what stands above tables and pictures")
    published: PublishedFigures | None = Field(
        default=None, description="what the run took in print, to be compared"
    )
    model: Model = Field(
        description="shape: a name of `stepsim list models`, a Hugging Face config.json, or fields"
    )
    cluster: ClusterSpec = Field(description="the GPUs of the job and what connects them")
    parallelism: Parallelism = Field(description="the layout: which axis cuts what, over how many GPUs")
    training: Training = Field(description="the work of one step: batch, sequence, precision, optimizer")
    schedule: ScheduleChoice = Field(
        description="order of the pipeline's actions: a name of `stepsim list schedules`, or a table; "
        "default: none, 1f1b or interleaved, by pp and vpp"
    )
    schedule_options: ScheduleOptions = Field(
        default=ScheduleOptions(), description="what some schedules may be told besides their name"
    )
    software: Software = Field(
        description="software stack: a preset of `stepsim list software`, or a preset and changed fields"
    )
    calibration: tuple[Text, ...] = Field(
        default=(),
        description="shipped profiles by name, and profile files; a later one overrides an earlier one",
        examples=[["h100-sxm", "my.profile.yaml"]],
    )
    step_time: SecondsAboveZero | None = Field(
        default=None, description="stepsim faults: take this step time in place of the predicted one"
    )
    faults: Faults | None = Field(default=None, description="what fails, how often and when")
    detection: Detection | None = Field(default=None, description="how long a failure goes unnoticed")
    recovery: Recovery | None = Field(
        default=None, description="what follows a failure: restart, spares, a smaller job"
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="how often state is saved, and what that costs"
    )
    run: Run | None = Field(
        default=None, description="how long the weeks of `stepsim faults` are, and how many"
    )

    _checked: Checked = PrivateAttr(default_factory=Checked)

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """As pydantic's, with the blocks of weeks, whose models load here: when all types are first asked
        for, as by a validator or a schema of all blocks together.
        """
        options["_types_namespace"] = {model.__name__: model for model in fault_blocks().values()}
        return super().model_rebuild(**options)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Its own, with the models of all blocks, also where it is a field of another model (pydantic from
        2.11 on; before, whoever has such a field calls ``Scenario.model_rebuild()`` first).
        """
        if not getattr(cls, "__pydantic_fields_complete__", True):
            cls.model_rebuild()
        return handler(source)

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Scenario:
        if wrong := self._compared(info.context.get(READ_FROM) if isinstance(info.context, dict) else None):
            raise Inconsistent(wrong)
        return self

    def _compared(self, document: TreeNode | None) -> list[Finding]:
        """What keeps its parts from being one scenario; where nothing does, it remembers that these parts
        were checked, and that they were read from ``document``.
        """
        parts = ScenarioParts(
            model=self.model,
            cluster=self.cluster,
            parallelism=self.parallelism,
            training=self.training,
            schedule=self.schedule,
            options=self.schedule_options,
            faults=self.faults,
            software=self.software,
        )
        wrong = findings(parts)
        rows = self.model.embedding_rows
        if rows % self.parallelism.tp and not wrong:
            message = f"{rows} rows cannot be split over tp {self.parallelism.tp}"
            wrong = [Finding(path=("model", "vocab_size"), message=message)]
        if not wrong:
            self._checked = Checked(parts=tuple(self.__dict__.values()), document=document)
        return wrong

    @property
    def is_checked(self) -> bool:
        """Whether its parts are the very ones that were checked: copies with changes are not."""
        now, then = self.__dict__.values(), self._checked.parts
        return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))

    def checked(self) -> Scenario:
        """This scenario if it is as it was checked, else an equal one, checked now.

        Raises:
            ScenarioError: with every problem found, such as of a ``model_copy`` with other fields.
        """
        if self.is_checked:
            return self
        try:
            return Scenario.model_validate(self)
        except ValidationError as failure:
            name = str(getattr(self, "name", "scenario"))
            raise ScenarioError(problems_of(failure, Mark(file=name), Scenario)) from None

    def compared(self) -> Scenario:
        """An equal one whose parts were compared with one another now: of parts each of which was checked by
        itself, in less time than ``checked``. Raises as that does."""
        found = self.model_copy()
        return self.checked() if found._compared(None) else found  # noqa: SLF001 - of the same class

    @property
    def document(self) -> TreeNode | None:
        """What it was read from, if it was and nothing has changed since."""
        return self._checked.document if self.is_checked else None

    def with_(self, changes: Changes) -> Scenario:
        """This scenario with other fields, and all that follows from them, checked: what ``--set`` does.

        ``changes`` are dotted fields and their values, ``{"parallelism.tp": 4}``, or lines as on the
        command line, ``["parallelism.tp=4"]``; None takes back what was said. Other names of fields are
        understood, fields that were left out follow anew, and a title and published figures are dropped
        where the job is another.

        Raises:
            ScenarioError: with every problem found.
        """
        tree = self.document
        if tree is None:
            tree = canonical_tree(from_plain(self.checked().to_document(), Mark(file=self.name)))
        return scenario_of(with_overrides(tree, changes), self.name)

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one data-parallel rank per step."""
        return self.training.global_batch // (self.training.micro_batch * self.parallelism.dp)

    @property
    def pipeline_shape(self) -> Shape:
        """What its schedule is asked for, memory counted in chunk activations."""
        return pipeline_shape(self.schedule, self.parallelism, self.num_microbatches, self.schedule_options)

    @property
    def world_size(self) -> int:
        """GPUs in the job."""
        return self.cluster.gpus

    def to_document(self) -> dict[str, Any]:
        """A plain document that loads to this scenario again."""
        document: dict[str, Any] = self.model_dump(
            mode="json", exclude_none=True, exclude={"software", *_FAULT_BLOCKS}
        )
        model = self.model
        if model.model_copy(update={"padded_vocab_size": None}).padded_for(self.parallelism.tp) == model:
            document["model"].pop("padded_vocab_size", None)  # it follows, also where tp is changed
        if self.training.optimizer == OptimizerSpec():
            del document["training"]["optimizer"]
        document["software"] = _software_document(self)
        if self.step_time is not None:
            document["step_time"] = format_quantity(self.step_time, "seconds")
        for name in _FAULT_BLOCKS[1:]:
            block = getattr(self, name)
            if block is not None:
                document[name] = block.model_dump(mode="json", exclude_none=True, exclude_unset=True)
        return document


def scenario_of(tree: TreeNode, name: str) -> Scenario:
    """The scenario of a document with canonical names; ``name`` is used where the document has none.

    Raises:
        ScenarioError: with every problem found.
    """
    whole, problems = with_recompute(tree)
    if problems:
        raise ScenarioError(problems)
    try:
        return _of_parts(fields_of(whole, name), whole)
    except ValidationError as failure:
        raise ScenarioError(problems_of(failure, Mark(file=name), Scenario)) from None


def _of_parts(parts: dict[str, Any], document: TreeNode) -> Scenario:
    """The scenario of blocks that were each read from ``document``, compared with one another.

    What each block is was checked as it was read, so nothing needs the validator of all blocks together,
    which takes as long to make as those of the blocks.

    Raises:
        ValidationError: blocks that do not fit one another.
    """
    found = Scenario.model_construct(**parts)
    if found._compared(document):  # noqa: SLF001 - no business of anybody else's
        return Scenario.model_validate(parts, context={READ_FROM: document})  # whose error says what is wrong
    return found


def _software_document(scenario: Scenario) -> dict[str, Any]:
    """The preset and what differs from it, or from what it is in this job where nothing else is said; all
    fields of a stack that is no preset."""
    software = scenario.software
    fields = software.model_dump()
    if software.name not in software_names():
        return fields
    preset = get_software(software.name)
    silent = {name: getattr(scenario, name) for name in ("model", "parallelism", "training")}
    of_job = with_own_defaults(with_attention_of(gpu_of(scenario.cluster), preset), lookup_in(silent))
    usual = preset.model_dump(), of_job.model_dump()
    changed = {
        key: _different(value, [one[key] for one in usual])
        for key, value in fields.items()
        if any(value != one[key] for one in usual)
    }
    if software.kernels.attention_assumed and "attention" in changed.get("kernels", {}):
        changed["kernels"]["attention_assumed"] = True  # a named one is else taken to be known (presets.py)
    return {"preset": software.name, **changed}


def _different(value: Any, usual: Sequence[Any]) -> Any:
    """A field as it is; of a group those fields that differ from one of the ``usual``."""
    if not isinstance(value, dict):
        return value
    return {key: inner for key, inner in value.items() if any(inner != one[key] for one in usual)}
