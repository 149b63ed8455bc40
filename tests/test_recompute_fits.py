"""How many layers may be recomputed follows from the layers that stages really hold."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import lowered, scenario

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario


def a_run(recompute: dict[str, Any], **fields: Any) -> Scenario:
    """Eight layers on two stages."""
    whole = {"num_layers": 8, "pp": 2, "schedule": "1f1b", **fields}
    return scenario(recompute={"kind": "full", **recompute}, **whole)


def recomputed(run: Scenario) -> list[int]:
    return [sum(one.count for one in s.runs if "full" in one.recompute) for s in lowered(run).plan.stages]


@pytest.mark.parametrize(
    ("recompute", "fields", "expected"),
    [
        ({"layers": 6}, {"stage_split": [6, 2]}, [6, 2]),
        ({"layers": 5}, {"stage_split": [6, 2]}, [5, 2]),
        ({"layers": 6, "method": "block"}, {"stage_split": [2, 6]}, [2, 6]),
        ({"every": 6}, {"stage_split": [6, 2]}, [1, 0]),
        ({"layers": 7}, {"stage_split": [4, 1, 3, 0], "vpp": 2, "schedule": "interleaved"}, [4, 1, 3, 0]),
        ({"layers": 7}, {"stage_split": [4, 0, 1, 3], "vpp": 2, "schedule": "zb-v"}, [4, 0, 1, 3]),
    ],
)
def test_the_fullest_stage_counts(recompute: Any, fields: Any, expected: list[int]) -> None:
    assert recomputed(a_run(recompute, **fields)) == expected


@pytest.mark.parametrize(
    ("recompute", "fields", "words"),
    [
        ({"layers": 7}, {"stage_split": [6, 2]}, "7 .*6 layers"),
        ({"every": 100}, {}, "every.*100 .*4 layers"),
        ({"every": 5}, {}, "every .*1 to 4"),
        (
            {"layers": 8},
            {"stage_split": [4, 1, 3, 0], "vpp": 2, "schedule": "interleaved"},
            "than the 7 layers",
        ),
    ],
)
def test_more_than_any_stage_holds_is_refused(recompute: Any, fields: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        a_run(recompute, **fields)
