"""The table of memory by pipeline rank, at every width of a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from stepsim.sim.report.memory_table import memory_table
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

LEAST_WIDTH = 50
"""Columns that the rank, its peak, its headroom and the moment take beside the rest."""


@pytest.fixture(scope="module", params=[8192, 65536], ids=["fits", "out of memory"])
def result(request: pytest.FixtureRequest) -> Result:
    found = simulate(load_scenario("llama3-8b-h100", {"training.seq_length": request.param}))
    assert found.memory[0].fits == (request.param == 8192)
    return found


@pytest.mark.parametrize("width", range(LEAST_WIDTH, 180))
def test_headings_are_whole_and_terms_add_up(result: Result, width: int) -> None:
    shown = io.StringIO()
    Console(file=shown, width=width).print(memory_table(result, width))
    heading, *_, rank, _caption = [line for line in shown.getvalue().splitlines() if line.strip()]
    terms = set(result.memory[0].terms)
    assert set(heading.split()) <= {word for name in terms for word in name.split()} | {
        "pp", "other", "peak", "headroom", "at",
    }  # fmt: skip
    figures = rank.replace("OOM ", "").replace(",", "").split()
    names = heading.split()
    peak = names.index("peak")
    assert sum(map(float, figures[1:peak])) == pytest.approx(float(figures[peak]), abs=0.05 * peak)
