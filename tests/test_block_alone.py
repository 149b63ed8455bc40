"""A block that a rank runs by itself takes what its replay takes, op by op."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, lowered

from stepsim.sim.engine.block_alone import NOTHING, Course, FlowsBeside, run_alone, state_of
from stepsim.sim.engine.blocks import BlockRun, RepeatedRun, done, go_on
from stepsim.sim.engine.own_rates import OwnRates
from stepsim.sim.engine.rank_state import RankState
from stepsim.sim.engine.replay import replay
from stepsim.sim.engine.scope import Scope, block_scope
from stepsim.sim.network.sharing import Demand
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Block, Collective, Compute, Op, Program, Programs, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario

LINKS = {"nvlink.out": 100.0, "nvlink.in": 100.0, "nic.out": 10.0, "nic.in": 10.0}


def distinct(run: Scenario) -> list[tuple[Block, Programs]]:
    """The blocks of a step, each with programs that run it and nothing else."""
    programs = lowered(run).programs
    works = (op.work for program in programs.classes for op in program.ops)
    blocks = dict.fromkeys(b for work in works if isinstance(work, RepeatedBlocks) for b, _ in work.blocks)
    return [
        (
            block,
            Programs(
                classes=(Program(ops=block.ops),),
                communicators={},
                links=programs.links[:1],
                sms=programs.sms,
                corun_slowdown=programs.corun_slowdown,
            ),
        )
        for block in blocks
    ]


@examples(15)
@given(layouts(), st.booleans())
def test_it_is_the_replay(run: Scenario, host: bool) -> None:
    for block, programs in distinct(run):
        rank = RankState(programs.sms, programs.corun_slowdown)
        times = run_alone(block, block.first_s if host else -math.inf, rank, OwnRates(programs.links[0]))
        record = replay(programs, host=host)
        if times is None:
            continue
        assert times.end == pytest.approx(list(record.end[0]), rel=1e-9)
        assert times.start == pytest.approx(list(record.start[0]), rel=1e-9)
        assert times.start == pytest.approx(list(record.begin[0]), rel=1e-9)
        assert (rank.held_sms, rank.moving) == (0, 0)
        for op, since, stop in zip(block.ops, times.rates, times.end, strict=True):
            ends = [*(at for at, _ in since[1:]), stop]
            done = sum((until - at) * rate for (at, rate), until in zip(since, ends, strict=True))
            assert done == pytest.approx(amount(op), rel=1e-6, abs=1e-12)


def amount(op: Op) -> float:
    """Seconds of a kernel, bytes of a collective."""
    assert isinstance(op.work, Compute | Collective)
    return op.work.seconds if isinstance(op.work, Compute) else op.work.transfer.bytes


def moves(stream: str, rate: float, after: tuple[int, ...] = ()) -> Op:
    transfer = Transfer(0.0, 100.0, rate, (("nvlink.out", 1.0), ("nvlink.in", 1.0)), sms=10)
    return Op("collective", stream, "tp", Collective("all_reduce", stream, transfer), after)


@pytest.mark.parametrize(("rate", "after"), [(60.0, ()), (30.0, ()), (60.0, (0,)), (90.0, ())])
def test_collectives_slow_one_another_as_in_the_replay(rate: float, after: tuple[int, ...]) -> None:
    block = Block("two", (moves("tp", 60.0), moves("cp", rate, after)))
    course = run_alone(block, -math.inf, RankState(100, 0.0), OwnRates(LINKS))
    assert course is not None
    programs = Programs(
        classes=(Program(ops=block.ops),), communicators={}, links=(LINKS,), sms=100, corun_slowdown=0.0
    )
    record = replay(programs, host=False)
    assert course.start == pytest.approx(list(record.begin[0]), rel=1e-9)
    assert course.end == pytest.approx(list(record.end[0]), rel=1e-9)
    assert sum(one.until - one.since for one in course.slowed) == pytest.approx(
        sum(one.seconds for one in record.slowed), rel=1e-9
    )


@examples(15)
@given(layouts(), st.floats(0.0, 1.0), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_rest_of_a_block_is_that_of_its_whole_run(
    run: Scenario, share: float, share_of_links: float
) -> None:
    """From any moment, beside nothing or a flow that shares its links: by whether it is known or not."""
    for block, programs in distinct(run):
        rates = OwnRates(programs.links[0])
        links = programs.links[0]
        used = tuple(block.most) or tuple(links)
        ceiling = share_of_links * min(links[name] for name in used)
        beside = FlowsBeside((one_flow(rates, ceiling, used),)) if share_of_links else NOTHING
        rank = RankState(programs.sms, programs.corun_slowdown)
        found = run_alone(block, -math.inf, rank, rates, beside)
        if found is None or not block.ops:
            continue
        whole = run_of(block, found)
        state = state_of(after(whole, share * whole.last))
        known, unknown = (run_alone(block, -math.inf, rank, rates, beside, state, w) for w in (whole, None))
        assert known is not None
        assert unknown is not None
        last = pytest.approx(max(unknown.end), rel=1e-9, abs=1e-12)
        assert max(known.end) == last
        for name in ("start", "end"):
            assert getattr(known, name) == pytest.approx(getattr(unknown, name), rel=1e-9, abs=1e-12)
        for one, other in zip((*known.rates, *known.beside), (*unknown.rates, *unknown.beside), strict=True):
            assert done(one, max(known.end)) == pytest.approx(done(other, max(known.end)), rel=1e-9)
        assert held_s(known) == pytest.approx(held_s(unknown), rel=1e-9, abs=1e-12)


@examples(15)
@given(layouts(), st.floats(0.0, 0.9), st.floats(0.0, 1.0), st.sampled_from([0.3, 0.7, 1.0]))
def test_a_flow_that_begins_later_changes_nothing_before(
    run: Scenario, since: float, share: float, share_of_links: float
) -> None:
    """From any moment: as if nothing were beside the block until then, and the flow from the state that it is
    in by then.
    """
    for block, programs in distinct(run):
        rates, links = OwnRates(programs.links[0]), programs.links[0]
        used = tuple(block.most) or tuple(links)
        flow = one_flow(rates, share_of_links * min(links[name] for name in used), used)
        rank = RankState(programs.sms, programs.corun_slowdown)
        undisturbed = run_alone(block, -math.inf, rank, rates)
        if undisturbed is None or not block.ops:
            continue
        whole = run_of(block, undisturbed)
        times = after(whole, since * whole.last)
        delay_s = share * (1.0 - since) * whole.last
        go_on(times, whole, 0.0, 0.0, since * whole.last + delay_s)
        then = run_alone(block, -math.inf, rank, rates, FlowsBeside((flow,)), state_of(times))
        course = run_alone(block, -math.inf, rank, rates, FlowsBeside((flow,)))
        assert course is not None
        assert then is not None
        state, beside = state_of(after(whole, since * whole.last)), FlowsBeside((flow,), (delay_s,))
        known = [
            run_alone(block, -math.inf, rank, rates, beside, state, w) for w in (run_of(block, course), None)
        ]
        for one in known:
            assert one is not None
            assert max(one.end) == pytest.approx(delay_s + max(then.end), rel=1e-9, abs=1e-12)
            moved = done(one.beside[0], max(one.end))
            assert moved == pytest.approx(
                done(then.beside[0], max(then.end)), rel=1e-6, abs=1e-12 * flow.ceiling
            )
            assert all(at >= delay_s for at, _ in one.beside[0])


def one_flow(rates: OwnRates, ceiling: float, used: tuple[str, ...]) -> Demand:
    return rates.kind(ceiling, tuple((name, 1.0) for name in used))


def run_of(block: Block, course: Course) -> BlockRun:
    start, end, own, others, slowed = course
    return BlockRun(block, 0.0, max(end), start, start, end, own, beside=others, slowed=slowed)


def after(whole: BlockRun, seconds: float) -> Scope:
    """The ops of a block when its run has gone on for so long."""
    times = block_scope(whole.block, 0, issued_at=None, tag=())
    go_on(times, whole, 0.0, 0.0, seconds)
    return times


def held_s(course: Course) -> float:
    """Seconds for which links hold what moves."""
    return sum(one.until - one.since for one in course.slowed)


@given(layouts(), st.floats(-0.2, 1.2), st.floats(-0.2, 1.2))
def test_a_block_uses_links_when_it_does_as_one_of_repeated_blocks(
    run: Scenario, since: float, until: float
) -> None:
    for block, programs in distinct(run):
        rank = RankState(programs.sms, programs.corun_slowdown)
        course = run_alone(block, -math.inf, rank, OwnRates(programs.links[0]))
        if course is None:
            continue
        start, end, rates, _, _ = course
        last = max(end, default=0.0)
        one = BlockRun(block, 0.0, last, start, start, end, rates)
        row = RepeatedRun(0, (one,), (0.0,), 0.0, last)
        for link in LINKS:
            between = link, since * last, until * last
            assert one.first_use(*between) == row.first_use(*between)
