"""Messages whose ends are known ahead: receives that wait for the host alone, found by whoever sends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stepsim.sim.engine.clock import Clock
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    UNORDERED,
    Binding,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
)

LINKS = {"nvlink.out": 100.0, "nvlink.in": 100.0, "nic.out": 10.0, "nic.in": 10.0}
MESSAGE = Transfer(0.5, 20.0, 10.0, (("nic", 1.0),))
TAKES_S = 0.5 + 20.0 / 10.0


def part(peer: int, *, send: bool, tag: str = "0F0") -> MessageEnd:
    return MessageEnd(send, peer, tag, MESSAGE)


def exchange(*parts: MessageEnd, after: tuple[int, ...] = (), host_s: float = 0.0) -> Op:
    return Op("exchange", UNORDERED, "pp", Exchange(parts), after, host_s=host_s)


def kernel(seconds: float, *after: int, host_s: float = 0.0) -> Op:
    return Op("kernel", "compute", "compute", Compute(seconds, "gemm"), after, host_s=host_s)


def run(*classes: Sequence[Op], bindings: tuple[Binding, ...] = ()) -> Record:
    return replay(
        Programs(
            classes=tuple(Program(ops=tuple(ops)) for ops in classes),
            communicators={},
            links=(LINKS,) * len(classes),
            sms=132,
            corun_slowdown=0.0,
            bindings=bindings,
        )
    )


def test_the_sender_is_waited_for() -> None:
    record = run([kernel(3.0), exchange(part(1, send=True), after=(0,))], [exchange(part(0, send=False))])
    assert record.times(0, 1) == pytest.approx((3.0, 3.0, 3.0 + TAKES_S))
    assert record.times(1, 0) == pytest.approx((0.0, 3.0, 3.0 + TAKES_S))
    assert record.released(0, 1) == record.released(1, 0) == (0, 1)


def test_a_receive_that_its_host_issues_late_is_waited_for() -> None:
    record = run(
        [kernel(3.0), exchange(part(1, send=True), after=(0,))], [exchange(part(0, send=False), host_s=7.0)]
    )
    assert record.times(0, 1) == pytest.approx((3.0, 7.0, 7.0 + TAKES_S))
    assert record.times(1, 0) == pytest.approx((7.0, 7.0, 7.0 + TAKES_S))
    assert record.released(0, 1) == record.released(1, 0) == (1, 0)


def test_what_waits_for_the_receive_goes_on_with_it() -> None:
    record = run([exchange(part(1, send=True))], [exchange(part(0, send=False)), kernel(1.0, 0)])
    assert record.times(1, 1) == pytest.approx((TAKES_S, TAKES_S, TAKES_S + 1.0))


def test_a_batch_finds_receives_of_several() -> None:
    """Two messages share the sender's port: each moves at half of its rate."""
    both = exchange(part(1, send=True), part(2, send=True))
    record = run([both], [exchange(part(0, send=False))], [exchange(part(0, send=False))])
    ends = [record.times(r, 0)[2] for r in range(3)]
    assert ends == pytest.approx([0.5 + 2 * 20.0 / 10.0] * 3)


def test_equal_tags_meet_in_their_order() -> None:
    sends = [exchange(part(1, send=True)), kernel(9.0), exchange(part(1, send=True), after=(1,))]
    record = run(sends, [exchange(part(0, send=False)), exchange(part(0, send=False))])
    assert sorted(record.end[1]) == pytest.approx([TAKES_S, 9.0 + TAKES_S])


def test_names_of_classes_are_those_of_the_binding() -> None:
    """Class 2 is what the first program calls 1, and class 0 what the others call 1 or 0."""
    bindings = (Binding(peers={1: 2}), Binding(peers={0: 1}), Binding(peers={1: 0, 0: 1}))
    record = run(
        [kernel(2.0), exchange(part(1, send=True), after=(0,))],
        [kernel(1.0)],
        [exchange(part(1, send=False))],
        bindings=bindings,
    )
    assert record.times(2, 0) == pytest.approx((0.0, 2.0, 2.0 + TAKES_S))


def test_a_receive_without_a_sender_is_a_deadlock() -> None:
    with pytest.raises(RuntimeError, match="class 1 at op 0"):
        run([kernel(1.0)], [exchange(part(0, send=False))])


def test_calls_and_events_keep_their_order() -> None:
    """Of one instant: in the order in which they were asked for, and last what comes after all."""
    clock = Clock()
    told: list[object] = []
    clock.call_after_all(told.append, "after all")
    clock.call(0.0, told.append, "call")
    event = clock.timeout(0.0)
    assert event.callbacks is not None
    event.callbacks.append(lambda _: told.append("event"))
    clock.call(1.0, lambda _: told.append(clock.time))
    assert clock.run_to_end() == 4
    assert told == ["call", "event", "after all", 1.0]
    assert clock.now == 1.0
