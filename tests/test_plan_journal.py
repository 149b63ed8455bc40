"""The journal of a search that several work on: what was done is on disk, whoever is still awaited."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_plans import FIX, small

from stepsim.sim.plan.search.journal import Journal
from stepsim.sim.plan.search.judged import JudgedLayout, LeastStep
from stepsim.sim.plan.search.judging import Answering, Judging
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.scenario.models import Scenario


@dataclass(frozen=True)
class FirstWaits:
    """Replays of no work, of which the first of all layouts waits until ``path`` has those of two others; its
    step says whether it has."""

    path: Path

    def __call__(self, scenario: Scenario) -> JudgedLayout:
        kept = True
        if scenario.training.micro_batch == 1:
            for _ in range(1000):
                if kept := len(self.path.read_text(encoding="utf-8").splitlines()) >= 3:
                    break
                time.sleep(0.01)
        return JudgedLayout(step_time_s=1.0 if kept else 2.0, peak_memory_bytes=2.0, capacity_bytes=3.0)

    def floor_s(self, scenario: Scenario) -> float:
        return 0.5

    def least(self, scenario: Scenario) -> LeastStep:
        return LeastStep(self(scenario))


def test_what_others_did_is_kept_before_the_one_that_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepsim.sim.plan.search.workers.may_fork", lambda: True)  # threads of other tests
    path = tmp_path / "plan.jsonl"
    layouts = [small(training__micro_batch=size) for size in (1, 2, 4)]
    workers = Local(Answering(FirstWaits(path)), 2, after_s=0.0)
    judging = Judging(scenario_of=layouts.__getitem__, workers=workers, journal=Journal(path=path))
    try:
        results = judging(range(3))
        assert next(results).step_time_s == 1.0
        assert list(judging.known) == [0]
        assert not judging.remembered
        assert [one.step_time_s for one in results] == [1.0, 1.0]
    finally:
        workers.close()
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4
    assert len(Journal(path=path).known) == 3


def test_what_was_done_ahead_counts_when_a_search_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes while the first is awaited, and two others are done."""
    whole = Judging.__call__
    seen: list[int] = []

    def interrupted(judging: Judging, numbers: Iterable[int]) -> Generator[JudgedLayout, None, None]:
        if seen:
            yield from whole(judging, numbers)
            return
        seen.extend(itertools.islice(numbers, 2))
        judging.ahead(seen)
        raise KeyboardInterrupt

    monkeypatch.setattr(Judging, "__call__", interrupted)
    try:
        found = plan(small(), fix=FIX, audit=0, jobs=1)
    except KeyboardInterrupt:
        pytest.fail("what was done ahead is not told")
    assert found.certificate.interrupted
    assert not found.certificate.optimal
    assert len(found.choices) == len(seen)


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_journal_whose_first_line_was_cut_off_begins_anew(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    Journal(path=path)
    path.write_text(path.read_text(encoding="utf-8")[:kept], encoding="utf-8")
    judged = JudgedLayout(step_time_s=1.0, peak_memory_bytes=2.0, capacity_bytes=3.0)
    Journal(path=path).add("one", judged)
    assert Journal(path=path).known == {"one": judged}
