"""What waiting is called: by when each stage has done its part, whoever comes last among equals."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import pytest
from hand_made_programs import kernel, programs

from stepsim.sim.engine.accounting import RankTime, rank_time
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Change, Collective, Op

SECOND = Transfer(0.0, 100.0, math.inf, (("nvlink.out", 1.0),))
"""A collective that takes a second."""

Ranks = list[tuple[int, float]]
"""(pipeline stage, seconds of work before its collective); the first one is looked at."""


def every_order(ranks: Ranks, *, then: bool) -> list[RankTime]:
    """The first rank's time, whichever place it has among the classes; all join one collective, or (not
    ``then``) each has one of its own.
    """
    found = []
    for order in permutations(range(len(ranks))):
        stages = [ranks[k][0] for k in order]
        name = [f"own {k}" for k in order] if not then else ["world"] * len(ranks)
        classes = [
            [kernel(ranks[k][1]), Op("reduce", "dp", "dp", Collective("all_reduce", own, SECOND), (0,))]
            for k, own in zip(order, name, strict=True)
        ]
        if then:
            classes = [[*ops, kernel(1.0, after=(1,))] for ops in classes]
        joined = {"world": tuple(range(len(ranks)))} if then else {}
        record = replay(programs(*classes, communicators=joined))
        found.append(rank_time(record, order.index(0), stages))
    return found


@pytest.mark.parametrize(
    ("others", "peers_s", "bubble_s"),
    [
        ([(0, 3.0), (1, 4.0)], 2.0, 1.0),
        ([(0, 4.0), (1, 3.0)], 3.0, 0.0),
        ([(0, 4.0), (1, 4.0)], 3.0, 0.0),
        ([(1, 4.0), (2, 4.0)], 0.0, 3.0),
        ([(0, 4.0), (0, 4.0)], 3.0, 0.0),
    ],
)
def test_a_collective_waits_for_its_own_stage_and_then_for_others(
    others: Ranks, peers_s: float, bubble_s: float
) -> None:
    for time in every_order([(0, 1.0), *others], then=True):
        assert time.late.get("dp peers", 0.0) == pytest.approx(peers_s)
        assert time.bubble_s == pytest.approx(bubble_s)
        assert time.exposed == pytest.approx({"dp": 1.0})


@pytest.mark.parametrize(
    ("others", "end_s", "bubble_s"),
    [
        ([(0, 1.0), (0, 1.0)], 0.0, 0.0),
        ([(0, 2.0), (1, 4.0)], 1.0, 2.0),
        ([(0, 4.0), (1, 2.0)], 3.0, 0.0),
        ([(0, 4.0), (1, 4.0)], 3.0, 0.0),
        ([(1, 4.0), (2, 4.0)], 0.0, 3.0),
    ],
)
def test_the_end_of_a_step_is_its_own_communication_then_its_stage_then_others(
    others: Ranks, end_s: float, bubble_s: float
) -> None:
    for time in every_order([(0, 1.0), *others], then=False):
        assert time.exposed == pytest.approx({"dp": 1.0})
        assert time.late.get("step end", 0.0) == pytest.approx(end_s)
        assert time.bubble_s == pytest.approx(bubble_s)


@pytest.mark.parametrize(("at_s", "ends"), [(0.3, True), (0.29, False)])
def test_what_ends_as_a_rank_stops_has_ended(at_s: float, ends: bool) -> None:
    """Sums of times differ by a little: 0.1 + 0.2 is more than 0.3."""
    whole = programs([kernel(0.1), kernel(0.2)])
    assert replay(whole).makespan_s > 0.3
    stopping = Change(at_s=at_s, slow=(math.inf,), links=whole.links, capacity={})
    record = replay(replace(whole, changes=(stopping,)))
    assert (record.end[0][1] > 0) is ends
    assert math.isfinite(record.makespan_s) is ends
