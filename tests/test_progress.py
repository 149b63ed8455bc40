"""Progress on stderr: a line in place on a terminal, a line now and then elsewhere, nothing of quick work."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
from small_plans import FIX, small
from small_scenarios import scenario

from stepsim.cli import progress as module
from stepsim.cli.progress import EVERY_S, Progress, progress
from stepsim.sim.engine import clock
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.simulate import simulate


class Watched:
    """A clock that a test sets, and what was written."""

    def __init__(self, *, live: bool) -> None:
        self.at, self.said = 100.0, list[str]()
        self.shown = Progress(live=live, write=self.said.append, now=lambda: self.at)


def test_quick_work_says_nothing_where_nobody_looks() -> None:
    watched = Watched(live=False)
    watched.shown("lowering")
    watched.at += EVERY_S - 1
    watched.shown("replaying")
    watched.shown.done()
    assert watched.said == []


def test_long_work_says_a_line_every_ten_seconds() -> None:
    watched = Watched(live=False)
    watched.shown("lowering")
    for _ in range(35):
        watched.at += 1.0
        watched.shown.beat()
    assert watched.said == [f"stepsim: lowering ({s} s)\n" for s in (10, 20, 30)]


def test_a_terminal_has_one_line_that_goes_away() -> None:
    watched = Watched(live=True)
    watched.shown("lowering")
    watched.shown("too soon")
    watched.at += 1.0
    watched.shown("replaying \033[31m")
    watched.shown.done()
    assert watched.said[0] == "\r\033[Klowering"
    assert len(watched.said) == 3
    assert "\033[31m" not in watched.said[1]
    assert watched.said[-1] == "\r\033[K"


def test_the_timer_beats_and_is_given_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    beats: list[int] = []
    with module._beating(lambda: beats.append(1)):
        signal.raise_signal(signal.SIGALRM)
    assert beats == [1]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timer_of_others_is_left_alone() -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with progress():
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 900.0
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def test_other_threads_have_no_timer() -> None:
    found: list[tuple[float, float]] = []

    def work() -> None:
        with progress():
            found.append(signal.getitimer(signal.ITIMER_REAL))

    one = threading.Thread(target=work)
    one.start()
    one.join()
    assert found == [(0.0, 0.0)]


def test_a_replay_tells_how_far_it_is(monkeypatch: object) -> None:
    said: list[str] = []
    simulate(scenario(pp=4, microbatches=8), progress=said.append)
    assert not any("%" in text for text in said)
    monkeypatch.setattr(clock, "TICK", 16)  # type: ignore[attr-defined]
    simulate(scenario(pp=4, microbatches=8), progress=said.append)
    assert any("% of" in text for text in said)
    assert said[-1] == "reading the result"


def test_stdout_is_kept_for_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A library that prints from a thread of its own while work goes on, as Ray does of lost nodes."""
    with progress():
        noise = threading.Thread(target=print, args=("a node was lost",))
        noise.start()
        noise.join()
    sys.stdout.write("the answer\n")
    assert capsys.readouterr() == ("the answer\n", "a node was lost\n")


def test_a_plan_is_not_screening_while_it_bounds_and_replays() -> None:
    """The first replay may take seconds, and bounds come before it."""
    said: list[str] = []
    plan(small(), fix=FIX, jobs=1, audit=0, progress=said.append)
    first = next(place for place, text in enumerate(said) if text.startswith("replayed"))
    assert said[first - 1].startswith("bounding")
