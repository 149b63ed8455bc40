"""A long step from two short ones: the steady state of a pipeline repeats itself.

Warm-up, cool-down and the end of a step do not depend on how many microbatches there are, once there are
enough of them to fill the pipeline; in between each group of them takes the same time. So a step of very
many is one of a few, and the difference of two such as often as it takes. Validation does this, where
thousands of runs are predicted: tests hold it to 1e-9 of the whole replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..scenario.models import Scenario

MOST_ACTIONS = 2_000
"""Actions of all pipeline ranks that are replayed one and all."""

FILLS = 2
"""Groups of ``pp`` microbatches of the shorter step; the longer has one more."""

SCHEDULES = ("none", "1f1b", "interleaved")
"""Those whose steady state repeats with every group of microbatches, and whose memory does not grow then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Two short steps in place of a long one, which has ``more`` groups of microbatches than the longer."""

    shorter: Scenario
    longer: Scenario
    more: int

    def seconds(self, shorter_s: float, longer_s: float) -> float:
        """Of the whole step, from those of the two."""
        return longer_s + self.more * (longer_s - shorter_s)


def steady(scenario: Scenario) -> Steady | None:
    """How to shorten a step; None where it is to be replayed whole."""
    pp, vpp = scenario.parallelism.pp, scenario.parallelism.vpp
    groups, rest = divmod(scenario.num_microbatches, pp)
    if 2 * scenario.num_microbatches * pp * vpp <= MOST_ACTIONS or rest or groups <= FILLS + 1:
        return None
    if scenario.schedule not in SCHEDULES or scenario.schedule_options.group is not None:
        return None
    return Steady(
        shorter=_of_length(scenario, pp * FILLS),
        longer=_of_length(scenario, pp * (FILLS + 1)),
        more=groups - FILLS - 1,
    )


def _of_length(scenario: Scenario, microbatches: int) -> Scenario:
    """The same step with fewer microbatches."""
    training, dp = scenario.training, scenario.parallelism.dp
    batch = microbatches * training.micro_batch * dp
    return scenario.model_copy(update={"training": training.model_copy(update={"global_batch": batch})})
