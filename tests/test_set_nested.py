"""Changes by ``--set``: fields inside a catalogue model's blocks, Megatron's names of recomputation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refused_at

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.model.catalogue import get_model

FILE = """
model: {model}
cluster: {{gpu: H100-SXM5-80GB, gpus: 16, interconnect: ib-ndr400-x8}}
parallelism: {{pp: 2}}
training: {{global_batch: 32, micro_batch: 1, seq_length: 2048, precision: bf16, recompute: {recompute}}}
schedule: 1f1b
software: megatron-core-2025
"""


def loaded(folder: Path, *changes: str, recompute: str = "none", model: str = "mixtral-8x7b") -> Any:
    file = folder / "run.yaml"
    file.write_text(FILE.format(model=model, recompute=recompute))
    return load_scenario(file, changes)


def test_one_field_of_a_catalogue_models_experts(tmp_path: Path) -> None:
    before = get_model("mixtral-8x7b").moe
    assert before is not None
    moe = loaded(tmp_path, "model.moe.capacity_factor=1.25").model.moe
    assert moe == before.model_copy(update={"capacity_factor": 1.25})
    moe = loaded(tmp_path, "model.moe_router_topk=1", "model.moe.node_limit=2").model.moe
    assert (moe.topk, moe.node_limit, moe.num_experts) == (1, 2, before.num_experts)


def test_one_field_of_its_latent_attention(tmp_path: Path) -> None:
    before = get_model("deepseek-v3").mla
    assert before is not None
    found = loaded(tmp_path, "model.mla.q_lora_rank=768", "parallelism.stage_split=uneven_unspecified",
                   model="deepseek-v3").model.mla  # fmt: skip
    assert found == before.model_copy(update={"q_lora_rank": 768})


def test_null_takes_back_a_field_or_the_block(tmp_path: Path) -> None:
    deepseek, split = "deepseek-v3", "parallelism.stage_split=uneven_unspecified"
    assert loaded(tmp_path, "model.mla.q_lora_rank=null", split, model=deepseek).model.mla.q_lora_rank is None
    assert loaded(tmp_path, "model.moe=null").model.moe is None


@pytest.mark.parametrize(
    ("recompute", "changes", "expected"),
    [
        (
            "full",
            ("recompute_method=block", "recompute_num_layers=2"),
            {"kind": "full", "method": "block", "layers": 2},
        ),
        (
            "none",
            ("recompute_granularity=full", "recompute_num_layers=2", "recompute_method=uniform"),
            {"kind": "full", "method": "uniform", "layers": 2},
        ),
        ("{kind: full, layers: 1}", ("recompute_num_layers=3",), {"kind": "full", "layers": 3}),
        ("selective", ("recompute_modules=[layernorm]",), {"kind": "modules", "modules": ("layernorm",)}),
    ],
)
def test_megatrons_names_change_a_scenario(
    tmp_path: Path, recompute: str, changes: tuple[str, ...], expected: dict[str, Any]
) -> None:
    found = loaded(tmp_path, *(f"training.{change}" for change in changes), recompute=recompute)
    assert found.training.recompute.model_dump(exclude_defaults=True) == expected


@pytest.mark.parametrize(
    ("recompute", "change", "words"),
    [
        ("full", "training.recompute_num_layers=2", r"recompute_granularity full takes recompute_method"),
        ("none", "training.recompute_num_layers=2", r"training\.recompute_num_layers.*give recompute_gran"),
        ("none", "training.recompute=foo", "full, modules .*operators"),
        ("none", "training.routing=foo", r"balanced.*kind: zipf, exponent: 0\.5.*kind: counts, file"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, recompute: str, change: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        loaded(tmp_path, change, recompute=recompute)


def test_a_document_without_recompute_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        FILE.format(model="mixtral-8x7b", recompute="none").replace(
            "recompute: none", "recompute_method: block"
        )
    )
    with refused_at("training.recompute_method", "recompute_granularity"):
        load_scenario(file)
