"""A good scenario to break, and the problems that loading one finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepsim.sim.scenario.errors import Problem, ScenarioError
from stepsim.sim.scenario.load import load_scenario

GOOD = """\
model: llama3-8b
cluster: {gpu: H100-SXM5-80GB, gpus: 64, interconnect: ib-ndr400-x8}
parallelism:
  tp: 4
  pp: 2
  vpp: 2
training:
  global_batch: 64
  micro_batch: 1
  seq_length: 8192
  precision: bf16
schedule: interleaved
software: megatron-core-2024
"""


def problems(folder: Path, text: str, *overrides: str) -> tuple[Problem, ...]:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(path, overrides)
    assert str(refusal.value).count("\n") >= len(refusal.value.problems) - 1
    return refusal.value.problems


def the_problem(folder: Path, text: str, *overrides: str) -> Problem:
    found = problems(folder, text, *overrides)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]
