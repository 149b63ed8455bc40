"""A forward overlapped with a backward (layers/pairs.py), with the gathers and reductions of both.

Each pair of layers waits for the parameters of both. While it runs, the parameters of the next pair are
gathered and the gradients of the pair before are reduced. Knows the rules that gather one unit ahead, those
of torch and of Megatron-FSDP; DeepSpeed, whose prefetch counts elements, overlaps no exchanges.

Source: Megatron-LM pull request 3797 (Megatron-FSDP under --overlap-moe-expert-parallel-comm, gradients or
parameters sharded: hooks of each layer's forward and backward inside the combined schedule).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...program.program import Block, Op
from .compose import Around
from .rows import CountedBlocks, Moves, Rows, counted
from .units import Unit


@dataclass(frozen=True, slots=True)
class Joint:
    """Blocks that need unit ``ahead`` for a forward, unit ``back`` for a backward, or both."""

    blocks: tuple[Block, ...]
    ahead: Unit | None
    back: Unit | None


def pair_row(
    rows: Rows, row: Sequence[Joint], ahead: Moves, back: Moves, live: frozenset[str]
) -> CountedBlocks:
    """The blocks of ``row`` with its gathers and reductions. Units in ``live`` are still gathered from the
    forward of this backward."""
    joints = _joined(row)
    fetches = _fetches(rows, joints, ahead, back, live)
    last = {joint.back.name: k for k, joint in enumerate(joints) if joint.back} if back.reduces else {}
    blocks: list[Block] = []
    pending: tuple[Op, ...] = ()
    delayed: tuple[Op, ...] = ()
    for k, joint in enumerate(joints):
        unit = joint.back
        ended = unit if unit and back.reduces and (unit.name == "layer" or last[unit.name] == k) else None
        around = Around(
            reductions=pending,
            delayed=delayed,
            first=() if k else _gathers(rows, fetches[0]),
            overlapping=_gathers(rows, fetches[k + 1]) if k + 1 < len(joints) else (),
            copies_out=sum(map(rows.traffic.copied_out, fetches[k])),
            copies_in=rows.traffic.copied_in(ended) if ended else (),
            early=True,
        )
        blocks.append(rows.composer.block(joint.blocks, around))
        delayed = rows.traffic.follow((*pending, *delayed))
        pending = rows.traffic.reduce(ended) if ended else ()
    return counted([*blocks, *rows.tail(pending, delayed)])


def _fetches(
    rows: Rows, joints: Sequence[Joint], ahead: Moves, back: Moves, live: frozenset[str]
) -> list[tuple[Unit, ...]]:
    """For each of ``joints``, the units to gather for it."""
    there: set[str] = set()
    left = set(live)
    found = []
    for joint in joints:
        forward = rows.fetch(joint.ahead, there) if joint.ahead and ahead.gathers else None
        backward = rows.fetch(joint.back, left) if joint.back and back.gathers else None
        found.append(tuple(unit for unit in (forward, backward) if unit))
    return found


def _gathers(rows: Rows, units: tuple[Unit, ...]) -> tuple[Op, ...]:
    return tuple(op for unit in units for op in rows.traffic.gather(unit))


def _joined(row: Sequence[Joint]) -> list[Joint]:
    """``row`` without blocks that need no parameters: these are joined to the entry before them, or at the
    start to the one after them."""
    found: list[Joint] = []
    waiting: tuple[Block, ...] = ()
    for joint in row:
        if joint.ahead or joint.back:
            found.append(Joint((*waiting, *joint.blocks), joint.ahead, joint.back))
            waiting = ()
        elif found:
            found[-1] = Joint((*found[-1].blocks, *joint.blocks), found[-1].ahead, found[-1].back)
        else:
            waiting = (*waiting, *joint.blocks)
    return found
