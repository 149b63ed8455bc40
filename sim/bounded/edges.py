"""LayerEdges of layers: kernels before the first and after the last collective of the tensor-parallel group.

Between two such collectives of a block all members of the group take what the slowest takes, who is awaited.
At its edges a member that is faster may be ahead: its messages leave sooner, and its layer begins sooner.
Knows programs; knows nothing of what is slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ..program.program import Block, Collective, Compute, Exchange, RepeatedBlocks

if TYPE_CHECKING:
    from ..program.program import Op, Program, Programs

TENSOR = "tp"
"""The communicator whose members go at the pace of the slowest between two of its collectives."""

SHARE = 0.49
"""Of a message's time, by which either of its ends may make it sooner."""


@dataclass(frozen=True, kw_only=True)
class LayerEdges:
    """``of_message`` (sending class, receiving class, tag): seconds of kernels at the edge of what is sent,
    and of what needs it. By class, the most such ``tail_s`` and ``head_s`` of all its layers, and ``ahead``:
    by how much of its kernels' time a rank may be ahead at most, so that no message takes less than nothing.
    """

    of_message: Mapping[tuple[int, int, str], tuple[float, float]]
    tail_s: tuple[float, ...]
    head_s: tuple[float, ...]
    ahead: tuple[float, ...]


def edges_of(programs: Programs) -> LayerEdges:
    """The edges of healthy programs, one of each pipeline rank."""
    known: dict[Block, tuple[float, float]] = {}
    ends: dict[tuple[int, int, str], list[float]] = {}
    ahead = [float("inf")] * len(programs.classes)
    of_class: list[tuple[float, float]] = []
    for r, program in enumerate(programs.classes):
        behind = _blocks_behind(program)
        edges = [_edges_s(op, known) for op in program.ops]
        layers = [
            one for one, op in zip(edges, program.ops, strict=True) if isinstance(op.work, RepeatedBlocks)
        ]
        of_class.append((max((h for h, _ in layers), default=0.0), max((t for _, t in layers), default=0.0)))
        for i, op in enumerate(program.ops):
            if not isinstance(op.work, Exchange):
                continue
            tail_s = max((edges[j][1] for j in op.after), default=0.0)
            head_s = max((edges[j][0] for j in behind.get(i, ())), default=0.0)
            for part in op.work.parts:
                key = (r, part.peer, part.tag) if part.send else (part.peer, r, part.tag)
                edge_s = tail_s if part.send else head_s
                ends.setdefault(key, [0.0, 0.0])[0 if part.send else 1] = edge_s
                if edge_s:
                    ahead[r] = min(ahead[r], SHARE * part.transfer.solo_s / edge_s)
    return LayerEdges(
        of_message={key: (tail_s, head_s) for key, (tail_s, head_s) in ends.items()},
        tail_s=tuple(tail for _, tail in of_class),
        head_s=tuple(head for head, _ in of_class),
        ahead=tuple(ahead),
    )


def _blocks_behind(program: Program) -> Mapping[int, list[int]]:
    """By exchange, the ops that wait for it by name."""
    found: dict[int, list[int]] = {}
    for i, op in enumerate(program.ops):
        for j in op.after:
            found.setdefault(j, []).append(i)
    return found


def _edges_s(op: Op, known: dict[Block, tuple[float, float]]) -> tuple[float, float]:
    """Seconds of kernels at the beginning and at the end of an op; all of it where nobody is awaited."""
    if isinstance(op.work, Compute):
        return op.work.seconds, op.work.seconds
    if not isinstance(op.work, RepeatedBlocks) or not op.work.row:
        return 0.0, 0.0
    return _leading_s(op.work.blocks, 0, known), _leading_s(op.work.blocks[::-1], 1, known)


def _leading_s(
    blocks: Sequence[tuple[Block, int]], end: int, known: dict[Block, tuple[float, float]]
) -> float:
    """Seconds of kernels of a row of blocks before the first collective, from its beginning or its end."""
    found = 0.0
    for block, count in blocks:
        if _awaits(block):
            if block not in known:
                known[block] = block_edges_s(block)
            return found + known[block][end]
        found += count * sum(op.work.seconds for op in block.ops if isinstance(op.work, Compute))
    return found


def block_edges_s(block: Block) -> tuple[float, float]:
    """Seconds of a block's kernels that may run before its first collective of the tensor-parallel group, and
    of those that may run after its last.
    """
    gathers = {i for i, op in enumerate(block.ops) if _gathers(op)}
    before = _before(block)
    since: list[bool] = []
    for earlier in before:
        since.append(any(j in gathers or since[j] for j in earlier))
    until = [False] * len(block.ops)
    for i in reversed(range(len(block.ops))):
        for j in before[i]:
            until[j] = until[j] or until[i] or i in gathers
    seconds = [op.work.seconds if isinstance(op.work, Compute) else 0.0 for op in block.ops]
    head_s = sum(s for s, gathered in zip(seconds, since, strict=True) if not gathered)
    return head_s, sum(s for s, gathered in zip(seconds, until, strict=True) if not gathered)


def _before(block: Block) -> list[list[int]]:
    """By op of a block, the ops that it waits for: those it names, and the one before it on its stream."""
    found: list[list[int]] = [list(op.after) for op in block.ops]
    for rows in block.streams.values():
        for row in rows:
            for earlier, later in pairwise(row):
                found[later].append(earlier)
    return found


def _awaits(block: Block) -> bool:
    return any(_gathers(op) for op in block.ops)


def _gathers(op: Op) -> bool:
    return isinstance(op.work, Collective) and op.work.communicator == TENSOR
