"""The validator of action tables under random breakage: an oracle that counts and runs them agrees."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from asap import Stuck, Times, asap
from broken_tables import Drawn, broken_tables, valid_tables
from hypothesis import given

from stepsim.schedules.orders.action import Action, ActionKind, Order, Overlap, actions_of, parts
from stepsim.schedules.orders.validate import Reason, find_problems, validate


def wrong_work(drawn: Drawn) -> set[Reason]:
    """What is wrong with the work whatever its order, by counting."""
    orders, shape = drawn.orders, drawn.shape
    found = set()
    done: Counter[tuple[int, int, str]] = Counter()
    for rank, order in enumerate(orders):
        for action in actions_of(order):
            if action.stage >= shape.stages or action.microbatch >= shape.microbatches:
                found.add(Reason.OUTSIDE)
                continue
            if drawn.rank_of(action.stage, action.microbatch, shape) != rank:
                found.add(Reason.WRONG_RANK)
            halves = "IW" if action.kind is ActionKind.BACKWARD else action.kind.value
            done.update((action.stage, action.microbatch, half) for half in halves)
        for step in order:
            if isinstance(step, Overlap) and [one.kind.value for one in parts(step)] != ["F", "B"]:
                found.add(Reason.PAIR)
    everything = {
        (s, k, part) for s in range(shape.stages) for k in range(shape.microbatches) for part in "FIW"
    }
    if any(done[work] == 0 for work in everything):
        found.add(Reason.MISSING)
    if any(count > 1 for count in done.values()):
        found.add(Reason.REPEATED)
    return found


def inverted(order: Order) -> set[int]:
    """Positions of a backward before its forward, of W before I, of a chunk before one that feeds it."""
    at = {
        (action.stage, "F" if action.kind is ActionKind.FORWARD else "I", action.microbatch): i
        for i, step in enumerate(order)
        for action in parts(step)
        if action.kind is not ActionKind.WEIGHT_GRAD
    }
    return {
        i
        for i, step in enumerate(order)
        for action in parts(step)
        for need in needs(action)
        if at.get(need, -1) >= i
    }


def needs(action: Action) -> list[tuple[int, str, int]]:
    s, k = action.stage, action.microbatch
    if action.kind is ActionKind.FORWARD:
        return [(s - 1, "F", k)]
    if action.kind is ActionKind.WEIGHT_GRAD:
        return [(s, "I", k)]
    return [(s, "F", k), (s + 1, "I", k)]


@given(broken_tables())
def test_a_changed_table_is_valid_or_refused_for_the_right_reason(drawn: Drawn) -> None:
    orders, shape = drawn.orders, drawn.shape
    problems = find_problems(orders, shape, drawn.rank_of, drawn.in_flight)
    reasons = {problem.reason for problem in problems}
    for problem in problems:  # names what is there
        if problem.position is not None:
            assert orders[problem.rank][problem.position] == problem.action
            assert f"rank {problem.rank}, action {problem.position} ({problem.action})" in str(problem)
    if wrong := wrong_work(drawn):
        assert reasons == wrong
        return
    assert (Reason.IN_FLIGHT in reasons) == overfull(drawn)
    reasons.discard(Reason.IN_FLIGHT)
    upside_down = {(rank, i) for rank, order in enumerate(orders) for i in inverted(order)}
    found = {(one.rank, one.position) for one in problems if one.reason is Reason.ORDER}
    assert found == upside_down
    try:
        asap(orders, shape.stages, Times(forward=1, input_grad=1, weight_grad=1))
    except Stuck:
        assert reasons
        assert reasons <= {Reason.ORDER, Reason.DEADLOCK}
        if shape.ranks == 1:
            assert reasons == {Reason.ORDER}
    else:
        assert reasons == set()


def overfull(drawn: Drawn) -> bool:
    held = {ActionKind.FORWARD: 1, ActionKind.INPUT_GRAD: 0}
    return drawn.in_flight is not None and any(
        held_now > drawn.in_flight(rank, drawn.shape)
        for rank, order in enumerate(drawn.orders)
        for held_now in accumulate(held.get(action.kind, -1) for action in actions_of(order))
    )


@given(valid_tables())
def test_what_is_valid_raises_nothing(drawn: Drawn) -> None:
    validate(drawn.orders, drawn.shape, drawn.rank_of, drawn.in_flight)
