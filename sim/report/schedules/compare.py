"""All registered schedules side by side, on the same model: what each makes of the same work per rank.

Times are those of a whole stage, one rank's share of the model: a schedule with v chunks per rank runs
chunks of a v-th of them, so every rank computes as long under every schedule. Exact: all times are
multiplied by the least common multiple of the chunk counts. Knows no model and no seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ....schedules.orders.schedule import ActivationUnits, Costs, Placement, Schedule, Shape
from .timed import TimedSchedule, timed


@dataclass(frozen=True, kw_only=True)
class ComparisonShape:
    """What all schedules are asked for: ``costs`` of a whole stage, ``limit`` in activations of one.

    ``chunks`` and ``group`` go to the schedules that leave the choice, ``limit`` to those that search.
    """

    ranks: int
    microbatches: int
    chunks: int = 2
    group: int | None = None
    costs: Costs = field(default_factory=Costs)
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedSchedule:
    """One schedule: ``timed`` in ``scale``-ths of the unit of the costs, or the reason it was ``refused``."""

    name: str
    title: str
    chunks: int
    scale: int
    timed: TimedSchedule | None = None
    refused: str | None = None

    @property
    def done(self) -> TimedSchedule:
        assert self.timed is not None
        return self.timed

    @property
    def makespan(self) -> float:
        """Makespan in the unit of the costs."""
        return self.done.makespan / self.scale

    @property
    def max_span(self) -> float:
        return self.done.max_span / self.scale

    @property
    def peak_activations(self) -> float:
        """Activations that the fullest rank holds, in those of a whole stage."""
        return max(self.done.peaks) / self.chunks

    @property
    def messages(self) -> float:
        """Messages between all ranks of the pipeline, per microbatch, forward and backward."""
        return messages_per_microbatch(self.done.rank_of, self.done.shape)

    @property
    def p2p_volume(self) -> float:
        """Bytes of messages over those of 1F1B on as many ranks; all messages have one size, so that they are
        counted. 1 on one rank, where 1F1B sends none."""
        plain = 2 * (self.done.shape.ranks - 1)
        return self.messages / plain if plain else 1.0

    @property
    def weights(self) -> float:
        """The most weights that a rank keeps, over one stage's: copies of stages, versions of each."""
        return weights_kept(self.done)


def entries(schedules: Sequence[Schedule], asked: ComparisonShape) -> tuple[ComparedSchedule, ...]:
    """Fastest first (makespan, then span, then name); refused ones at the end, by name."""
    found = [_entry(schedule, asked, scale) for scale in [_scale(schedules, asked)] for schedule in schedules]
    done = sorted((e for e in found if e.timed), key=lambda e: (e.makespan, e.max_span, e.name))
    return (*done, *sorted((e for e in found if not e.timed), key=lambda e: e.name))


def takes(schedule: Schedule, **options: int | ActivationUnits | None) -> bool:
    """Whether the schedule takes an option at all, judged by a shape that suits every schedule."""
    try:
        schedule.check(replace(Shape(ranks=4, microbatches=16, chunks=schedule.chunks), **options))  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def chunks_of(schedule: Schedule, wanted: int) -> int:
    """``wanted`` chunks per rank where the schedule leaves the choice, else its own."""
    return wanted if takes(schedule, chunks=wanted) else schedule.chunks


def messages_per_microbatch(rank_of: Placement, shape: Shape) -> float:
    """Mean over the microbatches: an activation down and a gradient up wherever the rank changes."""
    ways = [[rank_of(s, k, shape) for s in range(shape.stages)] for k in range(shape.microbatches)]
    changes = sum(here != there for way in ways for here, there in pairwise(way))
    return 2 * changes / len(ways)


def weights_kept(schedule: TimedSchedule) -> float:
    """Distinct stages of the fullest rank, times the versions that it keeps, over the chunks of a rank."""
    shape = schedule.shape
    held: list[set[int]] = [set() for _ in range(shape.ranks)]
    for k in range(shape.microbatches):
        for stage in range(shape.stages):
            held[schedule.rank_of(stage, k, shape)].add(stage)
    versions = schedule.weight_versions or (lambda *_: 1)
    return max(len(stages) * versions(rank, shape) for rank, stages in enumerate(held)) / shape.chunks


def _scale(schedules: Sequence[Schedule], asked: ComparisonShape) -> int:
    return math.lcm(*(chunks_of(schedule, asked.chunks) for schedule in schedules))


def _entry(schedule: Schedule, asked: ComparisonShape, scale: int) -> ComparedSchedule:
    chunks = chunks_of(schedule, asked.chunks)
    entry = ComparedSchedule(name=schedule.name, title=schedule.title, chunks=chunks, scale=scale)
    try:
        return replace(entry, timed=timed(schedule, _shape(schedule, asked, chunks, scale)))
    except ValueError as reason:
        return replace(entry, refused=str(reason))


def _shape(schedule: Schedule, asked: ComparisonShape, chunks: int, scale: int) -> Shape:
    whole, part = asked.costs, scale // chunks
    costs = Costs(
        forward=whole.forward * part,
        input_grad=whole.input_grad * part,
        weight_grad=whole.weight_grad * part,
        latency=whole.latency * scale,
    )
    options = dict(_options(schedule, asked, chunks))
    return replace(
        Shape(ranks=asked.ranks, microbatches=asked.microbatches, chunks=chunks, costs=costs),
        **options,  # type: ignore[arg-type]
    )


def _options(
    schedule: Schedule, asked: ComparisonShape, chunks: int
) -> Iterator[tuple[str, int | ActivationUnits]]:
    """The options that the schedule takes."""
    if asked.group is not None and takes(schedule, chunks=chunks, group=4):
        yield "group", asked.group
    if asked.limit is not None and takes(schedule, chunks=chunks, memory=ActivationUnits(limit=16 * chunks)):
        yield "memory", ActivationUnits(limit=asked.limit * chunks)
