"""The replay of a step with faults, or on GPUs that differ: in full or between bounds, without each fault,
and draw by draw.

Knows lowered steps and what is wrong in them; reads no figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .bounded.bounds import TOLERANCE, bounded
from .bounded.conditions import differing
from .children import in_children
from .degradation.of_scenario import degradation_in

if TYPE_CHECKING:
    from .engine.record import Record
    from .fold.fold import Folded
    from .fold.ranks import Degradation
    from .lowering.lower import Lowered
    from .result.step_bounds import StepBounds
    from .scenario.faults.faults import Event
    from .step_run import StepRun


MANY_EVENTS = 2_000
"""Events of a replay from which on a forked child for another replay costs less than that replay."""


MOST_SLOWEST = 4
"""Of GPUs that differ, the slowest ones for which it is said what a GPU of full speed in their place would
gain."""


@dataclass(frozen=True, kw_only=True)
class DegradedReplay:
    """A replay with something wrong.

    ``bounds`` are those of the step where not all ranks were replayed. ``without_s`` are the seconds of the
    step without each fault, where such steps were replayed. ``gains_s`` says how many seconds mending each of
    ``parts`` gains (None: not known); the parts are the faults in their order, or the slowest GPUs.
    """

    folded: Folded
    record: Record
    bounds: StepBounds | None = None
    without_s: tuple[float, ...] = ()
    gains_s: tuple[float | None, ...] = ()
    parts: tuple[Mapping[int, float], ...] = ()


def degraded_replay(
    run: StepRun,
    lowered: Lowered,
    events: tuple[Event, ...],
    healthy: Record,
    draw: int = 0,
    *,
    by_speed: bool = False,
) -> DegradedReplay:
    """The step with ``events``, on the cluster as ``draw`` has it.

    Few replicas are replayed where many ranks differ and the step has bounds, else all ranks. Only the first
    draw is also replayed without each fault. With ``by_speed`` ranks are placed by the speed of their GPUs.
    """
    degradation = degradation_in(lowered, events, draw, by_speed=by_speed)
    classes = 0 if run.options.exact else differing(lowered, degradation)
    if classes:
        first = not (draw or by_speed)
        found = _between_bounds(run, lowered, events, degradation, healthy, classes, with_gains=first)
        if found is not None:
            return found
    left_out = 0 if draw else run.options.leaves_out(len(events))
    varies = lowered.plan.scenario.cluster.variation is not None

    def without(i: int) -> float:
        others = events[:i] + events[i + 1 :]
        if not others and not varies:
            return healthy.step_s
        return run.step_s(lowered, degradation_in(lowered, others))

    tasks = [partial(without, i) for i in range(left_out)]
    with in_children(tasks, worth_it=left_out > 1 and healthy.events >= MANY_EVENTS) as numbers:
        what = " with faults" if events else ""
        ready, record = run.step(lowered, degradation, replays=1 + left_out, what=what)
        without_s = numbers()
        run.lap("replay_s")
    gains_s = tuple(max(0.0, record.step_s - one) for one in without_s if math.isfinite(record.step_s))
    return DegradedReplay(folded=ready, record=record, without_s=without_s, gains_s=gains_s)


def _between_bounds(
    run: StepRun,
    lowered: Lowered,
    events: tuple[Event, ...],
    degradation: Degradation,
    healthy: Record,
    classes: int,
    *,
    with_gains: bool,
) -> DegradedReplay | None:
    """The step between bounds, ``with_gains`` of what may be mended or without; None where a replay of all
    ranks is better."""
    tolerance = TOLERANCE if run.options.tolerance is None else run.options.tolerance
    parts = _parts(lowered, events, degradation) if with_gains else []
    found = bounded(
        lowered, degradation, healthy, classes=classes, tolerance=tolerance, parts=parts, say=run.say
    )
    run.lap("replay_s")
    if found is None:
        return None
    step_s = found.record.step_s
    gains_s = tuple(None if share is None else share * step_s for share in found.gains)
    return DegradedReplay(
        folded=found.folded, record=found.record, bounds=found.bounds, gains_s=gains_s, parts=tuple(parts)
    )


def _parts(
    lowered: Lowered, events: tuple[Event, ...], degradation: Degradation
) -> list[Mapping[int, float]]:
    """What may be mended, by the factors of the ranks concerned: each fault, or each of the slowest GPUs."""
    if events:
        return [degradation_in(lowered, (event,), None).slow for event in events]
    slowest = sorted(degradation.slow.items(), key=lambda one: (-one[1], one[0]))[:MOST_SLOWEST]
    return [{rank: factor} for rank, factor in slowest if factor > 1]
