"""A long step from a short one: the steady state of a pipeline repeats itself.

Warm-up, cool-down and the end of a step do not depend on the number of microbatches, once these are enough to
fill the pipeline. In between each group of microbatches takes the same time. So a step of very many
microbatches is a step of a few, plus the time of a group for each of the others. How many are enough is not
known beforehand: longer and longer steps are replayed until two groups in the middle of one are alike
(period.py), or the whole step where that would cost more. Validation and planning use this, since they
predict thousands of steps; tests hold it to 1e-9 of the whole replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ..scenario.schedules import traits_of
from .period import Period, period_of
from .steady_pairs import enough_for_pairs, period_of_pairs, turn_of_pairs
from .steady_turns import fewest_microbatches, microbatches_until_hosts_bind, period_of_turns, turns_of

if TYPE_CHECKING:
    from ..engine.record import Record
    from ..scenario.models import Scenario
    from .steady_turns import Turns

MOST_ACTIONS = 300
"""Actions of all pipeline ranks together up to which a step is always replayed whole."""

WORTH_IT = 2
"""A step is shortened to half of it at most: if the short one is not steady yet, its replay comes on top."""

WORTH_TRYING = 1.2
"""The same factor where turns are compared (steady_turns.py): such steps are nearly always steady."""

MUCH_LONGER = 4
"""Where nothing says why a step is not steady, the next attempt is so many times as long, if the whole step
is longer again by this factor."""

FEWEST_ACTIONS = 40
"""Actions of all pipeline ranks together that are worth leaving out."""

SAME = 1e-11
"""Share of the step below which two times are the same."""

Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(Generic[Run]):
    """A step that stands for a longer one with ``more`` groups of microbatches, of which each takes a
    ``period``. ``period`` is None where the step was replayed whole."""

    run: Run
    period: Period | None = None
    more: int = 0


def extended(
    scenario: Scenario, run: Callable[[Scenario], Run], record: Callable[[Run], Record]
) -> Extended[Run]:
    """``run`` of ``scenario``, by a short step where its ``record`` has become steady."""
    if turn_of_pairs(scenario):
        return _by_pairs(scenario, run, record)
    groups, pp = steady_groups(scenario), scenario.parallelism.pp
    filling = traits_of(scenario.schedule).filling
    number = 2 + 2 * filling
    while number * WORTH_IT <= groups:
        short = run(of_length(scenario, number * pp))
        within = SAME * number / (groups - number)
        period = period_of(record(short), pp, number - filling - 2, within)
        if period is not None:
            return Extended(run=short, period=period, more=groups - number)
        number *= 2
    return Extended(run=run(scenario))


def _by_pairs(
    scenario: Scenario, run: Callable[[Scenario], Run], record: Callable[[Run], Record]
) -> Extended[Run]:
    """Shorten a step whose full pipelines run pairs (steady_pairs.py). A step that is not steady, because
    hosts may still be ahead of their GPUs, is followed by one twice as long."""
    few, all_, turn = enough_for_pairs(scenario), scenario.num_microbatches, turn_of_pairs(scenario)
    worth_it = WORTH_TRYING
    while few * worth_it <= all_:
        short = run(of_length(scenario, few))
        period = period_of_pairs(record(short), scenario.parallelism.pp // turn, SAME * few / (all_ - few))
        if period is not None:
            return Extended(run=short, period=period, more=(all_ - few) // turn)
        few, worth_it = 2 * few, WORTH_IT
    return Extended(run=run(scenario))


def shortened(
    scenario: Scenario,
    run: Callable[[Scenario], Run],
    record: Callable[[Run], Record],
    periods_until_paced: Callable[[Turns, int], int] = lambda turns, most: 0,
) -> Extended[Run]:
    """As ``extended``, by the shortest step of which a few turns of each rank show that it is steady.

    Its time and its path are those of the long step; what it holds in memory is not. ``periods_until_paced``
    tells roughly how many periods pass, ``most`` at the most, before one is steady (pace.py).
    """
    turns, all_ = turns_of(scenario), scenario.num_microbatches
    few = fewest_microbatches(scenario, turns) if turns else all_
    actions = 2 * (all_ - few) * scenario.parallelism.pp * scenario.parallelism.vpp
    if turns is None or few * WORTH_TRYING > all_ or actions < FEWEST_ACTIONS:
        return extended(scenario, run, record)
    foretold = periods_until_paced(turns, (all_ - few) // turns.microbatches)
    few += turns.microbatches * foretold
    first = few
    while few * WORTH_TRYING <= all_:
        short = run(of_length(scenario, few))
        period = period_of_turns(record(short), turns, SAME * few / (all_ - few))
        if period is not None:
            return Extended(run=short, period=period, more=(all_ - few) // turns.microbatches)
        few = _next_length(few, all_, record(short), turns, second=few == first, foretold=foretold > 0)
    return Extended(run=run(scenario))


def _next_length(few: int, all_: int, short: Record, turns: Turns, *, second: bool, foretold: bool) -> int:
    """Microbatches of the next step to try after one of ``few`` was not steady; all of them where none is
    shorter.

    Hosts that fall back so little that this step never sees them bind may do so only while the pipeline
    fills. So the ``second`` attempt is then one period longer. It is, too, where hosts were ``foretold`` to
    set the pace by now: messages and shared links, which the forecast does not know, decide within which
    period ranks with faster hosts have used up what they were ahead.
    """
    longer = few + turns.microbatches
    worth_it = second and longer * WORTH_IT <= all_
    if more := microbatches_until_hosts_bind(short, turns):
        return longer if worth_it and few + more > all_ else few + more
    if worth_it and foretold:
        return longer
    return few * MUCH_LONGER if few * MUCH_LONGER**2 <= all_ else all_


def steady_groups(scenario: Scenario) -> int:
    """Groups of ``pp`` microbatches in a step that may be shortened; 0 where it is to be replayed whole."""
    pp, vpp = scenario.parallelism.pp, scenario.parallelism.vpp
    groups, rest = divmod(scenario.num_microbatches, pp)
    if 2 * scenario.num_microbatches * pp * vpp <= MOST_ACTIONS or rest:
        return 0
    if not traits_of(scenario.schedule).filling or scenario.schedule_options.group is not None:
        return 0
    return groups


def of_length(scenario: Scenario, microbatches: int) -> Scenario:
    """The scenario with another number of microbatches a step, and else unchanged."""
    training, dp = scenario.training, scenario.parallelism.dp
    batch = microbatches * training.micro_batch * dp
    return scenario.model_copy(update={"training": training.model_copy(update={"global_batch": batch})})
