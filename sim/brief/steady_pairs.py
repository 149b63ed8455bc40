"""The steady state of ranks that run pairs of a forward and a backward, as those of DualPipe do.

Microbatches enter from both ends, or pass each rank on two ways. Once the pipeline is full, each rank runs a
pair for either way in turn, and nothing else until it drains. So all ranks are cut as far from the middle of
their pairs, and again a turn later (steady_turns.py says why that shows the whole step).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.program import RepeatedBlocks
from ..scenario.schedules import traits_of
from .steady_turns import period_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.record import Record
    from ..program.program import Op
    from ..scenario.models import Scenario
    from .period import Period

PAIR = "forward, backward"
"""The name of ops that run a pair (lowering/pipeline.py)."""

TURN = 2
"""Pairs in a turn."""

COMPARED = 5 * TURN
"""Pairs before both cuts that are compared: the next rank awaits a pair two turns later at most."""

UNSETTLED = 2
"""Pairs until most full pipelines have become steady; three more for two ranks up to where they turn."""


def turn_of_pairs(scenario: Scenario) -> int:
    """The microbatches of a turn; 0 where full pipelines do anything else than overlapping forwards with
    backwards, with exchanges to overlap (overlapped.py)."""
    exchanges = scenario.model.moe is not None and scenario.parallelism.ep > 1
    return traits_of(scenario.schedule).paired if exchanges else 0


def enough_for_pairs(scenario: Scenario) -> int:
    """The fewest microbatches that show a steady state: the outermost ranks, which run the fewest pairs,
    must have the compared turns after the step has become steady and before it drains."""
    turn, pp = turn_of_pairs(scenario), scenario.parallelism.pp
    one_way = pp // turn
    turns = -(-(UNSETTLED + 3 * one_way // 2 + COMPARED + TURN + one_way) // TURN)
    return turn * (2 * one_way + turns)


def period_of_pairs(record: Record, one_way: int, within: float) -> Period | None:
    """The period of a step whose last turns before both cuts are alike, up to a share ``within`` of it; else
    None. From an end of the pipeline to where microbatches turn are ``one_way`` ranks.

    The cuts are as late as can be: behind them the outermost ranks have a pair for each of those ranks."""
    begins = [_pairs(program.ops) for program in record.programs.classes]
    fewest = min(map(len, begins), default=0)
    behind = (fewest // 2 - one_way - TURN) // TURN * TURN
    cuts = [len(pairs) // 2 // TURN * TURN + behind for pairs in begins]
    return period_between(record, begins, cuts, TURN, COMPARED, within)


def _pairs(ops: Sequence[Op]) -> list[int]:
    """The first op of each pair that runs as one."""
    found: list[int] = []
    last = ""
    for i, op in enumerate(ops):
        if op.name == PAIR and op.action != last and isinstance(op.work, RepeatedBlocks):
            found.append(i)
            last = op.action
    return found
