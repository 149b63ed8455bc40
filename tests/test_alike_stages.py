"""Stages that hold the same are looked at once: their blocks, their tensors and their activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stepsim.sim.brief.search import Search
from stepsim.sim.lowering import parameter_slices, pipeline
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario


def job(**changes: Any) -> Scenario:
    """32 virtual stages of two layers each on eight ranks; the first has the embedding, the last the head."""
    fields = {
        "model.num_layers": 64,
        "cluster.gpus": 64,
        "cluster.interconnect": "ib-ndr400-x8",
        "parallelism.tp": 2,
        "parallelism.pp": 8,
        "parallelism.vpp": 4,
        "parallelism.dp": None,
        "parallelism.zero": 1,
        "schedule": "interleaved",
        "training.global_batch": 64,
        "training.micro_batch": 1,
        "training.recompute": "none",
        "software": "megatron-core-2025",
    }
    return load_scenario("llama3-8b-h100").with_(fields | changes)


def test_blocks_are_asked_for_once_of_stages_that_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, bool, bool]] = []
    real = pipeline.action_blocks

    def counted(action: Any, stage: Any, blocks: Any) -> Any:
        asked.append((action.kind, stage.embedding, stage.head))
        return real(action, stage, blocks)

    monkeypatch.setattr(pipeline, "action_blocks", counted)
    assert Search().floor_of(job()) > 0.0
    assert len(asked) == len(set(asked)) == 6  # forward and backward, of the first, the last and all others


def test_tensors_are_listed_once_for_stages_that_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = parameter_slices.tensors_of

    def counted(plan: Any, stage: int) -> Iterator[Any]:
        asked.append(stage)
        return real(plan, stage)

    monkeypatch.setattr(parameter_slices, "tensors_of", counted)
    Search().floor_of(job())
    assert sorted(asked) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 31]  # of each rank one, and both ends
