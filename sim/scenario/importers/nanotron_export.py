"""A scenario as nanotron's YAML. Source: as of the importer (nanotron.py)."""

from __future__ import annotations

from typing import Any

import yaml

from ..models import Scenario
from .importer import Exporter


def write_yaml(scenario: Scenario, _version: str | None) -> str:
    """The YAML of a Llama-like run, of any version."""
    document = {
        "general": {"project": "stepsim", "run": "exported", "seed": 42},
        "model": _model(scenario),
        "optimizer": {
            "accumulate_grad_in_fp32": scenario.software.gradients.main_grad_bytes == 4,
            "optimizer_factory": {"name": "adamW"},
            "zero_stage": scenario.parallelism.zero,
        },
        "parallelism": _layout(scenario),
        "tokens": {
            "batch_accumulation_per_replica": scenario.num_microbatches,
            "micro_batch_size": scenario.training.micro_batch,
            "sequence_length": scenario.training.seq_length,
            "train_steps": 100,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def _model(scenario: Scenario) -> dict[str, Any]:
    model = scenario.model
    config = {
        "is_llama_config": True, "num_hidden_layers": model.num_layers, "hidden_size": model.hidden_size,
        "intermediate_size": model.ffn_hidden_size, "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_query_groups, "vocab_size": model.vocab_size, "hidden_act": "silu",
        "tie_word_embeddings": model.tied_embeddings, "max_position_embeddings": scenario.training.seq_length,
        "attention_bias": model.biases,
    }  # fmt: skip
    kinds = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    block: dict[str, Any] = {
        "dtype": kinds.get(scenario.training.precision, "bfloat16"),
        "model_config": config,
    }
    block["make_vocab_size_divisible_by"] = model.make_vocab_size_divisible_by or 1
    elements = scenario.software.gradients.bucket(scenario.parallelism.dp) * 2 / 2**20
    if scenario.software.name.startswith("nanotron") and abs(elements - 25) > 0.1:
        block["ddp_bucket_cap_mb"] = elements
    return block


def _layout(scenario: Scenario) -> dict[str, Any]:
    par, software = scenario.parallelism, scenario.software
    sequence = par.sequence_parallel
    return {
        "dp": par.dp, "pp": par.pp, "tp": par.tp, "context_parallel_size": par.cp,
        "expert_parallel_size": par.ep,
        "pp_engine": "afab" if scenario.schedule == "gpipe" else "1f1b",
        "tp_mode": "REDUCE_SCATTER" if sequence else "ALL_REDUCE",
        "tp_linear_async_communication": bool(software.exchange.tp_comm_overlap and sequence),
        "tp_recompute_allgather": software.exchange.sp_regathers_input,
        "recompute_layer": scenario.training.recompute == "full",
    }  # fmt: skip


EXPORTER = Exporter(name="nanotron", title="nanotron", suffix=".yaml", write=write_yaml)
