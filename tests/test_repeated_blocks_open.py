"""When repeated blocks open and what they leave: hand-made cases with times worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from blocks_by_hand import LINKS, NVLINK, collective, kernel, programs, repeated, shape
from hypothesis import given, settings
from oracles.expanded import expanded
from small_scenarios import layouts, lowered, scenario

from stepsim.sim.engine import repeated_blocks, whole_run
from stepsim.sim.engine.accounting import iter_spans, repeated_parts
from stepsim.sim.engine.blocks_in_progress import BlocksInProgress
from stepsim.sim.engine.critical_path import critical_path
from stepsim.sim.engine.record import Record, Stretch
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    Collective,
    Op,
    Program,
    Programs,
)
from stepsim.sim.scenario.models import Scenario


def test_alone_it_never_opens() -> None:
    record = replay(programs(repeated(kernel(1.0), times=5)))
    assert shape(record, 0) == [5]
    assert list(record.end[0]) == [5.0]


def test_undisturbed_blocks_are_never_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls are all that they take, until something interferes."""
    made: list[int] = []

    def counted(*args: Any, **fields: Any) -> BlocksInProgress:
        made.append(args[3])
        return BlocksInProgress(*args, **fields)

    for module in (repeated_blocks, whole_run):
        monkeypatch.setattr(module, "BlocksInProgress", counted)
    replay(programs(repeated(kernel(1.0), times=5), repeated(kernel(2.0), times=5)))
    assert made == []
    held = Transfer(2.0, 0.0, math.inf, sms=50)
    delayed = [collective("delay", Transfer(1.5, 0.0, math.inf)), collective("dp", held, 0)]
    replay(programs(*delayed, repeated(kernel(1.0), times=9), repeated(kernel(2.0), times=5)))
    assert made == [2]


def test_it_opens_when_sms_are_taken_and_again_when_they_come_back() -> None:
    """Half the SMs are held from 1.5 s to 3.5 s: kernels take twice as long."""
    taken = Transfer(2.0, 0.0, math.inf, sms=50)
    blocker = [collective("delay", Transfer(1.5, 0.0, math.inf)), collective("dp", taken, 0)]
    record = replay(programs(*blocker, repeated(kernel(1.0), times=4)))
    assert shape(record, 2) == [1, "open", "open", 1]
    # Half of the second block is done at 1.5 s, half of the third at 3.5 s.
    assert [span.end_s for span in iter_spans(record)][2:] == pytest.approx([1.0, 2.5, 4.0, 5.0])


def test_a_change_that_changes_nothing_leaves_it_closed() -> None:
    """One collective follows another: as many SMs are held all the while."""
    held = Transfer(1.0, 0.0, math.inf, sms=50)
    record = replay(programs(collective("dp", held), collective("dp", held), repeated(kernel(0.5), times=2)))
    assert shape(record, 2) == [2]
    assert record.end[0][2] == pytest.approx(2.0)


def test_a_flow_on_its_links_opens_it_and_shares_them() -> None:
    """100 bytes take 1 s alone; from 0.5 s on another 100 share the link: 50 left take 1 s."""
    mine, other = Transfer(0.0, 100.0, math.inf, NVLINK), Transfer(0.5, 100.0, math.inf, NVLINK)
    record = replay(programs(collective("dp", other), repeated(collective("tp", mine), kernel(1.0, 0))))
    assert shape(record, 1) == ["open"]
    assert list(record.end[0]) == pytest.approx([2.0, 2.5])


def test_a_flow_on_other_links_leaves_it_closed() -> None:
    mine, other = (
        Transfer(0.0, 100.0, math.inf, NVLINK),
        Transfer(0.5, 100.0, math.inf, (("nvlink.in", 1.0),)),
    )
    record = replay(programs(collective("dp", other), repeated(collective("tp", mine), kernel(1.0, 0))))
    assert shape(record, 1) == [1]


def test_what_follows_on_its_stream_waits_for_the_last_op_there() -> None:
    """The block's collective ends after 2 s, its last kernel after 5; the second collective lies between."""
    second = Transfer(1.0, 0.0, math.inf)
    block = [kernel(1.0), collective("tp", second, 0), kernel(3.0, 1)]
    record = replay(programs(repeated(*block), collective("tp", second)))
    assert list(record.end[0]) == pytest.approx([5.0, 3.0])


def test_a_host_that_falls_behind_is_seen_in_each_block() -> None:
    """Launches take 1 s: the first two ops wait for the host, the third for the second."""
    block = [kernel(0.5, host_s=1.0), kernel(3.0, host_s=1.0), kernel(0.5, host_s=1.0)]
    record = replay(programs(repeated(*block, times=2)))
    assert [span.start_s for span in iter_spans(record)] == pytest.approx([1.0, 2.0, 5.0, 5.5, 6.0, 9.0])
    assert repeated_parts(record, 0, 0) == pytest.approx({"gemm": 8.0, "host": 0.5})


@settings(max_examples=40, deadline=None)
@given(layouts())
def test_the_critical_path_and_the_accounts_add_up(run: Scenario) -> None:
    record = replay(lowered(run).programs)
    assert sum(critical_path(record).values()) == pytest.approx(record.makespan_s, rel=1e-9)
    for r, i in record.repeated_blocks():
        start, _, end = record.times(r, i)
        assert sum(repeated_parts(record, r, i).values()) == pytest.approx(end - start, rel=1e-9)


def test_a_message_that_another_joined_in_its_latency_opens_what_has_closed_since() -> None:
    """Posted at 12 s, it moves at 12.1; a sum on its links ends meanwhile, and the next block is closed."""
    weights = (("nic.in", 0.5), ("nic.out", 0.5390625), ("nvlink.in", 1.0), ("nvlink.out", 1.0))
    work = Collective("all_reduce", "tp", Transfer(0.1, 49.5, 20.0, weights))
    block = Op("sum", "tp", "tp", work, host_s=1.0), kernel(1.0, host_s=1.0)
    message = Transfer(0.1, 1.0, 20.0, (("nic.in", 1.0), ("nic.out", 1.0)))
    given_ = programs(repeated(*block, times=6), collective("dp", message), corun=0.1)
    given_ = replace(given_, links=(LINKS,), sms=400)
    short, full = replay(given_), replay(expanded(given_))
    assert short.makespan_s == pytest.approx(full.makespan_s, rel=1e-12)
    assert short.end[0][1] == pytest.approx(full.end[0][-1], rel=1e-12)


def beside(payload: float) -> tuple[Record, Record]:
    """Six blocks whose sums share NVLink with a reduction of the same rank, as blocks and op by op."""
    weights = (("nvlink.out", 1.0), ("nvlink.in", 1.0))
    work = Collective("all_reduce", "tp", Transfer(0.1, 50.0, 80.0, weights, sms=10))
    block = kernel(1.0), Op("sum", "tp", "tp", work, (0,)), kernel(0.5), kernel(0.25, 1)
    reduction = collective("dp", Transfer(0.1, payload, 60.0, weights, sms=5))
    given_ = programs(reduction, repeated(*block, times=6), kernel(1.0), corun=0.1)
    return replay(given_), replay(expanded(given_))


@pytest.mark.parametrize(
    ("payload", "ran"),
    [(1000.0, [1, 1, 1, 1, 1, 1]), (100.0, ["open", 5]), (300.0, [1, 1, "open", 3])],
)
def test_blocks_beside_a_reduction_of_their_rank(payload: float, ran: list[int | str]) -> None:
    """One is open as the reduction ends; all others run as a whole, the first beside its latency."""
    short, full = beside(payload)
    assert shape(short, 1) == ran
    assert short.end[0][0] == pytest.approx(full.end[0][0], rel=1e-12)
    for mine, other in zip(iter_spans(short), iter_spans(full), strict=True):
        assert (mine.start_s, mine.end_s) == pytest.approx((other.start_s, other.end_s), rel=1e-12)


def test_what_slows_blocks_and_flows_beside_them_is_noted() -> None:
    sums = [
        {(one.between, one.link): (one.seconds, one.bytes) for one in each.slowed} for each in beside(1000.0)
    ]
    assert len(sums[0]) == 2
    assert sums[0].keys() == sums[1].keys()
    for key, found in sums[0].items():
        assert found == pytest.approx(sums[1][key], rel=1e-9)


def test_members_whose_blocks_end_at_once_tell_alike_that_they_have() -> None:
    """Two classes end a block when the third, twice as fast, ends its blocks: sums of tenths differ."""
    instant = Collective("all_reduce", "tp", Transfer(0.0, 0.0, 20.0))
    meets = Collective("all_reduce", "world", Transfer(0.0, 0.0, 20.0))

    def member(seconds: float, *waits: int) -> Program:
        block = Op("sum", "tp", "tp", instant), kernel(seconds), kernel(seconds)
        return Program(ops=(repeated(*block, times=2), Op("world", "world", "world", meets, waits)))

    given_ = Programs(
        classes=(member(1.0), member(1.0), member(0.5, 0)),
        communicators={"tp": (0, 1, 2), "world": (0, 1, 2)},
        links=(LINKS,) * 3,
        sms=100,
        corun_slowdown=0.1,
    )
    assert replay(given_).makespan_s == pytest.approx(replay(expanded(given_)).makespan_s, rel=1e-9)


def test_the_laws_see_repeated_blocks_that_open() -> None:
    """Guards tests/test_repeated_blocks.py: with everything closed there would be nothing to compare."""
    run = scenario(
        tp=2,
        pp=2,
        dp=4,
        zero=1,
        software={
            "preset": "megatron-core-2024",
            "gradients": {"bucket_elements": 1e5},
        },
        gpu="H100-SXM5-80GB",
    )
    record = replay(lowered(run).programs)
    ran = [isinstance(piece, Stretch) for key in record.repeated_blocks() for piece in record.pieces(*key)]
    assert True in ran
    assert False in ran
    full = replay(expanded(lowered(run).programs))
    assert not list(full.repeated_blocks())
    assert full.events > record.events
