"""Runs that no constant has seen: each is a legal scenario, and the page says what it took and where from."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.cases.to_scenario import to_scenario

pytestmark = pytest.mark.xdist_group("unseen runs")  # their files are read once

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests" / "data" / "unseen").glob("*.yaml"))
ADDRESS = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+/(blob/[0-9a-f]{40}/\S+|(issues|pull|discussions)/\d+)|https://docs\.nvidia\.com/\S+"
    r"|https://arxiv\.org/abs/\d{4}\.\d{5}|https://huggingface\.co/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+"
    r"|https://[\w-]+\.github\.io/\S+|https://gist\.github\.com/[\w-]+/[0-9a-f]{32}"
    r"|https://github\.com/[\w.-]+/[\w.-]+/tree/[\w.-]+-\d{8}"
)
"""A file at a commit, a thread, a page of a vendor's documentation or of its author, a gist, the branch of a
dated report, or a paper."""


@functools.cache
def cases_of(path: Path) -> tuple[Case, ...]:
    return read_cases(path)


@functools.cache
def rows_of_the_page() -> dict[str, list[str]]:
    """The rows of its tables by their first column."""
    rows: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "unseen-runs.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            rows.setdefault(line.split(" |")[0][2:], []).append(line)
    return rows


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_run_is_a_scenario_with_its_figure_on_the_page(path: Path) -> None:
    for case in cases_of(path):
        run = to_scenario(case)
        assert run.world_size == case.hardware.gpus, case.id
        assert run.training.global_batch == case.layout.global_batch, case.id
        address = case.notes.split()[-1]
        assert ADDRESS.fullmatch(address), case.id
        (row,) = rows_of_the_page()[case.id]
        step_s = case.measured.step_time_s
        assert f"[{'out of memory' if step_s is None else f'{step_s:.4g} s'}]({address})" in row


def test_the_runs_are_of_no_source_that_shaped_a_constant(shared: Path) -> None:
    files = [
        path for folder in ("cases", "second/cases") for path in (shared / "data" / folder).glob("*.yaml")
    ]
    seen = [case for path in files for case in read_cases(path)]
    unseen = [case for path in FILES for case in cases_of(path)]
    assert seen
    assert len({case.id for case in unseen}) == len({measurement(case) for case in unseen}) == len(unseen)
    assert not {case.id for case in seen} & {case.id for case in unseen}
    assert not {measurement(case) for case in seen} & {measurement(case) for case in unseen}


def measurement(case: Case) -> tuple[object, ...]:
    """What two rows have in common that tell of one run, whoever tells it and under which name."""
    model, hardware = case.model, case.hardware
    size = (model.num_layers, model.hidden_size, model.seq_length)
    measured: object = case.measured.step_time_s and round(case.measured.step_time_s, 4)
    if measured is None:  # out of memory: all that it tells is in which layout
        measured = (case.layout, model.vocab_size)
    return (hardware.gpu, hardware.gpus, *size, case.layout.precision, measured)
