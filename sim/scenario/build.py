"""Build the blocks of a Scenario from a merged document: what follows from other fields, types, consistency.

Knows the blocks and how each is read; what follows is in what_follows.py, paths in files_beside.py. Every
mistake of every block is gathered before any is reported; a block that cannot be read is left out of the
checks that need it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...hardware.calibrated.overlay import calibrated_profile, is_file
from ...hardware.explain import FieldPath, dotted, errors_of, field_path
from ...hardware.fields import FROM_DOCUMENT, SecondsAboveZero, Text
from ...hardware.gpus import gpu_names
from .blocks import (
    ClusterSpec,
    Parallelism,
    PublishedFigures,
    ScheduleChoice,
    ScheduleOptions,
    Training,
)
from .checks import is_known, names_exist
from .checks_software import (
    broadcasts_are_of_zero1,
    experts_are_there,
    lists_are_of_deepspeeds_third_stage,
    scaling_is_read,
    xla_reads_what_is_its_own,
)
from .consistency import ScenarioParts, findings
from .errors import Mark, Problem, ScenarioError
from .explain import explained, unknown_key
from .fault_blocks import FAULT_BLOCKS, fault_blocks
from .files_beside import beside, with_cluster_files, with_counts_file, with_fault_traces
from .frameworks import lookup_in, with_defaults_of, with_own_defaults
from .machine import gpu_of
from .model.model import Model
from .own_hardware import with_hardware_files
from .presets import model_fields, software_fields, with_attention_of
from .schedules import is_table
from .software.software import Software
from .tree import TreeNode, nearest, without_nulls
from .what_follows import default_schedule, with_layout_defaults, with_machine_defaults

if TYPE_CHECKING:
    from .faults.bare import Bare
    from .faults.faults import Faults

Part = TypeVar("Part", bound=BaseModel)


class _Heading(BaseModel):
    """The fields of a scenario that are no block."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: Text
    title: Text = ""
    schedule: ScheduleChoice = "none"
    schedule_options: ScheduleOptions = ScheduleOptions()
    calibration: tuple[Text, ...] = ()
    step_time: SecondsAboveZero | None = None


_STEP_BLOCKS: Final[dict[str, type[BaseModel]]] = {
    "model": Model,
    "cluster": ClusterSpec,
    "parallelism": Parallelism,
    "training": Training,
    "software": Software,
    "published": PublishedFigures,
}
_BLOCKS: Final = (*_STEP_BLOCKS, *FAULT_BLOCKS)
_REQUIRED: Final = {
    "model": "a name such as llama3.1-405b, a Hugging Face config.json, or the fields",
    "cluster": "gpu, gpus and interconnect",
    "training": "global_batch, micro_batch, seq_length and precision",
    "software": "a preset such as megatron-core-2024",
}
_UNCHECKED: Final = {
    ("measured_network",),
    ("fabric",),
    ("placement",),
    ("price_per_gpu_hour",),
    ("currency",),
    ("price_list",),
    ("power",),
    ("variation",),
    ("cpu_offload",),
    ("nvme_offload",),
    ("activation_offload",),
    ("tokens",),
}
"""Optional fields that no check between blocks reads."""

_EXPLAINED: Final = 100
"""Mistakes of a block that are explained in our words."""


def fields_by_block() -> dict[str, set[str]]:
    """The fields of every block, for whoever wrote one into another."""
    return {block: set(part.model_fields) for block, part in {**_STEP_BLOCKS, **fault_blocks()}.items()}


def fields_of(tree: TreeNode, name: str) -> dict[str, Any]:
    """What a scenario is made of, from a document with canonical names: its blocks, which fit one another.

    ``name`` is used where the document has none.

    Raises:
        ScenarioError: with every problem found.
    """
    if not isinstance(tree.value, dict):
        message = "a scenario is a block of fields: model, cluster, parallelism, training, schedule, software"
        raise ScenarioError([Problem(mark=tree.mark, path="", message=message, value=tree.value)])
    if "model_type" in tree.value and not set(_BLOCKS) & tree.value.keys():
        message = (
            "this is a model of Hugging Face's, and says nothing of a job; a scenario names it as its model"
        )
        raise ScenarioError([Problem(mark=tree.mark, path="", message=message, value=None)])
    return _Builder(with_hardware_files(tree)).fields(name)


def build_bare(tree: TreeNode, name: str) -> Bare:
    """The campaign of a document without a model.

    Raises:
        ScenarioError: with every problem found.
    """
    return _Builder(tree).bare(name)


class _Builder:
    """One reading of one document."""

    def __init__(self, tree: TreeNode) -> None:
        self.tree = tree
        self.problems: list[Problem] = []

    def fields(self, name: str) -> dict[str, Any]:
        """The fields of the scenario called ``name`` unless the document names it, checked one by one and
        together.

        Raises:
            ScenarioError: with every mistake of the document, not the first alone.
        """
        self._check_keys()
        plain = with_fault_traces(self.tree, without_nulls(self.tree).plain())
        if is_table(plain.get("schedule")):
            plain["schedule"] = beside(self.tree, "schedule", plain["schedule"])
        parts = self._parts(plain)
        published = self._part(PublishedFigures, "published", plain.get("published"))
        if isinstance(plain.get("calibration"), list):
            plain["calibration"] = self._calibration(plain["calibration"], parts.cluster)
        heading = self._heading(plain, name, parts.parallelism)
        over_weeks = self._over_weeks(plain)
        self._check_together(parts, heading, over_weeks["faults"])
        if self.problems:
            raise ScenarioError(self.problems)
        # No problem was found, so every part was read.
        assert parts.model is not None
        assert parts.parallelism is not None
        assert heading is not None
        return {
            "model": parts.model.padded_for(parts.parallelism.tp),
            "cluster": parts.cluster,
            "parallelism": parts.parallelism,
            "training": parts.training,
            "software": parts.software,
            "published": published,
            **dict(heading),
            **over_weeks,
        }

    def _parts(self, plain: dict[str, Any]) -> ScenarioParts:
        """The five blocks that a step is made of, each with what follows from the others."""
        software = self._part(Software, "software", self._resolved("software", plain))
        preset = software.name if software else ""
        shape = _as_preset_runs(preset, "model", self._resolved("model", plain), plain)
        model = self._part(Model, "model", shape)
        cluster = self._cluster(plain)
        layout = with_layout_defaults(plain.get("parallelism", {}), plain.get("schedule"), cluster)
        layout = _as_preset_runs(preset, "parallelism", layout, plain)
        parallelism = self._part(Parallelism, "parallelism", layout)
        training = self._part(Training, "training", with_counts_file(self.tree, plain.get("training")))
        if software and cluster and is_known(cluster.gpu, gpu_names()) and not _states_attention(plain):
            software = with_attention_of(gpu_of(cluster), software)
        if software and training:
            software = with_own_defaults(software, lookup_in({**plain, "training": training}))
            for finding in scaling_is_read(lookup_in(plain), training):
                self._add(finding.path, finding.message)
        if software:
            for finding in xla_reads_what_is_its_own(lookup_in(plain), software):
                self._add(finding.path, finding.message)
        if model:
            for finding in experts_are_there(lookup_in(plain), model):
                self._add(finding.path, finding.message)
        if parallelism:
            for finding in broadcasts_are_of_zero1(lookup_in(plain), parallelism):
                self._add(finding.path, finding.message)
        if parallelism and software:
            for finding in lists_are_of_deepspeeds_third_stage(lookup_in(plain), parallelism, software):
                self._add(finding.path, finding.message)
        return ScenarioParts(
            model=model, cluster=cluster, parallelism=parallelism, training=training, software=software
        )

    def _over_weeks(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The blocks of weeks with faults; None for each that the document leaves out."""
        given = [block for block in FAULT_BLOCKS if plain.get(block) is not None]
        models = fault_blocks() if given else {}
        return {
            block: self._part(models[block], block, plain[block]) if block in given else None
            for block in FAULT_BLOCKS
        }

    def _cluster(self, plain: dict[str, Any]) -> ClusterSpec | None:
        """The cluster; of one that cannot be read, unknown names of its parts are reported all the same."""
        machine = with_machine_defaults(with_cluster_files(self.tree, plain.get("cluster")))
        cluster = self._part(ClusterSpec, "cluster", machine)
        if cluster is None and isinstance(machine, dict):
            for finding in names_exist(machine.get("gpu"), machine.get("interconnect")):
                self._add(finding.path, finding.message)
        return cluster

    def _check_together(self, parts: ScenarioParts, heading: _Heading | None, faults: Faults | None) -> None:
        """Report what is wrong between blocks."""
        known = replace(
            parts,
            faults=faults,
            schedule=heading.schedule if heading else None,
            options=heading.schedule_options if heading else None,
        )
        for finding in findings(known):
            self._add(finding.path, finding.message, between=not finding.alone)

    def bare(self, name: str) -> Bare:
        from .checks_faults import of_bare
        from .faults.bare import Bare

        plain = with_fault_traces(self.tree, without_nulls(self.tree).plain())
        plain.pop("extends", None)
        plain.setdefault("name", name)
        if "step_time" not in plain:
            message = "a campaign needs a model, or the time of a step, as in step_time: 10 s"
            self._add(("step_time",), message)
        read = self._part(Bare, "", plain)
        if read:
            for finding in of_bare(read):
                self._add(finding.path, finding.message)
        if self.problems:
            raise ScenarioError(self.problems)
        assert read is not None
        return read

    def _check_keys(self) -> None:
        known = [*_Heading.model_fields, *_BLOCKS, "extends"]
        for key, entry in self.tree.entries.items():
            if key not in known:
                self._add((key,), unknown_key(key, known, fields_by_block()), entry.key_mark)
        for block, contents in _REQUIRED.items():
            if nearest(self.tree, (block,)).value is None or block not in self.tree.entries:
                self._add((block,), f"this block is required: {contents}")

    def _resolved(self, block: str, plain: dict[str, Any]) -> Any:
        """The fields of a block that may name a preset; None if that failed."""
        node = self.tree.entries.get(block)
        if node is None or not isinstance(node.value, dict):
            return plain.get(block)
        try:
            return model_fields(node) if block == "model" else software_fields(node)
        except ValueError as error:
            self._add((block,), str(error), nearest(node, ("preset",)).mark)
            return None

    def _heading(self, plain: dict[str, Any], name: str, parallelism: Parallelism | None) -> _Heading | None:
        fields = {key: plain[key] for key in _Heading.model_fields if key in plain}
        fields.setdefault("name", name)
        if parallelism:
            fields.setdefault("schedule", default_schedule(parallelism))
        return self._part(_Heading, "", fields)

    def _calibration(self, entries: list[Any], cluster: ClusterSpec | None) -> list[Any]:
        """The entries with files found from the folder of the document; what is wrong in them is reported."""
        found = []
        for place, entry in enumerate(entries):
            file = isinstance(entry, str) and is_file(entry)
            found.append(beside(self.tree, "calibration", entry) if file else entry)
            if isinstance(entry, str) and cluster and is_known(cluster.gpu, gpu_names()):
                try:
                    calibrated_profile(gpu_of(cluster), found[-1:])
                except ValueError as error:
                    self._add(("calibration", place), str(error))
        return found

    def _part(self, part: type[Part], block: str, fields: Any) -> Part | None:
        """The block, its errors reported. What no check reads does not keep it from being checked further."""
        if fields is None:
            return None
        try:
            return part.model_validate(fields, context=FROM_DOCUMENT)
        except ValidationError as failure:
            errors = errors_of(failure)
        prefix = (block,) if block else ()
        rest = fields
        for number, error in enumerate(errors):
            inner, unknown = field_path(error), error["type"] == "extra_forbidden"
            path = (*prefix, *inner)
            key_mark = nearest(self.tree, path).key_mark if unknown else None
            # Explaining looks for near names, which takes a millisecond; more than these are never shown.
            told = explained(error, part, fields_by_block()) if number < _EXPLAINED else error["msg"]
            self._add(path, told, key_mark)
            if rest is not None:
                spare = unknown or inner[:1] in _UNCHECKED
                rest = _without(rest, inner if unknown else inner[:1]) if spare else None
        return self._part(part, block, rest)

    def _add(self, path: FieldPath, message: str, mark: Mark | None = None, *, between: bool = False) -> None:
        node = nearest(self.tree, path)
        if mark is None:
            absent = isinstance(node.value, dict)
            block = node.mark if node is not self.tree else Mark(file=node.mark.file)
            mark = (node.key_mark or block) if absent else node.mark
        value = None if isinstance(node.value, dict | list) else node.value
        self.problems.append(
            Problem(mark=mark, path=dotted(path), message=message, value=value, between=between)
        )


def _states_attention(plain: dict[str, Any]) -> bool:
    """Whether the document itself names the attention kernel."""
    software = plain.get("software")
    kernels = software.get("kernels") if isinstance(software, dict) else None
    return isinstance(kernels, dict) and "attention" in kernels


def _as_preset_runs(preset: str, block: str, fields: Any, plain: dict[str, Any]) -> Any:
    """The fields of a block with those that the software preset implies; what is no block stays as it is."""
    return with_defaults_of(preset, block, fields, plain) if isinstance(fields, dict) else fields


def _without(fields: dict[Any, Any], path: FieldPath) -> dict[Any, Any]:
    """Nested ``fields`` without the one at ``path``."""
    key, *rest = path
    if not rest or not isinstance(fields.get(key), dict):
        return {name: value for name, value in fields.items() if name != key}
    return {**fields, key: _without(fields[key], tuple(rest))}
