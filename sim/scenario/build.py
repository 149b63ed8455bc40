"""From a merged document to the blocks of a Scenario: what follows from other fields, types, consistency.

Knows the blocks and how each is read. Every mistake of every block is gathered before any is
reported; a block that cannot be read is left out of the checks that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...hardware.calibrated.overlay import calibrated_profile, is_file
from ...hardware.explain import FieldPath, dotted, errors_of, field_path
from ...hardware.fabric import default_fabric
from ...hardware.fields import FROM_DOCUMENT, SecondsAboveZero, Text
from ...hardware.gpus import get_gpu, gpu_names
from ...hardware.interconnect import Interconnect, get_interconnect, interconnect_names
from ...hardware.node import Node, node_for
from ...hardware.own_gpu import OwnGpu, gpu_from
from ...hardware.own_interconnect import OwnInterconnect, interconnect_from
from ...hardware.own_node import OwnNode, node_from
from ...hardware.published import PUBLISHED
from .blocks import (
    ClusterSpec,
    Parallelism,
    PublishedFigures,
    ScheduleChoice,
    ScheduleOptions,
    Training,
    gpu_key,
    interconnect_key,
)
from .checks import findings, is_known, names_exist, nvlink_domain
from .errors import Mark, Problem, ScenarioError
from .explain import explained, unknown_key
from .faults.detection import Detection
from .faults.faults import Faults
from .faults.recovery import Checkpoint, Recovery, Run
from .frameworks import with_defaults_of
from .machine import gpu_of
from .model.model import Model
from .own_hardware import described, with_hardware_files
from .presets import model_fields, software_fields, with_attention_of
from .schedules import is_table, schedule_named
from .software.software import Software
from .tree import TreeNode, nearest, without_nulls

if TYPE_CHECKING:
    from .faults.bare import Bare

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


_FAULT_BLOCKS: Final[dict[str, type[BaseModel]]] = {
    "faults": Faults,
    "detection": Detection,
    "recovery": Recovery,
    "checkpoint": Checkpoint,
    "run": Run,
}
_BLOCKS: Final[dict[str, type[BaseModel]]] = {
    "model": Model,
    "cluster": ClusterSpec,
    "parallelism": Parallelism,
    "training": Training,
    "software": Software,
    "published": PublishedFigures,
    **_FAULT_BLOCKS,
}
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

_FIELDS: Final = {block: set(part.model_fields) for block, part in _BLOCKS.items()}


def fields_of(tree: TreeNode, name: str) -> dict[str, Any]:
    """What a scenario is made of, from a document with canonical names: its blocks, which fit one another.

    ``name`` is used where the document has none.

    Raises:
        ScenarioError: with every problem found.
    """
    if not isinstance(tree.value, dict):
        message = "a scenario is a block of fields: model, cluster, parallelism, training, schedule, software"
        raise ScenarioError([Problem(mark=tree.mark, path="", message=message, value=tree.value)])
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
        self._check_keys()
        plain = self._with_traces(without_nulls(self.tree).plain())
        if is_table(plain.get("schedule")):
            plain["schedule"] = self._beside("schedule", plain["schedule"])
        software = self._part(Software, "software", self._resolved("software", plain))
        preset = software.name if software else ""
        shape = self._resolved("model", plain)
        if isinstance(shape, dict):
            shape = with_defaults_of(preset, "model", shape, plain)
        model = self._part(Model, "model", shape)
        machine = _with_machine_defaults(self._with_files(plain.get("cluster")))
        cluster = self._part(ClusterSpec, "cluster", machine)
        if software and cluster and is_known(cluster.gpu, gpu_names()) and not _states_attention(plain):
            software = with_attention_of(gpu_of(cluster), software)
        layout = _with_layout_defaults(plain.get("parallelism", {}), plain.get("schedule"), cluster)
        if isinstance(layout, dict):
            layout = with_defaults_of(preset, "parallelism", layout, plain)
        parallelism = self._part(Parallelism, "parallelism", layout)
        training = self._part(Training, "training", self._with_counts_file(plain.get("training")))
        published = self._part(PublishedFigures, "published", plain.get("published"))
        if isinstance(plain.get("calibration"), list):
            plain["calibration"] = self._calibration(plain["calibration"], cluster)
        heading = self._heading(plain, name, parallelism)
        if cluster is None and isinstance(machine, dict):
            for finding in names_exist(machine.get("gpu"), machine.get("interconnect")):
                self._add(finding.path, finding.message)
        over_weeks: dict[str, Any] = {
            block: self._part(part, block, plain.get(block)) for block, part in _FAULT_BLOCKS.items()
        }
        faults = over_weeks["faults"]
        for finding in findings(
            faults=faults if isinstance(faults, Faults) else None,
            model=model,
            cluster=cluster,
            parallelism=parallelism,
            training=training,
            schedule=heading.schedule if heading else None,
            options=heading.schedule_options if heading else None,
            software=software,
        ):
            self._add(finding.path, finding.message)
        if self.problems:
            raise ScenarioError(self.problems)
        # No problem was found, so every part was read.
        assert model is not None
        assert software is not None
        assert cluster is not None
        assert parallelism is not None
        assert training is not None
        assert heading is not None
        return {
            "model": model.padded_for(parallelism.tp),
            "cluster": cluster,
            "parallelism": parallelism,
            "training": training,
            "software": software,
            "published": published,
            **dict(heading),
            **over_weeks,
        }

    def bare(self, name: str) -> Bare:
        from .checks_faults import of_bare
        from .faults.bare import Bare

        plain = self._with_traces(without_nulls(self.tree).plain())
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

    def _with_traces(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Files of faults are found from the folder of the document that names them."""
        faults = plain.get("faults")
        events = faults.get("events") if isinstance(faults, dict) else None
        for number, event in enumerate(events if isinstance(events, list) else []):
            if isinstance(event, dict) and isinstance(event.get("trace"), str):
                mark = nearest(self.tree, ("faults", "events", number, "trace")).mark
                if mark.line:
                    event["trace"] = str(Path(mark.file).parent / event["trace"])
        return plain

    def _check_keys(self) -> None:
        known = [*_Heading.model_fields, *_BLOCKS, "extends"]
        for key, entry in self.tree.entries.items():
            if key not in known:
                self._add((key,), unknown_key(key, known, _FIELDS), entry.key_mark)
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

    def _with_graph_file(self, fields: Any) -> Any:
        """The block ``cluster`` with its graph file found from the folder of the document that names it."""
        node = nearest(self.tree, ("cluster", "fabric", "file"))
        fabric = fields.get("fabric") if isinstance(fields, dict) else None
        if not isinstance(fabric, dict) or not isinstance(fabric.get("file"), str) or not node.mark.line:
            return fields
        return {**fields, "fabric": {**fabric, "file": str(Path(node.mark.file).parent / fabric["file"])}}

    def _with_files(self, fields: Any) -> Any:
        """The block ``cluster`` with the files of its graph, of neighbours and of measured speeds found in
        this way.
        """
        fields = self._with_neighbour_files(self._with_graph_file(fields))
        varies = fields.get("variation") if isinstance(fields, dict) else None
        if not isinstance(varies, dict):
            return fields
        found = dict(varies)
        for part, law in varies.items():
            node = nearest(self.tree, ("cluster", "variation", part, "file"))
            if isinstance(law, dict) and isinstance(law.get("file"), str) and node.mark.line:
                found[part] = {**law, "file": str(Path(node.mark.file).parent / law["file"])}
        return {**fields, "variation": found}

    def _with_neighbour_files(self, fields: Any) -> Any:
        """The block ``cluster`` with the files of other jobs; what is no file there is a shipped name."""
        others = fields.get("neighbours") if isinstance(fields, dict) else None
        if not isinstance(others, list):
            return fields
        found: list[Any] = []
        for number, other in enumerate(others):
            mark = nearest(self.tree, ("cluster", "neighbours", number, "scenario")).mark
            named = other.get("scenario") if isinstance(other, dict) else None
            file = Path(mark.file).parent / named if isinstance(named, str) and mark.line else None
            there = file is not None and file.is_file()
            found.append({**other, "scenario": str(file)} if there else other)
        return {**fields, "neighbours": found}

    def _heading(self, plain: dict[str, Any], name: str, parallelism: Parallelism | None) -> _Heading | None:
        fields = {key: plain[key] for key in _Heading.model_fields if key in plain}
        fields.setdefault("name", name)
        if parallelism:
            fields.setdefault("schedule", _default_schedule(parallelism))
        return self._part(_Heading, "", fields)

    def _with_counts_file(self, fields: Any) -> Any:
        """The block ``training`` with the file of its router's counts found in the same way."""
        node = nearest(self.tree, ("training", "routing", "file"))
        routing = fields.get("routing") if isinstance(fields, dict) else None
        if not isinstance(routing, dict) or not isinstance(routing.get("file"), str) or not node.mark.line:
            return fields
        return {**fields, "routing": {**routing, "file": str(Path(node.mark.file).parent / routing["file"])}}

    def _beside(self, key: str, path: str) -> str:
        """A file that is named relative to the one that names it."""
        named_in = Path(nearest(self.tree, (key,)).mark.file)
        return str(named_in.parent / path) if named_in.is_file() else path

    def _calibration(self, entries: list[Any], cluster: ClusterSpec | None) -> list[Any]:
        """The entries with files found from the folder of the document; what is wrong in them is reported."""
        found = []
        for place, entry in enumerate(entries):
            file = isinstance(entry, str) and is_file(entry)
            found.append(self._beside("calibration", entry) if file else entry)
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
            told = explained(error, part, _FIELDS) if number < _EXPLAINED else error["msg"]
            self._add(path, told, key_mark)
            if rest is not None:
                spare = unknown or inner[:1] in _UNCHECKED
                rest = _without(rest, inner if unknown else inner[:1]) if spare else None
        return self._part(part, block, rest)

    def _add(self, path: FieldPath, message: str, mark: Mark | None = None) -> None:
        node = nearest(self.tree, path)
        if mark is None:
            absent = isinstance(node.value, dict)
            block = node.mark if node is not self.tree else Mark(file=node.mark.file)
            mark = (node.key_mark or block) if absent else node.mark
        value = None if isinstance(node.value, dict | list) else node.value
        self.problems.append(Problem(mark=mark, path=dotted(path), message=message, value=value))


def _with_machine_defaults(fields: Any) -> Any:
    """The block ``cluster`` with its GPU's host size, its network's usual shape, and none inside NVLink."""
    if not isinstance(fields, dict):
        return fields
    filled = dict(fields)
    node = _node_of(filled.get("gpu"), filled.get("node"))
    filled.setdefault("gpus_per_node", node.max_gpus if node else 8)
    gpus, per_node = _whole(filled.get("gpus")), _whole(filled["gpus_per_node"])
    fabric = filled.get("fabric", {})
    published = isinstance(fabric, dict) and fabric.get("kind") in PUBLISHED.names()
    if published:
        filled.setdefault("interconnect", PUBLISHED.get(fabric["kind"]).interconnects[0])
    if (
        gpus
        and per_node
        and gpus
        <= nvlink_domain(
            node.hosts_per_domain if node else 1, per_node, _whole(filled.get("gpus_per_domain"))
        )
    ):
        filled.setdefault("interconnect", "nvlink-only")
    network = _network_of(filled.get("interconnect"))
    if network and network.kind != "unknown" and isinstance(fabric, dict):
        filled["fabric"] = {"kind": default_fabric(network).kind, **fabric}
    return filled


def _node_of(gpu: Any, node: Any) -> Node | None:
    """The host of a block that is not checked yet; None where its GPU is none."""
    name = gpu_key(gpu)
    if isinstance(name, str):
        chip = get_gpu(name) if name in gpu_names() else None
    else:
        own = described(OwnGpu, gpu)
        chip = gpu_from(own) if own else None
    host = described(OwnNode, node) if chip and node is not None else None
    if chip is None:
        return None
    return node_from(host, chip) if host else node_for(chip)


def _network_of(interconnect: Any) -> Interconnect | None:
    """The network of a block that is not checked yet; None where it is none."""
    name = interconnect_key(interconnect)
    if isinstance(name, str):
        return get_interconnect(name) if name in interconnect_names() else None
    own = described(OwnInterconnect, interconnect)
    return interconnect_from(own) if own else None


def _states_attention(plain: dict[str, Any]) -> bool:
    """Whether the document itself names the attention kernel."""
    software = plain.get("software")
    kernels = software.get("kernels") if isinstance(software, dict) else None
    return isinstance(kernels, dict) and "attention" in kernels


def _with_layout_defaults(fields: Any, schedule: Any, cluster: ClusterSpec | None) -> Any:
    """The block ``parallelism`` with vpp and dp, which follow from the schedule and the number of GPUs."""
    if not isinstance(fields, dict):
        return fields
    filled = dict(fields)
    if isinstance(schedule, str) and "vpp" not in filled:
        filled["vpp"] = _chunks_of(schedule)
    tp, pp, cp = (_whole(filled.get(axis, 1)) for axis in ("tp", "pp", "cp"))
    if cluster and tp and pp and cp:
        filled.setdefault("dp", max(1, cluster.gpus // (tp * pp * cp)))
    filled.setdefault("dp", 1)  # a guess: the reason is already a problem
    return filled


def _chunks_of(schedule: str) -> int:
    """Chunks per stage that go without saying: those of a V, or of a table; 1 if that is a problem."""
    try:
        return schedule_named(schedule).chunks
    except ValueError:
        return 1


def _default_schedule(par: Parallelism) -> str:
    if par.pp == 1:
        return "none"
    return "1f1b" if par.vpp == 1 else "interleaved"


def _without(fields: dict[Any, Any], path: FieldPath) -> dict[Any, Any]:
    """Nested ``fields`` without the one at ``path``."""
    key, *rest = path
    if not rest or not isinstance(fields.get(key), dict):
        return {name: value for name, value in fields.items() if name != key}
    return {**fields, key: _without(fields[key], tuple(rest))}


def _whole(value: Any) -> int | None:
    """A positive whole number, which may be written 1e3; None for anything else: the types report it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value >= 1 and value == value // 1 else None
