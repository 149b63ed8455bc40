"""Notes: what is told to do nothing does nothing, and what does something is not told so."""

from __future__ import annotations

from typing import Any

import pytest

from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

RATIO = "cluster.fabric.oversubscription"


def run(name: str, **changes: Any) -> Result:
    return simulate(load_scenario(name, {key.replace("__", "."): value for key, value in changes.items()}))


def noted(result: Result) -> set[str]:
    return {one.source for one in result.assumptions if one.note}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["llama3-8b-h100", "llama3-70b-h100", "gpt3-175b-a100", "nemotron4-15b-h100"]
)
@pytest.mark.parametrize("ratio", [2, 7])
def test_oversubscription_that_is_noted_changes_nothing(name: str, ratio: int) -> None:
    plain, narrow = run(name), run(name, cluster__fabric__oversubscription=ratio)
    if RATIO in noted(narrow):
        assert narrow.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    else:
        assert narrow.step_time_s > plain.step_time_s


def test_links_that_do_not_bind_are_noted_with_the_reason() -> None:
    inside = run("llama3-8b-h100", cluster__fabric__oversubscription=2)
    leaf = run("llama3-70b-h100", cluster__fabric__oversubscription=2)
    texts = [one.text for result in (inside, leaf) for one in result.assumptions if one.source == RATIO]
    assert len(set(texts)) == 2


def test_recomputing_fused_attention_is_noted_and_saves_nothing() -> None:
    none, selective = (run("llama3-8b-h100", training__recompute=kind) for kind in ("none", "selective"))
    assert "training.recompute" in noted(selective)
    assert "training.recompute" not in noted(none)
    assert selective.step_time_s > none.step_time_s
    assert selective.peak_memory_bytes == pytest.approx(none.peak_memory_bytes, rel=1e-3)


def test_recomputing_unfused_attention_is_not_noted_and_saves_memory() -> None:
    name = "gpt-22b-a100"
    none, selective = (
        run(name, training__recompute=kind, software__attention="unfused") for kind in ("none", "selective")
    )
    assert "training.recompute" not in noted(selective)
    assert selective.peak_memory_bytes < 0.95 * none.peak_memory_bytes
