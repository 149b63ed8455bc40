"""Every rank of a job: what it runs, which ranks it communicates with, and what is wrong with it. Arrays, no
loops over ranks.

Ranks run the program of their pipeline rank. A communicator of the programs (tp, dp, world, ...) stands
for one instance per group of ranks; a message goes to the rank of the other stage in the same replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..lowering.process_groups import GROUPS
from ..program.program import Collective, Exchange, Programs, RepeatedBlocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..lowering.lower import Lowered


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """What sets ranks apart: kernels that take ``slow[rank]`` times as long, and the share of its
    capacity that ``link_share[rank, link]`` leaves of a rank's own link (nic.out, ...), and
    ``fabric_share[id]`` of a link between switches (``Cluster.topology.links``, in one direction). A rank
    that is infinitely slow stops, for ever.

    ``later``: from each of these seconds after the start of the step on, that instead, in order of time.
    """

    slow: Mapping[int, float] = field(default_factory=dict)
    link_share: Mapping[tuple[int, str], float] = field(default_factory=dict)
    fabric_share: Mapping[int, float] = field(default_factory=dict)
    later: tuple[tuple[float, Degradation], ...] = ()

    @property
    def states(self) -> tuple[Degradation, ...]:
        """The degradation at the start of the step, and after each later change."""
        return (self, *(state for _, state in self.later))


HEALTHY = Degradation()


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """What each rank runs, and which ranks it communicates with.

    ``signature[rank]`` is its program and ``stage[rank]`` its pipeline rank. ``instance[name][rank]`` is its
    instance of a communicator that programs call and that joins ranks (-1: none). ``peer[q][rank]`` is the
    rank of pipeline rank q that it exchanges messages with (-1: none).
    """

    signature: NDArray[np.int64]
    stage: NDArray[np.int64]
    instance: Mapping[str, NDArray[np.int64]]
    peer: Mapping[int, NDArray[np.int64]]

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.signature)

    def members(self, name: str, rank: int) -> NDArray[np.int64]:
        """The ranks of a rank's instance of a communicator."""
        number = self.instance[name][rank]
        return np.flatnonzero(self.instance[name] == number)


def ranks_of(lowered: Lowered) -> Ranks:
    """The ranks of a lowered scenario."""
    groups, signature = lowered.plan.process_groups, lowered.program_of
    stage, place = groups.pipeline_rank, groups.place(("place",))
    called = _called(lowered.programs)
    instance = {name: groups.number(name) for name in GROUPS if name in called}
    for name, members in lowered.programs.communicators.items():
        if name in called and name != "world":  # the ends of a tied table, both copies of a stage
            group = "pp" if name == "embedding" else name.split(" ")[0]
            instance[name] = _numbered_where(np.isin(stage, members), groups.number(group))
    joining = {name: one for name, one in instance.items() if np.bincount(one[one >= 0]).max(initial=0) > 1}
    peer = {
        q: np.where(np.isin(signature, sorted(talking)), groups.stages[q][place], -1)
        for q, talking in _partners(lowered.programs).items()
        if q < len(groups.stages)
    }
    return Ranks(signature=signature, stage=stage, instance=joining, peer=peer)


def _numbered_where(here: NDArray[np.bool_], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """The groups of the ranks that are ``here``, renumbered from 0 without gaps; -1 for all other ranks."""
    found = np.full(len(number), -1, dtype=np.int64)
    found[here] = np.unique(number[here], return_inverse=True)[1].ravel()
    return found


def _partners(programs: Programs) -> dict[int, set[int]]:
    """For each pipeline rank in order, the programs that exchange messages with it."""
    found: dict[int, set[int]] = {}
    for r, program in enumerate(programs.classes):
        exchanges = (op.work for op in program.ops if isinstance(op.work, Exchange))
        for q in {part.peer for work in exchanges for part in work.parts}:
            found.setdefault(q, set()).add(r)
    return dict(sorted(found.items()))


def _called(programs: Programs) -> set[str]:
    """The communicators that programs call."""
    found: set[str] = set()
    for program in programs.classes:
        works = {id(op.work): op.work for op in program.ops}.values()
        found.update(work.communicator for work in works if isinstance(work, Collective))
        for work in works:
            if isinstance(work, RepeatedBlocks):
                found |= work.communicators
    return found
