"""A long step from a few short ones: the steady state of a pipeline repeats itself.

Warm-up, cool-down and the end of a step do not depend on how many microbatches there are, once there are
enough of them to fill the pipeline; in between each group of them takes the same time. So a step of very
many is one of a few, and the difference of two such as often as it takes. How many are enough is not known
beforehand: steps of one group, two groups and so on are replayed until two differences in a row are the same,
and the whole step where that would cost more. Validation does this, where thousands of runs are predicted;
tests hold it to 1e-9 of the whole replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ..scenario.models import Scenario

MOST_ACTIONS = 300
"""Actions of all pipeline ranks that are replayed one and all."""

FEWEST_GROUPS = 8
"""Groups of ``pp`` microbatches from which on the short steps (one, two and three groups) are worth it."""

SAME = 1e-11
"""Two differences that differ by less of the step are one."""

SCHEDULES = ("none", "1f1b", "interleaved")
"""Those whose steady state repeats with every group of microbatches, and whose memory does not grow then."""

Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(Generic[Run]):
    """The ``longer`` of two steps stands for one that has ``more`` groups of microbatches.

    Where the step was replayed whole, it is both of them.
    """

    shorter: Run
    longer: Run
    more: int

    def of(self, shorter: float, longer: float) -> float:
        """Of the whole step, what the two have of something that grows as time does."""
        return longer + self.more * (longer - shorter)


def extended(
    scenario: Scenario, run: Callable[[Scenario], Run], seconds: Callable[[Run], float]
) -> Extended[Run]:
    """``run`` of ``scenario``, by short steps where their ``seconds`` have become steady."""
    groups, runs = steady_groups(scenario), list[Run]()
    for number in range(1, groups):
        if len(runs) >= 3 and (number * (number + 1)) // 2 > groups:
            break
        runs.append(run(of_length(scenario, number * scenario.parallelism.pp)))
        if len(runs) >= 3:
            first, second, third = (seconds(one) for one in runs[-3:])
            if abs((third - second) - (second - first)) * (groups - number) <= SAME * groups * third:
                return Extended(shorter=runs[-2], longer=runs[-1], more=groups - number)
    whole = run(scenario)
    return Extended(shorter=whole, longer=whole, more=0)


def steady_groups(scenario: Scenario) -> int:
    """Groups of ``pp`` microbatches in a step that may be shortened; 0 where it is to be replayed whole."""
    pp, vpp = scenario.parallelism.pp, scenario.parallelism.vpp
    groups, rest = divmod(scenario.num_microbatches, pp)
    if 2 * scenario.num_microbatches * pp * vpp <= MOST_ACTIONS or rest or groups < FEWEST_GROUPS:
        return 0
    if scenario.schedule not in SCHEDULES or scenario.schedule_options.group is not None:
        return 0
    return groups


def of_length(scenario: Scenario, microbatches: int) -> Scenario:
    """The same step with fewer microbatches."""
    training, dp = scenario.training, scenario.parallelism.dp
    batch = microbatches * training.micro_batch * dp
    return scenario.model_copy(update={"training": training.model_copy(update={"global_batch": batch})})
