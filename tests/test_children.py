"""Numbers that children find are those that the caller finds, whatever becomes of the children."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

import pytest
from small_scenarios import scenario

from stepsim.sim import children as module
from stepsim.sim import degraded_replay
from stepsim.sim import simulate as simulation
from stepsim.sim.children import in_children

FAULTS = ("gpu_throttle gpu/1 slow_factor=1.3", "gpu_throttle gpu/6 slow_factor=1.2")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 3)
    monkeypatch.setattr(module, "may_fork", lambda: True)


def numbers(tasks: list[Callable[[], float]]) -> tuple[float, ...]:
    with in_children(tasks) as found:
        return found()


@pytest.mark.parametrize("count", [0, 1, 2, 7, module.MOST_TASKS + 3])
def test_every_number_in_its_place(count: int) -> None:
    assert numbers([partial(float, i) for i in range(count)]) == tuple(map(float, range(count)))


def test_children_do_the_work() -> None:
    """While the caller waits for a sign of it, which it is given by nobody else."""
    ready, sign = os.pipe()

    def task() -> float:
        os.write(sign, b"x")
        return float(os.getpid())

    with in_children([task]) as found:
        assert os.read(ready, 1) == b"x"
        (pid,) = found()
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    for end in (ready, sign):
        os.close(end)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_caller_does_what_dead_children_left(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    caller, (ready, sign) = os.getpid(), os.pipe()

    def task(value: float) -> float:
        if os.getpid() != caller:
            os.write(sign, b"x")
            os.kill(os.getpid(), number)
        return value

    with in_children([partial(task, 1.0), partial(task, 2.0), partial(task, 3.0)]) as found:
        os.read(ready, 1)
        assert found() == (1.0, 2.0, 3.0)
    assert capfd.readouterr() == ("", "")
    for end in (ready, sign):
        os.close(end)


def test_an_error_is_the_callers(capfd: pytest.CaptureFixture[str]) -> None:
    def task() -> float:
        raise ValueError("meant")

    with pytest.raises(ValueError, match="meant"):
        numbers([task, task, task])
    assert capfd.readouterr() == ("", "")


def test_no_child_outlives_an_error_of_the_caller() -> None:
    ready, sign = os.pipe()

    def task() -> float:
        os.write(sign, os.getpid().to_bytes(4, "big"))
        signal.pause()
        return 0.0

    def caller() -> None:
        with in_children([task]):
            pids.append(int.from_bytes(os.read(ready, 4), "big"))
            raise ValueError("meanwhile")

    pids: list[int] = []
    with pytest.raises(ValueError, match="meanwhile"):
        caller()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    for end in (ready, sign):
        os.close(end)


def test_no_room_for_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", none)
    assert numbers([partial(float, 1), partial(float, 2)]) == (1.0, 2.0)


def test_faults_cost_the_same_with_children(monkeypatch: pytest.MonkeyPatch) -> None:
    run = scenario(tp=2, pp=2, dp=2, schedule="1f1b")
    alone = simulation.simulate(run, faults=FAULTS).faults
    monkeypatch.setattr(degraded_replay, "MANY_EVENTS", 0)
    forked, fork = list[int](), os.fork

    def counted() -> int:
        pid = fork()
        forked.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    assert simulation.simulate(run, faults=FAULTS).faults == alone
    assert len(forked) == 2
    simulation.simulate(run, faults=FAULTS[:1])
    assert len(forked) == 2  # one fault: without it the step is the healthy one
