"""A program's ops with how often they run: the same as walking it op by op."""

from __future__ import annotations

from collections import Counter

import pytest
from small_scenarios import every_op, lowered

from stepsim.sim.program.program import Op
from stepsim.sim.scenario.load import load_scenario


@pytest.mark.parametrize("name", ["llama3-8b-h100", "deepseek-v2-lite-h100"])
def test_ops_run_as_often_as_when_they_are_walked(name: str) -> None:
    for program in lowered(load_scenario(name)).programs.classes:
        walked: Counter[Op] = Counter()
        for op, times in every_op(program):
            walked[op] += times
        counted: Counter[Op] = Counter()
        for op, times in program.counted_ops():
            counted[op] += times
        assert counted == walked
        assert max(counted.values()) > 1
