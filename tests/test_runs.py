"""Whole runs of every shipped scenario: a change of any prediction shows here and in the goldens' diff."""

from __future__ import annotations

import json

import pytest
from update_goldens import GOLDENS, SHORTER, summary

from stepsim.sim.scenario.documents import scenario_names

KNOWN = json.loads(GOLDENS.read_text(encoding="utf-8"))
ADVICE = "if this is meant, run: python tests/update_goldens.py"


def test_every_shipped_scenario_has_a_golden() -> None:
    assert sorted(KNOWN) == sorted(scenario_names()), ADVICE


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SHORTER else name for name in scenario_names()],
)
def test_a_shipped_scenario_is_predicted_as_before(name: str) -> None:
    if name not in KNOWN:
        pytest.fail(f"no golden of {name}; {ADVICE}")
    expected = KNOWN[name]
    found = summary(name)
    assert set(found) == set(expected), ADVICE
    for figure, value in found.items():
        # The last digit may differ with the C library.
        assert value == pytest.approx(expected[figure], rel=2e-6, abs=1e-12), f"{figure}: {ADVICE}"
