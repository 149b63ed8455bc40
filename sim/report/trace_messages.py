"""What a trace says of a collective, in the words of torch's profiler: kind, group, ranks, size, type.

Knows the names of the arguments and who is in a communicator; does not know when anything happens. The sizes
are those of nccl-tests: for all_gather what a rank gets, else what it puts in.

Source: torch/csrc/distributed/c10d/ParamCommsUtils.hpp, torch/csrc/profiler/util.cpp (saveNcclMeta).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..lowering.layers.local_shape import ELEMENT_BYTES
from ..result.step import Span

if TYPE_CHECKING:
    from ..scenario.models import Scenario

KERNELS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "SendRecv",
    "broadcast": "Broadcast",
    "send": "SendRecv",
    "recv": "SendRecv",
}
_GATHER, _SCATTER = "all_gather".replace("_", ""), "reduce_scatter".replace("_", "")  # as PyTorch writes them
TYPES = {2: "BFloat16", 4: "Float"}
MOST_RANKS = 64
"""Ranks of a group that are listed; torch itself cuts longer lists short."""


@lru_cache(maxsize=4096)
def nccl_names(name: str) -> tuple[str, str]:
    """Kernel and collective as NCCL and PyTorch call them, from a name such as ``all_reduce gradients``."""
    squeezed = re.sub(r"[^a-z]", "", name.lower())
    for collective, kernel in KERNELS.items():
        if (plain := collective.replace("_", "")) in squeezed:  # plain is what PyTorch writes
            return f"ncclDevKernel_{kernel}", plain
    return "ncclDevKernel_Generic", name


@dataclass(kw_only=True)
class TraceMessages:
    """The arguments of the communications of ``rank``; ``scenario`` None: of a program alone."""

    scenario: Scenario | None
    rank: int
    _ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def arguments(self, span: Span) -> dict[str, Any]:
        """Name of the collective and its group; where the group is known, its ranks, sizes and type."""
        kind = nccl_names(span.name)[1]
        found: dict[str, Any] = {"Collective name": kind, "Process Group Name": span.group or span.category}
        ranks = self.ranks(span.group)
        if not ranks or self.scenario is None:
            return found
        element = self._element_bytes(span)
        handed = span.bytes / (len(ranks) if kind == _GATHER else 1)
        received = span.bytes / (len(ranks) if kind == _SCATTER else 1)
        return found | {
            "Process Group Description": span.category,
            "Process Group Ranks": list(ranks[:MOST_RANKS]) + (["..."] if len(ranks) > MOST_RANKS else []),
            "Group size": len(ranks),
            "dtype": TYPES[element],
            "In msg nelems": round(handed / element),
            "Out msg nelems": round(received / element),
        }

    def ranks(self, group: str) -> tuple[int, ...]:
        """The ranks of a communicator that this rank is in; none where nothing says which."""
        from ..lowering.process_groups import GROUPS, process_groups_of

        name = group.partition(" ")[0]  # "dp 3" are the data-parallel groups of pipeline rank 3
        if self.scenario is None or name not in GROUPS:
            return ()
        if name not in self._ranks:
            members = process_groups_of(self.scenario).containing(name, self.rank)
            self._ranks[name] = tuple(sorted(int(one) for one in members))
        return self._ranks[name]

    def _element_bytes(self, span: Span) -> int:
        """Gradients have their own type; all else travels as activations and parameters do."""
        assert self.scenario is not None
        precision = self.scenario.training.precision
        if span.name.startswith("gradient reduce") or span.name.startswith("gradient all_reduce"):
            gradients = self.scenario.software.gradients
            return int(gradients.reduce_grad_bytes or gradients.gradient_bytes(precision))
        return 4 if span.category == "optimizer" else ELEMENT_BYTES[precision]
