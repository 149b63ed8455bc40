"""Times of blocks and segments: each distinct block is replayed once, alone on its rank.

Besides its time on the device, a block has the time that it takes when the host starts issuing
it on an idle GPU, and the host time that it uses up. Segments add these up: with device times D,
host-bound times L and host times H, ``D = D1 + D2``, ``L = max(L1 + D2, H1 + L2)``, ``H = H1 + H2``,
since the device runs the second block after the first and the host issues it H1 later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..step.program import Block, Compute, Op, Program, Programs, Segment

if TYPE_CHECKING:
    from .record import Record


@dataclass(frozen=True, slots=True)
class OpTimes:
    """One op of a block: its index and times from the block's start."""

    index: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """``parts`` splits ``device_s`` by what the compute stream did: kernel kinds, or the axis awaited."""

    device_s: float
    host_bound_s: float
    host_s: float
    parts: Mapping[str, float]
    ops: tuple[OpTimes, ...]


@dataclass(frozen=True, slots=True)
class SegmentTiming:
    device_s: float
    host_bound_s: float
    host_s: float


@dataclass
class Timings:
    """Measured blocks and segments of one set of programs. ``replay(programs, host)`` runs them."""

    programs: Programs
    replay: Callable[[Programs, bool], Record]
    _blocks: dict[tuple[Block, int], BlockTiming] = field(default_factory=dict)
    _segments: dict[tuple[Segment, int], SegmentTiming] = field(default_factory=dict)

    def block(self, block: Block, r: int) -> BlockTiming:
        """Times of ``block`` on the ranks of class ``r``."""
        key = (block, id(self.programs.links[r]))
        if key not in self._blocks:
            self._blocks[key] = self._measure(block, r)
        return self._blocks[key]

    def segment(self, segment: Segment, r: int) -> SegmentTiming:
        """Times of ``segment`` on the ranks of class ``r``."""
        key = (segment, id(self.programs.links[r]))
        if key not in self._segments:
            total = SegmentTiming(0.0, 0.0, 0.0)
            for block, count in segment.blocks:
                timing = self.block(block, r)
                for _ in range(count):
                    total = _then(total, timing)
            self._segments[key] = total
        return self._segments[key]

    def _measure(self, block: Block, r: int) -> BlockTiming:
        alone = replace(
            self.programs,
            classes=(Program(ops=block.ops),),
            communicators={},
            links=(self.programs.links[r],),
        )
        device = self.replay(alone, False)
        times = [device.times(0, i) for i in range(len(block.ops))]
        return BlockTiming(
            device_s=device.makespan_s,
            host_bound_s=self.replay(alone, True).makespan_s,
            host_s=sum(op.host_s for op in block.ops),
            parts=_parts(block.ops, times, device.makespan_s),
            ops=tuple(OpTimes(i, start, end) for i, (start, _, end) in enumerate(times)),
        )


def _then(first: SegmentTiming, second: BlockTiming) -> SegmentTiming:
    return SegmentTiming(
        first.device_s + second.device_s,
        max(first.host_bound_s + second.device_s, first.host_s + second.host_bound_s),
        first.host_s + second.host_s,
    )


def _parts(ops: tuple[Op, ...], times: list[tuple[float, float, float]], end_s: float) -> dict[str, float]:
    """Seconds by kernel kind; where the compute stream stands still, by the axis that it awaits."""
    parts: dict[str, float] = {}
    free, axis = 0.0, "tp"
    for op, (start, _, end) in zip(ops, times, strict=True):
        if op.stream != "compute":
            axis = op.category
            continue
        assert isinstance(op.work, Compute)
        if start > free:
            parts[axis] = parts.get(axis, 0.0) + start - free
        parts[op.work.kind] = parts.get(op.work.kind, 0.0) + end - start
        free = end
    if end_s > free:
        parts[axis] = parts.get(axis, 0.0) + end_s - free
    return parts
