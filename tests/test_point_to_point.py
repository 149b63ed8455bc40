"""Messages of the schedules: Megatron's calls one by one, and what must hold for every schedule and rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import message_laws as laws
import pytest
from asap import Times, asap
from hypothesis import assume, given
from hypothesis import strategies as st
from rendezvous import rendezvous
from schedule_shapes import golden_shape, goldens, parse, schedules_and_shapes
from torch_notation import text

from stepsim.schedules.orders.action import Action, ActionKind, Orders
from stepsim.schedules.orders.schedule import (
    Placement,
    Schedule,
    Shape,
    loop_placement,
    two_way_placement,
    v_placement,
)
from stepsim.schedules.p2p.point_to_point import (
    RULES,
    Instruction,
    MessageGroup,
    MessagePart,
    Recv,
    RunAction,
    Send,
    Wait,
    check_messages,
    point_to_point,
)
from stepsim.schedules.pipeline import get

Programs = Sequence[Sequence[Instruction]]

durations = st.integers(1, 40)


# Megatron's own calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "rule"), [("p2p_none", "blocking"), ("p2p_steady", "prefetch"), ("p2p_full", "prefetch-full")]
)
def test_megatron_calls(shared: Path, field: str, rule: str) -> None:
    """Every communicator call of every golden that logs them, in its place between the actions."""
    logged = 0
    for name, golden in goldens(shared / "data" / "goldens" / "megatron", "*.json"):
        if field not in golden:
            continue
        schedule = get("1f1b" if golden["v"] == 1 else "interleaved")
        shape = golden_shape(golden)
        programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, rule)
        assert [[megatron_call(one) for one in program] for program in programs] == golden[field], name
        logged += 1
    assert logged >= 14


def megatron_call(instruction: Instruction) -> str:
    """In the notation of the goldens."""
    match instruction:
        case RunAction(action):
            return str(action)
        case Wait(part):
            return f"wait[{megatron_part(part)}]"
        case MessageGroup(parts, blocking):
            return f"comm[{'+'.join(megatron_part(part) for part in parts)}]{'' if blocking else '*'}"


def megatron_part(part: MessagePart) -> str:
    forward = part.action.kind is ActionKind.FORWARD
    if isinstance(part, Send):
        return f"send_{'next' if forward else 'prev'} {part.action}"
    return f"recv_{'prev' if forward else 'next'}"


def test_torch_messages(shared: Path) -> None:
    """The asynchronous rule posts the messages that torch's lowering posts, for every schedule it lowers."""
    lowered = 0
    for name, golden in goldens(shared / "data" / "goldens" / "torch", "*.json"):
        if "comms" not in golden:
            continue
        ranks = golden["stage_to_rank"]
        shape = Shape(ranks=golden["p"], microbatches=golden["m"], chunks=golden["v"])
        programs = point_to_point(
            parse(golden["actions"]), shape, lambda stage, *_, ranks=ranks: ranks[stage], "async"
        )
        for program, comms in zip(programs, golden["comms"], strict=True):
            ours = sorted(text(part) for part in laws.posted_parts(program))
            assert ours == sorted(one for one in comms if "SEND" in one or "RECV" in one), name
        lowered += 1
    assert lowered >= 20


# Laws over every schedule and rule -----------------------------------------------------------------------


@st.composite
def programs_of_anything(draw: st.DrawFn) -> tuple[Schedule, Shape, Orders, str, Programs]:
    """A schedule under a rule that is defined for it."""
    schedule, shape = draw(schedules_and_shapes())
    rule = draw(st.sampled_from(RULES))
    orders = schedule.orders(shape)
    try:
        return schedule, shape, orders, rule, point_to_point(orders, shape, schedule.rank_of, rule)
    except ValueError as refusal:
        assert "use async" in str(refusal)  # noqa: PT017 - the rule is not defined for this order
        assume(False)
        raise


def refusal_of(asked: Callable[[Orders, Shape, Placement, str], object], *of: Any) -> str:
    """What a function says against orders; nothing where it takes them."""
    try:
        asked(*of)
    except ValueError as refusal:
        return str(refusal)
    return ""


@given(schedules_and_shapes(), st.sampled_from(RULES))
def test_orders_are_refused_alike_whether_messages_are_written_or_not(
    drawn: tuple[Schedule, Shape], rule: str
) -> None:
    schedule, shape = drawn
    of = schedule.orders(shape), shape, schedule.rank_of, rule
    assert refusal_of(check_messages, *of) == refusal_of(point_to_point, *of)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "torch"])
def test_whether_a_rule_knows_orders_is_told_without_writing_messages(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan asks that of every shape of a schedule: messages of DeepSeek-V3's took a second of it."""
    written: list[object] = []
    for kind in (MessageGroup, RunAction):
        monkeypatch.setattr(kind, "__init__", lambda self, *_, **__: written.append(self))
    for name, shape in [
        ("1f1b", Shape(ranks=4, microbatches=8)),
        ("interleaved", Shape(ranks=4, microbatches=8, chunks=2)),
        ("zb-h1", Shape(ranks=4, microbatches=8)),
        ("dualpipe", Shape(ranks=4, microbatches=8)),
    ]:
        refusal_of(check_messages, get(name).orders(shape), shape, get(name).rank_of, rule)
    assert written == []


Drawn = tuple[Schedule, Shape, Orders, str, Programs]


@given(programs_of_anything())
def test_actions_keep_their_order(drawn: Drawn) -> None:
    _, _, orders, _, programs = drawn
    laws.actions_keep_their_order(programs, orders)


@given(programs_of_anything())
def test_every_result_that_another_rank_needs_travels_once(drawn: Drawn) -> None:
    schedule, shape, orders, _, programs = drawn
    laws.every_needed_result_travels_once(programs, orders, shape, schedule.rank_of)


@given(programs_of_anything())
def test_both_ends_of_a_channel_post_in_the_same_order(drawn: Drawn) -> None:
    """NCCL pairs the messages between two ranks by their order alone, for each direction of the pipeline."""
    laws.both_ends_post_in_the_same_order(drawn[-1], directions_apart=True)


@given(programs_of_anything())
def test_inputs_are_there_before_use_and_results_before_they_are_sent(drawn: Drawn) -> None:
    schedule, shape, _, _, programs = drawn
    laws.inputs_are_there_before_use(programs, shape, schedule.rank_of)


# Timing --------------------------------------------------------------------------------------------------


@given(schedules_and_shapes(), durations, durations, durations, st.integers(0, 60))
def test_asynchronous_messages_block_nobody(
    drawn: tuple[Schedule, Shape], f: int, b: int, w: int, c: int
) -> None:
    """Every rank ends when the reference timing says so."""
    schedule, shape = drawn
    orders = schedule.orders(shape)
    times = Times(forward=f, input_grad=b, weight_grad=w, latency=c)
    programs = point_to_point(orders, shape, schedule.rank_of, "async")
    assert rendezvous(programs, times, eager=True) == asap(orders, shape.stages, times).clock


@given(programs_of_anything(), durations, durations, st.integers(0, 60))
def test_no_rule_makes_ranks_wait_for_each_other(drawn: Drawn, f: int, bf: int, c: int) -> None:
    """Every message finds its other end, and none is faster than an asynchronous one."""
    _, shape, orders, rule, programs = drawn
    if rule == "async":
        return
    times = Times(forward=f, input_grad=bf, weight_grad=0, latency=c)
    assert max(rendezvous(programs, times)) >= asap(orders, shape.stages, times).makespan


@given(st.integers(2, 8), st.integers(2, 16), st.integers(50, 90), st.integers(50, 90), st.integers(0, 1))
def test_blocking_1f1b_makespan(p: int, m: int, f: int, bf: int, c: int) -> None:
    """Pays 2m + 2p - 5 latencies (m + 1 with two ranks), for latencies small against the actions."""
    schedule, shape = get("1f1b"), Shape(ranks=p, microbatches=m)
    programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "blocking")
    messages = m + 1 if p == 2 else 2 * m + 2 * p - 5
    times = Times(forward=f, input_grad=bf, weight_grad=0, latency=c)
    assert max(rendezvous(programs, times)) == (m + p - 1) * (f + bf) + messages * c


@given(st.integers(2, 5), st.integers(1, 4), st.integers(2, 3))
def test_prefetching_is_not_slower_than_blocking(p: int, groups: int, v: int) -> None:
    schedule, shape = get("interleaved"), Shape(ranks=p, microbatches=groups * p, chunks=v)
    orders = schedule.orders(shape)
    times = Times(forward=10, input_grad=10, weight_grad=10, latency=3)
    blocking, prefetch, full = (
        max(rendezvous(point_to_point(orders, shape, schedule.rank_of, rule), times))
        for rule in ("blocking", "prefetch", "prefetch-full")
    )
    assert blocking >= prefetch >= full


# One chunk, and refusals -----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 9), st.sampled_from(["1f1b", "gpipe"]))
def test_one_chunk_is_never_prefetched(p: int, m: int, name: str) -> None:
    """Megatron turns overlap_p2p_comm off without interleaving."""
    schedule, shape = get(name), Shape(ranks=p, microbatches=m)
    orders = schedule.orders(shape)
    blocking, *others = (
        point_to_point(orders, shape, schedule.rank_of, rule)
        for rule in ("blocking", "prefetch", "prefetch-full")
    )
    assert others == [blocking, blocking]


@given(st.integers(2, 6), st.integers(1, 9))
def test_gpipe_fuses_no_calls(p: int, m: int) -> None:
    schedule, shape = get("gpipe"), Shape(ranks=p, microbatches=m)
    programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "blocking")
    assert all(len(exchange.parts) == 1 for program in programs for exchange in laws.exchanges(program))


def test_an_unknown_rule_is_refused() -> None:
    shape = Shape(ranks=2, microbatches=2)
    with pytest.raises(ValueError, match=r"'eager'; known: async, blocking, .*, torch, batched"):
        point_to_point(get("1f1b").orders(shape), shape, loop_placement, "eager")


def test_a_split_backward_is_refused_where_no_framework_defines_it() -> None:
    orders = parse([["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]])
    shape = Shape(ranks=2, microbatches=1)
    with pytest.raises(ValueError, match=r"action 1 of rank 0 .*0I0; .*async .*torch"):
        point_to_point(orders, shape, loop_placement, "blocking")
    assert (
        MessageGroup((Recv(Action(1, ActionKind.INPUT_GRAD, 0), 1),), blocking=False)
        in point_to_point(orders, shape, loop_placement, "async")[0]
    )


def test_fewer_microbatches_than_ranks_are_interleaved_by_torch_only() -> None:
    schedule, shape = get("interleaved"), Shape(ranks=4, microbatches=2, chunks=2, group=2)
    orders = schedule.orders(shape)
    with pytest.raises(ValueError, match=r"2 on 4; .*async .*torch"):
        point_to_point(orders, shape, schedule.rank_of, "blocking")


def test_a_small_last_group_is_refused_by_megatron_only() -> None:
    schedule, shape = get("interleaved"), Shape(ranks=4, microbatches=10, chunks=2, group=4)
    orders = schedule.orders(shape)
    with pytest.raises(ValueError, match=r"2 microbatches on 4 ranks; .*async"):
        point_to_point(orders, shape, schedule.rank_of, "prefetch")


def test_another_order_of_several_chunks_is_refused() -> None:
    shape = Shape(ranks=2, microbatches=2, chunks=2)
    forwards = [[f"{stage}F{k}" for stage in (rank, rank + 2) for k in range(2)] for rank in range(2)]
    backwards = [[f"{stage}B{k}" for stage in (rank + 2, rank) for k in (1, 0)] for rank in range(2)]
    orders = parse([up + down for up, down in zip(forwards, backwards, strict=True)])
    with pytest.raises(ValueError, match=r"interleaved only.*async .*torch"):
        point_to_point(orders, shape, loop_placement, "prefetch")


def test_orders_that_no_schedule_has_are_refused_with_advice() -> None:
    """Several chunks in a shape that interleaved itself refuses."""
    shape = Shape(ranks=2, microbatches=3, chunks=2)
    forwards = [[f"{stage}F{k}" for stage in (rank, 3 - rank) for k in range(3)] for rank in range(2)]
    backwards = [[f"{stage}B{k}" for stage in (3 - rank, rank) for k in range(3)] for rank in range(2)]
    orders = parse([up + down for up, down in zip(forwards, backwards, strict=True)])
    with pytest.raises(ValueError, match=r"async .*torch"):
        point_to_point(orders, shape, v_placement, "blocking")


@pytest.mark.parametrize(
    ("rank_of", "chunks", "advice"),
    [(two_way_placement, 1, ["async", "batched"]), (v_placement, 2, ["async", "torch", "batched"])],
)
def test_overlapped_pairs_are_refused_by_megatron_rules(
    rank_of: Placement, chunks: int, advice: list[str]
) -> None:
    shape = Shape(ranks=2, microbatches=4, chunks=chunks)
    pair = "(0F0;1B2)OVERLAP_F_B" if chunks == 1 else "(0F0;3B2)OVERLAP_F_B"
    orders = parse([[pair], ["(1F0;0B2)OVERLAP_F_B" if chunks == 1 else "(1F0;2B2)OVERLAP_F_B"]])
    with pytest.raises(ValueError, match=f"OVERLAP_F_B; .*{' .*'.join(advice)}$"):
        point_to_point(orders, shape, rank_of, "prefetch")
