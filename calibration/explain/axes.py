"""Which axis of parallelism a traced communication serves.

By the ranks of its group where a scenario says which groups there are; else by what the trace calls the
group, in the words of PyTorch's device meshes and of Megatron. Knows no file format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...sim.lowering.process_groups import GROUPS, ProcessGroups
from ...sim.result.step import AXES
from .step_record import DeviceOp

AXIS_OF: Mapping[str, str] = {
    **{axis: axis for axis in AXES},
    "world": "dp",
    "optimizer": "dp",
    "embedding": "pp",
    **dict.fromkeys(("fsdp", "hsdp", "edp", "efsdp", "ehsdp"), "dp"),
    "etp": "tp",
    "cp.ring": "cp",
    "cp.heads": "cp",
    "model": "pp",
}
"""The axis that a group's messages count for; those of the optimizer are data parallelism's."""

_WORDS = (
    ("ep", r"\bep\b|expert|moe|deep_?ep"),
    ("tp", r"\btp\b|tensor"),
    ("cp", r"\bcp\b|context"),
    ("pp", r"\bpp\b|pipeline|pipe\b|embedding"),
    ("dp", r"\b(?:e|f|h)?s?dp\b|data|shard|replicate"),
)
_ORDER = ("tp", "cp", "ep", "dp", "pp", *(name for name in GROUPS if name not in AXES))


@dataclass(frozen=True, kw_only=True)
class GroupAxes:
    """The groups of a scenario; None: only words count."""

    groups: ProcessGroups | None = None

    def axis(self, op: DeviceOp, rank: int) -> str:
        """The axis of a communication of ``rank``; empty where nothing in the trace says it."""
        said = op.group.partition(" ")[0]
        if said in AXIS_OF:
            return AXIS_OF[said]
        if self.groups is not None and len(op.ranks) > 1:
            for name in _ORDER:
                members = self.groups.containing(name, rank)
                if len(members) == len(op.ranks) and sorted(int(m) for m in members) == sorted(op.ranks):
                    return AXIS_OF.get(name, "")
        words = f"{op.group} {op.name}".lower().replace("_", " ").replace("sendrecv", "")
        found = next((axis for axis, rule in _WORDS if re.search(rule, words)), "")
        return found or self._only()

    def _only(self) -> str:
        """The one axis that has more than one rank, if there is only one."""
        if self.groups is None:
            return ""
        par = self.groups.parallelism
        wide = [axis for axis in AXES if getattr(par, axis) > 1]
        return wide[0] if len(wide) == 1 else ""


def with_axes(ops: Iterable[DeviceOp], rank: int, axes: GroupAxes) -> tuple[DeviceOp, ...]:
    """The ops, communications with their axes."""
    known: dict[tuple[object, ...], str] = {}
    found = []
    for op in ops:
        if op.kind == "communication" and not op.axis:
            key = op.group, op.ranks, op.name
            if key not in known:
                known[key] = axes.axis(op, rank)
            op = replace(op, axis=known[key]) if known[key] else op
        found.append(op)
    return tuple(found)
