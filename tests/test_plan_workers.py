"""Workers and the journal: the same answer whoever works on it, and however often it is cut off."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import FIX, answer, small

from stepsim.hardware.files import FileError
from stepsim.sim.plan.search.journal import Journal, key_of
from stepsim.sim.plan.search.judged import JudgedLayout, LeastStep, refused
from stepsim.sim.plan.search.judging import Answered, Answering, Asked, Judging
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.scenario.models import Scenario


@pytest.mark.slow
def test_one_worker_and_two_give_the_same_answer() -> None:
    assert answer(plan(small(), fix=FIX, audit=4, jobs=1)) == answer(plan(small(), fix=FIX, audit=4, jobs=2))


def test_workers_in_a_pool_give_results_in_order_and_stop_early() -> None:
    workers = Local(_square, 2, after_s=0.0)
    try:
        results = workers.run(range(50))
        assert [next(results) for _ in range(7)] == [n * n for n in range(7)]
        results.close()
        assert list(workers.run(range(5))) == [0, 1, 4, 9, 16]
    finally:
        workers.close()


def test_workers_of_a_plan_do_not_load_the_simulator_one_by_one() -> None:
    script = """
import os, sys
from stepsim.sim.plan.search import judging, plan
from stepsim.sim.plan.screen import screen
screen.MANY = 1
now = judging.Answering.__call__
def told(self, asked):
    os.write(2, b"there " if "stepsim.sim.engine.replay" in sys.modules else b"loaded ")
    return now(self, asked)
judging.Answering.__call__ = told
from small_plans import FIX, small
plan.plan(small(), fix=FIX, jobs=2, audit=0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent, check=True
    )
    assert {*done.stderr.split()} == {"there"}


def test_what_is_under_way_when_nobody_asks_any_more_is_not_begun_twice(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    workers = Local(partial(_noted, seen), 2, after_s=0.0)
    try:
        results = workers.run(range(6))
        assert next(results) == 0
        results.close()
        assert list(workers.run(range(1, 6))) == [1, 4, 9, 16, 25]
    finally:
        workers.close()
    assert sorted(seen.read_text().split()) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("every", [True, False])
def test_nobody_waits_for_the_first(tmp_path: Path, every: bool) -> None:
    """The first task ends after all others, which were begun although there are many more than workers.

    In a process of its own: beside threads that other tests have left no pool is begun."""
    code = f"import test_plan_workers as tests; tests.run_all_of({str(tmp_path / 'seen')!r}, every={every})"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)
    assert (tmp_path / "seen").read_text(encoding="utf-8").split()[-1] == "0"


def run_all_of(seen: str, *, every: bool) -> None:
    """Sixteen tasks of which the first waits for the others."""
    workers = Local(partial(_noted_and_the_first_last, Path(seen), 16), 2, after_s=0.0)
    try:
        assert list(workers.run(range(16), every=every)) == [n * n for n in range(16)]
    finally:
        workers.close()


def test_what_nobody_waits_for_any_more_is_not_begun(tmp_path: Path) -> None:
    """Two tasks are at work and others handed out when all are left; one of these is asked for again."""
    code = f"import test_plan_workers as tests; tests.leave_some({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)
    assert sorted((tmp_path / "seen").read_text(encoding="utf-8").split()) == ["0", "1", "2", "4"]


def leave_some(folder: str) -> None:
    """Three of six tasks begin before all are left, whose results come when the file ``go`` is there."""
    seen, go, five = Path(folder, "seen"), Path(folder, "go"), Path(folder, "five")

    def tasks() -> Iterator[int]:
        yield from range(4)
        five.touch()  # the first, which is awaited, ends no earlier, however late this process has its turn
        yield from (4, 5)

    workers = Local(partial(_noted_when_it_may_go_on, seen, five, go), 2, after_s=0.0)
    try:
        results = workers.run(tasks())
        assert next(results) == 0
        for _ in range(1000):
            if len(seen.read_text(encoding="utf-8").split()) >= 3:
                break
            time.sleep(0.01)
        results.close()
        again = workers.run([4])
        go.touch()
        assert [*again] == [16]
    finally:
        workers.close()


def _noted_when_it_may_go_on(seen: Path, five: Path, go: Path, number: int) -> int:
    found = _noted(seen, number)
    for _ in range(1000):
        if (go if number else five).exists():
            break
        time.sleep(0.01)
    return found


def _noted_and_the_first_last(seen: Path, count: int, number: int) -> int:
    for _ in range(1000 if number == 0 else 0):
        if seen.exists() and len(seen.read_text().split()) == count - 1:
            break
        time.sleep(0.01)
    return _noted(seen, number)


def _noted(seen: Path, number: int) -> int:
    with seen.open("a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return number * number


def _square(number: int) -> int:
    return number * number


class Counting:
    """A replay that counts what it was asked for, and is killed after ``most``; it is told later of what."""

    def __init__(self, most: int = 10**9) -> None:
        self.seen: list[int] = []
        self.most = most

    def of(self, *replay_and_layouts: Any) -> Counting:
        self.answering = Answering(*replay_and_layouts)
        return self

    def __call__(self, asked: Asked) -> Answered:
        if asked.number is not None and not asked.bounded:
            if len(self.seen) >= self.most:
                raise RuntimeError("killed")
            self.seen.append(asked.number)
        return self.answering(asked)


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.jsonl"
    whole = plan(small(), fix=FIX, audit=4, jobs=1)
    kills = [len(whole.replays) // 2, 10**9]
    workers = [Counting(most) for most in kills]
    waiting = iter(workers)
    monkeypatch.setattr("stepsim.sim.plan.search.plan.Answering", lambda *of: next(waiting).of(*of))
    with pytest.raises(RuntimeError, match="killed"):
        plan(small(), fix=FIX, audit=4, jobs=1, journal=path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key":"cut o')  # as the kill may leave it
    resumed = plan(small(), fix=FIX, audit=4, jobs=1, journal=path)
    assert answer(resumed) == answer(whole)
    assert resumed.remembered == kills[0]
    twice = set(workers[0].seen) & set(workers[1].seen)
    assert not twice
    assert len(workers[0].seen) + len(workers[1].seen) == len(whole.replays)


def test_what_a_pool_did_ahead_is_kept_but_not_told() -> None:
    scenario = small()
    judging = Judging(scenario_of=lambda _: scenario, workers=Local(Answering(Instant()), 2, after_s=0.0))
    results = judging(range(20))
    first = next(results)
    results.close()
    judging.workers.close()
    assert list(judging.known) == [0]
    assert first.step_time_s == 1.0


def test_bounds_that_may_be_asked_for_are_worked_out_beside_others_and_once() -> None:
    scenario, bounded = small(), list[int | None]()

    class Noted:
        """This process, which is always ahead by all."""

        def run(self, tasks: Iterable[Asked], *, every: bool = False) -> Generator[Answered, None, None]:
            self.left = list[Answered]()
            for task in [*tasks]:
                bounded.append(task.number)
                self.left.append((task.number, 0.5))
            while self.left:
                yield self.left.pop(0)

        def spared(self) -> list[Answered]:
            return self.left

        def close(self) -> None: ...

    judging = Judging(scenario_of=lambda _: scenario, workers=Noted())
    judging.soon_bounded = [1, 2, 3]
    assert judging.floors_s([0, 1]) == [0.5, 0.5]
    assert bounded == [0, 1, 2, 3]
    assert judging.floors_s([2, 3]) == [0.5, 0.5]
    assert bounded == [0, 1, 2, 3]
    assert not judging.known


def test_what_is_asked_for_in_the_end_is_replayed_by_workers_that_wait_alone() -> None:
    scenario, tasks = small(), list[int | None]()

    class Noted:
        """This process, which does nothing before it is asked to."""

        def run(self, tasks_: Iterable[Asked], *, every: bool = False) -> Generator[Answered, None, None]:
            for task in tasks_:
                tasks.append(task.number)
                yield task.number, Instant()(scenario)

        def spared(self) -> list[Answered]:
            return []

        def close(self) -> None: ...

    alone = Judging(scenario_of=lambda _: scenario, workers=Noted())
    alone.later = [2, 5]
    alone.ahead([3, 1])
    assert tasks == [3, 1]
    assert not alone.known
    assert [one.step_time_s for one in alone([1, 3, 2])] == [1.0, 1.0, 1.0]
    assert tasks == [3, 1, 2]
    pooled = Judging(scenario_of=lambda _: scenario, workers=Local(Answering(Instant()), 2, after_s=0.0))
    try:
        pooled.later = range(4, 40)
        pooled.ahead([3, 1])
        assert not pooled.known
        assert [one.step_time_s for one in pooled([1, 3, 4, 39])] == [1.0] * 4
        assert [*pooled.known] == [1, 3, 4, 39]
    finally:
        pooled.workers.close()


class Instant:
    """A replay of no work, and a bound below it."""

    def __call__(self, scenario: Scenario) -> JudgedLayout:
        return JudgedLayout(step_time_s=1.0, peak_memory_bytes=2.0, capacity_bytes=3.0)

    def floor_s(self, scenario: Scenario) -> float:
        return 0.5

    def least(self, scenario: Scenario) -> LeastStep:
        return LeastStep(JudgedLayout(step_time_s=0.75, peak_memory_bytes=2.0, capacity_bytes=3.0))


def test_what_is_asked_for_in_the_end_may_change_while_others_are_replayed() -> None:
    """A worker that waits then begins with what is asked for now."""
    scenario, begun = small(), list[int | None]()

    class Ahead:
        """Workers that begin with the next task before they give the last."""

        def run(self, tasks: Iterable[Asked], *, every: bool = False) -> Generator[Answered, None, None]:
            waiting: list[int | None] = []
            for task in tasks:
                begun.append(task.number)
                waiting.append(task.number)
                if len(waiting) > 1:
                    yield waiting.pop(0), Instant()(scenario)

        def spared(self) -> list[Answered]:
            return []

        def close(self) -> None: ...

    judging = Judging(scenario_of=lambda _: scenario, workers=Ahead())
    judging.later = [7, 8, 9]
    for at, _ in enumerate(judging([1, 2, 3])):
        judging.later = [5, 7, 6] if at else [7, 4]
    assert begun == [1, 2, 3, 5]


def test_a_least_step_is_none_that_was_replayed() -> None:
    """Nor is a replay taken for one; twins have theirs in common, and it may be worked out beside others."""
    scenario = small()
    judging = Judging(
        scenario_of=lambda _: scenario, workers=Local(Answering(Instant()), 1), alike=lambda i: i // 2 * 2
    )
    judging.later_least = [4, 6]
    judging.ahead([4])
    assert [one.step_time_s for one in judging.least([4, 5, 7])] == [0.75] * 3
    assert not judging.known
    assert [one.step_time_s for one in judging([5, 7])] == [1.0, 1.0]
    assert [*judging.known] == [5, 7]


@settings(max_examples=20)
@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_journals_keep_floats_and_refusals(step_s: float, peak: float) -> None:
    judged = JudgedLayout(step_time_s=step_s, peak_memory_bytes=peak, capacity_bytes=80e9)
    assert JudgedLayout.of_row(json.loads(json.dumps(judged.to_row()))) == judged
    row = json.loads(json.dumps(refused("because").to_row()))
    assert (JudgedLayout.of_row(row).refused, JudgedLayout.of_row(row).step_time_s) == ("because", math.inf)


def test_a_key_hangs_on_all_that_a_prediction_reads(tmp_path: Path) -> None:
    base = small()
    assert key_of(base) == key_of(small(name="other"))
    profile = tmp_path / "own.yaml"
    profile.write_text("profile: 1\ngpu: A100-SXM4-80GB\nclock_fraction: 0.9\n", encoding="utf-8")
    others = [
        small(parallelism__tp=4),
        small(cluster__what_if={"nic": 2}),
        small(software={"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 1e-6}}),
    ]
    keys = {key_of(one) for one in [base, *others]}
    assert len(keys) == 4


def test_a_journal_of_another_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text('{"stepsim":"journal of plans","format":1}\n', encoding="utf-8")
    with pytest.raises(FileError, match=r"\(format 1, here \d+\)"):
        Journal(path=path)


def test_an_empty_file_is_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.touch()
    Journal(path=path).add("one", refused("why"))
    assert Journal(path=path).known == {"one": refused("why")}


def test_other_files_are_no_journals(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text('{"model": 1}\n', encoding="utf-8")
    with pytest.raises(FileError) as error:
        Journal(path=path)
    assert error.value.file == str(path)
    assert path.read_text(encoding="utf-8") == '{"model": 1}\n'


@pytest.mark.skipif(sys.platform != "linux", reason="there is no pool elsewhere")
def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from stepsim.sim.plan.search.workers import Local
def note(number):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(0.2)
for _ in Local(note, 2, after_s=0.0).run(range(100)):
    pass
"""
    with subprocess.Popen([sys.executable, "-c", code]) as running:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.kill()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
