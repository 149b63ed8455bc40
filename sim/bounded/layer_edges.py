"""Edges of layers: kernels before the first and after the last collective of the tensor-parallel group.

Between two such collectives all members of the group take as long as the slowest, for which they wait. At the
edges of a layer a faster member may be ahead: it begins sooner, and its messages leave sooner. Knows blocks;
knows nothing of what is slow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from ..program.program import Collective, Compute, RepeatedBlocks

if TYPE_CHECKING:
    from ..program.program import Block, Op, Work

TENSOR = "tp"
"""The communicator whose members go at the pace of the slowest between two of its collectives."""

NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEdges:
    """The longest paths of kernels at the edges of an op, in seconds; ``NEVER`` where there is no such path.

    ``head_s`` leads into the op up to its first collective of the tensor-parallel group, ``tail_s`` from its
    last such collective out of the op, and ``through_s`` through the op without passing any.
    """

    head_s: float
    tail_s: float
    through_s: float

    def then(self, other: LayerEdges) -> LayerEdges:
        """The edges of this op followed by the other."""
        return LayerEdges(
            head_s=max(self.head_s, self.through_s + other.head_s),
            tail_s=max(other.tail_s, self.tail_s + other.through_s),
            through_s=self.through_s + other.through_s,
        )


NOTHING = LayerEdges(head_s=NEVER, tail_s=NEVER, through_s=0.0)
AWAITED = LayerEdges(head_s=0.0, tail_s=0.0, through_s=NEVER)
"""Edges of an op without kernels, and of one that waits for the whole group."""


def edges_of_work(work: Work, awaiting: Collection[str], known: dict[Block, LayerEdges]) -> LayerEdges:
    """The edges of an op. Communicators in ``awaiting`` join the whole tensor-parallel group, and maybe
    others; ``known`` keeps the edges of blocks that were met before."""
    if isinstance(work, Collective):
        return AWAITED if work.communicator in awaiting else NOTHING
    if isinstance(work, Compute):
        return LayerEdges(head_s=NEVER, tail_s=NEVER, through_s=work.seconds)
    if not isinstance(work, RepeatedBlocks):
        return NOTHING
    for block in work.row:
        if block not in known:
            known[block] = edges_of_block(block)
    return reduce(LayerEdges.then, (known[block] for block in work.row), NOTHING)


def edges_of_block(block: Block) -> LayerEdges:
    """The edges of one block."""
    seconds = [op.work.seconds if isinstance(op.work, Compute) else 0.0 for op in block.ops]
    gathers = [_gathers(op) for op in block.ops]
    before = _needed(before_in_block(block), gathers)
    count = len(block.ops)
    behind: list[list[int]] = [[] for _ in range(count)]
    for later, earlier in enumerate(before):
        for i in earlier:
            behind[i].append(later)
    into = _longest_paths(range(count), before, seconds, gathers)
    out = _longest_paths(reversed(range(count)), behind, seconds, gathers)
    first = [into[j] for i in range(count) if gathers[i] for j in before[i] if not gathers[j]]
    last = [out[j] for i in range(count) if gathers[i] for j in behind[i] if not gathers[j]]
    awaited = any(gathers)
    return LayerEdges(
        head_s=max((0.0, *first)) if awaited else NEVER,
        tail_s=max((0.0, *last)) if awaited else NEVER,
        through_s=max((into[i] for i in range(count) if not behind[i]), default=0.0),
    )


def _longest_paths(
    order: Iterable[int],
    neighbours: Sequence[Sequence[int]],
    seconds: Sequence[float],
    gathers: Sequence[bool],
) -> list[float]:
    """Seconds of the longest path to each op, itself included, over ``neighbours`` that come earlier in
    ``order``. Paths begin at ops without neighbours and cross no op that ``gathers``. NEVER: there is none.
    """
    found = [NEVER] * len(seconds)
    for i in order:
        if not gathers[i]:
            ahead = max((found[j] for j in neighbours[i] if not gathers[j]), default=NEVER)
            found[i] = (ahead if neighbours[i] else 0.0) + seconds[i]
    return found


def before_in_block(block: Block) -> list[list[int]]:
    """For each op of a block, the ops that it waits for: those it names, and the one before it on its
    stream."""
    found: list[list[int]] = [list(op.after) for op in block.ops]
    for rows in block.streams.values():
        for row in rows:
            for earlier, later in pairwise(row):
                found[later].append(earlier)
    return found


def _needed(before: list[list[int]], gathers: list[bool]) -> list[list[int]]:
    """``before`` without ops that are also awaited through a collective, which takes longer."""
    ancestors: list[int] = []
    through: list[int] = []
    for earlier in before:
        mine = beyond = 0
        for i in earlier:
            mine |= ancestors[i] | 1 << i
            beyond |= through[i] | (ancestors[i] if gathers[i] else 0)
        ancestors.append(mine)
        through.append(beyond)
    return [[i for i in earlier if not through[later] >> i & 1] for later, earlier in enumerate(before)]


def _gathers(op: Op) -> bool:
    return isinstance(op.work, Collective) and op.work.communicator == TENSOR
