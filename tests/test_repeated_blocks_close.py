"""When repeated blocks that are open close again, beside messages and hosts: times worked out by hand."""

from __future__ import annotations

import gc
import math
from dataclasses import replace

import pytest
from blocks_by_hand import LINKS, NVLINK, collective, kernel, programs, repeated, shape
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.expanded import expanded

from stepsim.sim.engine.accounting import iter_spans
from stepsim.sim.engine.observed_job import of_first_classes
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.program import (
    Block,
    Change,
    Collective,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
    RepeatedBlocks,
)


def crossed(*at_s: float) -> Programs:
    """A class whose block sums twice over its NIC, each time between kernels, and one that sends it messages
    of two seconds at such times. Behind each sum the streams of the block join."""
    nic = (("nic.out", 1.0), ("nic.in", 1.0))
    mine, message = Transfer(0.1, 20.0, 10.0, nic, sms=10), Transfer(0.05, 20.0, 10.0, nic)
    block = (kernel(1.0), kernel(0.5), collective("tp", mine, 1), kernel(1.0, 2), kernel(0.5), kernel(0.25))
    again = (collective("tp", mine, 5), kernel(0.5), kernel(1.0, 6), kernel(0.25))

    def end(k: int, *after: int, send: bool) -> Op:
        return Op(
            f"message {k}", "pp", "pp", Exchange((MessageEnd(send, int(send), f"m{k}", message),)), after
        )

    sends: list[Op] = []
    for k, seconds in enumerate(at_s):
        delay = Collective("all_reduce", f"delay{k}", Transfer(seconds, 0.0, math.inf))
        sends += [Op("delay", f"delay{k}", "dp", delay), end(k, 2 * k, send=True)]
    receives = [end(k, send=False) for k in range(len(at_s))]
    classes = Program(ops=tuple(sends)), Program(ops=(*receives, repeated(*block, *again, times=2)))
    return replace(programs(corun=0.1), classes=classes, links=(LINKS, LINKS))


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("second_s", [3.9, 6.0, 7.25, 7.6, 9.0, math.inf])
@pytest.mark.parametrize("first_s", [0.0, 0.2, 1.45, 1.5, 1.6, 2.0, 4.5])
def test_a_block_closes_again_behind_a_message(first_s: float, second_s: float, host: bool) -> None:
    """Wherever messages begin and end in a block: what sums and messages do is the same op by op."""
    one = crossed(*([first_s] if second_s == math.inf else [first_s, second_s]))
    short, full = replay(one, host=host), replay(expanded(one), host=host)
    for mine, other in zip(iter_spans(short), iter_spans(full), strict=True):
        assert (mine.start_s, mine.end_s) == pytest.approx((other.start_s, other.end_s), rel=1e-12)
    told, known = (sorted((one.seconds, one.bytes) for one in record.slowed) for record in (short, full))
    assert told == [pytest.approx(one) for one in known]


def beside_messages(block: Op, message: Transfer, *, host: bool) -> tuple[Record, Record]:
    """A class that runs ``block`` and is sent a message after 0.25 s, as blocks and op by op."""
    ends = (MessageEnd(True, 1, "0F0", message),), (MessageEnd(False, 0, "0F0", message),)
    send, receive = (
        Op("message", "pp", "pp", Exchange(end), after) for end, after in zip(ends, [(0,), ()], strict=True)
    )
    classes = Program(ops=(kernel(0.25), send)), Program(ops=(receive, block))
    one = replace(programs(corun=0.1), classes=classes, links=(LINKS, LINKS))
    return replay(one, host=host), replay(expanded(one), host=host)


def times(record: Record) -> list[float]:
    """Start and end of every op, in the order of the programs."""
    return [at for span in iter_spans(record) for at in (span.start_s, span.end_s)]


@pytest.mark.parametrize("other", ["tp", "cp"])
@pytest.mark.parametrize("host", [True, False])
def test_streams_that_go_on_where_a_block_closes_begin_their_ops_once(host: bool, other: str) -> None:
    """Behind the first sum a kernel and another collective begin at once: the kernel has the block go on as
    its whole run does, in which that collective begins too. SMs that both hold would show in the kernel.
    """
    nic = (("nic.out", 1.0), ("nic.in", 1.0))
    message, first, then = (Transfer(0.1, 20.0, 10.0, nic, sms=sms) for sms in (0, 10, 20))
    sums = collective("tp", first, 0), collective(other, then, 1)
    block = repeated(kernel(1.0), sums[0], kernel(1.0, 1), kernel(1.0), sums[1], times=2)
    short, full = beside_messages(block, message, host=host)
    assert shape(short, 1, r=1) == ["open", 1]
    assert times(short) == pytest.approx(times(full), rel=1e-12)


NIC_IN = (("nic.in", 1.0),)


@pytest.mark.parametrize("host_s", [0.0, 6.0])
def test_a_block_whose_host_is_behind_does_not_close(host_s: float) -> None:
    """Behind the sum all streams join, and the last kernel is yet to be issued: it waits, as op by op. The
    block runs in detail, since the message meets another sum at its sender: of its 10 units 5.5 have arrived
    when this sum begins after a second, which has 5.5 left when the message ends at 1.9 s.
    """
    nic = (("nic.out", 1.0), ("nic.in", 1.0))
    mine = Transfer(0.0, 10.0, 10.0, nic)
    delay = Op("delay", "delay", "dp", Collective("all_reduce", "delay", Transfer(0.2, 0.0, math.inf)))
    ends = (MessageEnd(True, 1, "0F0", mine),), (MessageEnd(False, 0, "0F0", mine),)
    send, receive = (
        Op("message", "pp", "pp", Exchange(end), after) for end, after in zip(ends, [(0,), ()], strict=True)
    )
    sender = repeated(kernel(0.5), collective("tp", mine, 0), kernel(1.0, 1))
    block = repeated(kernel(1.0), collective("tp", mine, 0), kernel(1.0, 1), kernel(1.0, host_s=host_s))
    classes = Program(ops=(delay, send, sender)), Program(ops=(receive, block))
    one = replace(programs(), classes=classes, links=(LINKS, LINKS))
    short, full = replay(one), replay(expanded(one))
    assert shape(short, 1, r=1) == ["open"]
    assert times(short) == pytest.approx(times(full), rel=1e-12)
    assert short.end[1][1] == pytest.approx(7.0 if host_s else 1.9 + 0.55 + 1.0 + 1.0)


def test_a_block_closes_where_all_its_streams_join_and_nowhere_else() -> None:
    """Undisturbed the sum takes 1.5 s, the collective beside it 2; the message delays the sum to 3.5 s, so
    that what waits for both begins when the kernel behind the sum has ended, not a quarter of a second later.
    """
    sums = (
        collective("tp", Transfer(0.0, 15.0, 10.0, NIC_IN), 0),
        collective("cp", Transfer(2.0, 0.0, 1.0), 0),
    )
    block = repeated(kernel(1.0), *sums, kernel(0.25, 1), kernel(1.0, 2, 3))
    short, full = beside_messages(block, Transfer(0.0, 17.5, 10.0, (("nic", 1.0),)), host=False)
    assert times(short) == pytest.approx(times(full), rel=1e-12)
    assert short.end[1][1] == pytest.approx(3.5 + 0.25 + 1.0)


def test_what_slowed_a_block_before_it_closed_is_noted_once() -> None:
    """Two sums share the NIC with the message and with one another; the block closes behind both."""
    mine = Transfer(0.0, 10.0, 10.0, NIC_IN)
    sums = collective("tp", mine, 0), collective("cp", mine, 0)
    block = repeated(kernel(1.0), *sums, kernel(1.0, 1, 2), kernel(1.0))
    records = beside_messages(block, Transfer(0.0, 10.0, 10.0, (("nic", 1.0),)), host=False)
    short, full = (sorted((one.seconds, one.bytes) for one in record.slowed) for record in records)
    assert short == [pytest.approx(one) for one in full]


def test_a_stream_that_has_ended_in_the_last_block_holds_nobody_when_it_opens() -> None:
    """The block's collective ends after 1 s, its kernel after 6; who comes for its stream at 2 s goes on."""
    second = Transfer(1.0, 0.0, math.inf)
    block = repeated(collective("tp", second), kernel(5.0, 0))
    late = collective("tp", second, 0)
    record = replay(programs(collective("delay", Transfer(2.0, 0.0, math.inf)), block, late))
    assert shape(record, 1) == ["open"]
    assert list(record.end[0]) == pytest.approx([2.0, 6.0, 3.0])


def test_a_replay_leaves_nothing_for_the_collector_to_look_for() -> None:
    """A block that ends in detail, since somebody awaits one of its streams, refers to whoever ran it: all of
    a step would be kept until the collector has gone through it."""
    second, delay = Transfer(1.0, 0.0, math.inf), Transfer(0.5, 0.0, math.inf)
    block = repeated(kernel(1.0), collective("tp", second, 0), kernel(1.0, 1))
    one = programs(collective("delay", delay), block, collective("tp", second, 0))
    assert shape(replay(one), 1) == ["open"]
    gc.collect()
    gc.disable()
    try:
        replay(one)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_first_use_of_a_link_is_the_earliest_whichever_op_is_listed_first() -> None:
    """The second sum moves from the beginning, beside the message; the first one does a second later."""
    first, then = (Transfer(0.0, size, 10.0, (("nic.in", 1.0),)) for size in (1.0, 10.0))
    block = repeated(kernel(1.0), collective("tp", first, 0), kernel(1.0, 1), collective("cp", then))
    short, full = beside_messages(block, Transfer(0.0, 15.0, 10.0, (("nic", 1.0),)), host=False)
    assert shape(short, 1, r=1) == ["open"]
    assert times(short) == pytest.approx(times(full), rel=1e-12)


def test_a_block_opens_when_it_uses_the_link_of_a_message_and_not_before() -> None:
    """The message moves from 0.25 s on, the first sum behind two kernels. These run as a whole, and what is
    behind the sum goes on as in the whole run of the block. Op by op the step takes 27 entries of the clock;
    sum and message, of which nobody has a part at the other end, are known beforehand.
    """
    record = replay(crossed(0.2))
    assert shape(record, 1, r=1) == ["open", 1]
    assert record.events == 9


TIMES = st.lists(st.floats(0.0, 12.0), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(first=TIMES, second=TIMES, host=st.booleans(), nic_rate=st.sampled_from([10.0, 15.0, 40.0]))
def test_a_message_may_meet_blocks_at_both_ends(
    first: list[float], second: list[float], host: bool, nic_rate: float
) -> None:
    """Of two classes that run blocks, and send one another messages at any time: whoever knows how a message
    goes on beside its block hears of what meets it at the other end, and all is the same op by op."""
    one = crossed(*first)
    sends, block = one.classes
    back = crossed(*second).classes
    count = {len(sends.ops) // 2, len(back[0].ops) // 2}
    assume(len(count) == 1)  # so that both classes receive as many as they wait for
    links = {**LINKS, "nic.in": nic_rate, "nic.out": nic_rate}
    both = tuple(
        _beside(own, others, k) for k, (own, others) in enumerate([(back[0], block), (sends, back[1])])
    )
    met = replace(one, classes=both, links=(links, links))
    assert not program_problems(met)
    short, full = replay(met, host=host), replay(expanded(met), host=host)
    for mine, other in zip(iter_spans(short), iter_spans(full), strict=True):
        assert (mine.start_s, mine.end_s) == pytest.approx((other.start_s, other.end_s), rel=1e-9, abs=1e-9)


def _beside(sends: Program, receives: Program, k: int) -> Program:
    """What class ``k`` sends the other one, beside what it receives and its blocks."""
    ops = [_between(op, k, 0) for op in sends.ops]
    for op in receives.ops:
        after = tuple([before + len(sends.ops) for before in op.after])
        ops.append(_between(op, k, 1)._replace(after=after))
    return Program(ops=tuple(ops))


def _between(op: Op, k: int, way: int) -> Op:
    """A message between class ``k`` and the other one, on a stream of its own ``way``."""
    if not isinstance(op.work, Exchange):
        return op
    (part,) = op.work.parts
    sender = k if part.send else 1 - k
    named = part._replace(peer=1 - k, tag=f"{part.tag} of {sender}")
    return op._replace(stream=f"pp{way}", work=Exchange((named,)))


def test_a_message_that_moves_faster_opens_blocks_that_it_then_slows() -> None:
    """A receiver's link takes 1 byte a second until 2 s, so that the sender's holds message (20 bytes) and
    sum (40 bytes from 1 s on, at most 8 a second); then either has half. At 2 s 18 and 32 bytes are left.
    """
    message, mine = Transfer(0.0, 20.0, 10.0, (("nic", 1.0),)), Transfer(0.0, 40.0, 8.0, (("nic.out", 1.0),))
    send, receive = (
        Op("message", "pp", "pp", Exchange((MessageEnd(to == 1, to, "0F0", message),))) for to in (1, 0)
    )
    block = repeated(kernel(1.0), collective("tp", mine, 0))
    classes = Program(ops=(send, block)), Program(ops=(receive,))
    slow = LINKS, {**LINKS, "nic.in": 1.0}
    mended = Change(at_s=2.0, slow=(1.0, 1.0), links=(LINKS, LINKS))
    record = replay(replace(programs(), classes=classes, links=slow, changes=(mended,)))
    assert shape(record, 1) == ["open"]
    assert list(record.end[0]) == pytest.approx([2.0 + 18.0 / 5.0, 2.0 + 18.0 / 5.0 + 14.0 / 8.0])


def test_a_message_that_moves_faster_leaves_flows_beside_blocks_as_they_are() -> None:
    """Sum and reduction have half of NVLink each, 3 bytes a second, from 1 s on, and are beside one another
    once more from 1.5 s on, as another takes SMs. At 2 s the message takes 3 bytes a second of the NIC in
    place of 1, which the NIC holds beside the reduction.
    """
    message, taken = Transfer(0.0, 20.0, 10.0, (("nic", 1.0),)), Transfer(8.0, 0.0, math.inf, sms=10)
    flow = Transfer(0.0, 16.0, 4.0, (("nvlink.out", 1.0), ("nic.out", 1.0)))
    send, receive = (
        Op("message", "pp", "pp", Exchange((MessageEnd(to == 1, to, "0F0", message),))) for to in (1, 0)
    )
    others = collective("delay", Transfer(1.5, 0.0, math.inf)), collective("later", taken, 0)
    block = repeated(kernel(1.0), collective("tp", Transfer(0.0, 30.0, 6.0, NVLINK), 0))
    classes = Program(ops=(*others, collective("dp", flow), send, block)), Program(ops=(receive,))
    mine, (slow, fast) = {**LINKS, "nvlink.out": 6.0}, ({**LINKS, "nic.in": rate} for rate in (1.0, 3.0))
    change = Change(at_s=2.0, slow=(1.0, 1.0), links=(mine, fast))
    record = replay(replace(programs(), classes=classes, links=(mine, slow), changes=(change,)))
    # 4 bytes of the reduction have moved at 1 s, and 2 of the message at 2 s.
    flow_s, message_s = 1.0 + 12.0 / 3.0, 2.0 + 18.0 / 3.0
    assert list(record.end[0]) == pytest.approx([1.5, 9.5, flow_s, message_s, flow_s + 18.0 / 6.0])


def test_blocks_run_on_the_compute_stream() -> None:
    work = RepeatedBlocks(((Block("block", (kernel(1.0),)), 1),))
    problems = program_problems(programs(Op("repeated", "side", "compute", work)))
    assert problems == ("class 0, op 0 (repeated): stream: blocks run on the compute stream, got 'side'",)


@pytest.mark.parametrize("interferes_s", [0.6, 0.75, 1.0, 1.5, math.inf])
def test_a_block_beside_a_flow_that_is_about_to_begin_is_the_same_expanded(interferes_s: float) -> None:
    """It takes SMs at 0.5 s and moves from 1 s on; another takes more in between, at that moment, after it,
    or never. The block's own collective shares the link with it.
    """
    mine = collective("tp", Transfer(0.25, 150.0, math.inf, NVLINK))
    flow = collective("dp", Transfer(0.5, 100.0, math.inf, NVLINK, sms=50), 0)
    one = programs(
        collective("delay", Transfer(0.5, 0.0, math.inf)),
        flow,
        collective("later", Transfer(interferes_s, 0.0, math.inf))
        if interferes_s < math.inf
        else kernel(0.0),
        collective("ep", Transfer(0.5, 0.0, math.inf, sms=25 if interferes_s < math.inf else 0), 2),
        repeated(mine, kernel(1.0), kernel(0.5, 0), times=3),
    )
    short, full = (sorted(span.end_s for span in iter_spans(replay(p))) for p in (one, expanded(one)))
    assert short == pytest.approx(full, rel=1e-12)


@pytest.mark.parametrize("host", [True, False])
def test_a_job_that_begins_later_has_the_record_of_one_that_begins_at_once(host: bool) -> None:
    """Counted from its own beginning, down to when the host issued blocks that ran in pieces."""
    one = crossed(0.2, 6.0)
    at_once, later = (replay(one, host=host, begins_s=[at, at]) for at in (0.0, 4.0))
    found = of_first_classes(later, one, 4.0)
    assert times(found) == pytest.approx(times(at_once))
    assert (found.makespan_s, found.step_s) == pytest.approx((at_once.makespan_s, at_once.step_s))
    assert found.in_pieces.keys() == at_once.in_pieces.keys() != set()
    for key, pieces in at_once.in_pieces.items():
        for mine, other in zip(found.in_pieces[key], pieces, strict=True):
            assert type(mine) is type(other)
            for name in ("at", "issued_at"):
                assert getattr(mine, name, None) == pytest.approx(getattr(other, name, None))
