"""Measured cases made by hand, for the tests of validation."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from stepsim.calibration.cases.case import Case, build
from stepsim.sim.result.step import StageMemory

CASE_KEYS = (
    "id",
    "family",
    "source",
    "regime",
    "trust",
    "measured_step_time_s",
    "predicted_step_time_s",
    "error",
    "measured_memory_bytes",
    "predicted_memory_bytes",
    "measured_outcome",
    "predicted_outcome",
    "fit_probability",
    "refused",
    "predicted_interval_s",
)
"""Keys of a case of `validate --json`, in their order."""

_CASE: dict[str, Any] = {
    "id": "one",
    "family": "gpt",
    "trust": "high",
    "hardware": {
        "gpu": "A100-SXM4-80GB",
        "gpus": 64,
        "gpus_per_node": 8,
        "interconnect": "ib-hdr200-x8",
    },
    "model": {
        "num_layers": 48,
        "hidden_size": 6144,
        "num_attention_heads": 64,
        "num_query_groups": 64,
        "kv_channels": 96,
        "ffn_hidden_size": 24576,
        "vocab_size": 51200,
        "seq_length": 2048,
        "mlp": "gelu",
        "tied_embeddings": True,
        "attention": "mha",
        "moe": None,
        "mla": None,
        "mtp_layers": 0,
    },
    "layout": {
        "tp": 8,
        "pp": 4,
        "vpp": 3,
        "cp": 1,
        "ep": 1,
        "etp": 1,
        "dp": 2,
        "zero": 1,
        "fsdp_shard_size": None,
        "sequence_parallel": True,
        "schedule": "interleaved",
        "stage_split": "uniform",
        "micro_batch": 1,
        "global_batch": 64,
        "recompute": "selective",
        "precision": "fp16",
        "cpu_offload": False,
    },
    "software": {
        "framework": "Megatron-LM",
        "year": 2022,
        "attention": "unfused",
        "fused_kernels": True,
        "torch_compile": False,
        "overlap_grad_reduce": None,
        "overlap_param_gather": None,
        "tp_comm_overlap": False,
        "p2p_overlap": None,
        "moe_a2a_overlap": None,
        "balanced_routing": None,
    },
    "measured": {"step_time_s": 10.0, "memory_bytes": None, "memory_kind": None, "outcome": "ok"},
    "measured_network": None,
    "assumed": ["software.p2p_overlap"],
    "notes": "",
}

NETWORK = {
    "all_reduce_gbps": 425.34,
    "all_gather_gbps": 241.26,
    "reduce_scatter_gbps": 241.67,
    "all_reduce_intra_gbps": 423.7,
    "all_gather_intra_gbps": 241.59,
    "reduce_scatter_intra_gbps": 240.63,
}

MOE = {
    "num_experts": 8,
    "topk": 2,
    "expert_ffn_hidden_size": 4096,
    "num_shared_experts": 0,
    "shared_expert_ffn_hidden_size": 0,
    "num_dense_layers": 0,
    "capacity_factor": None,
}


def case_document(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A sound case with the fields of ``changes``, by dotted name, set otherwise."""
    document = copy.deepcopy(_CASE)
    for dotted, value in (changes or {}).items():
        *blocks, key = dotted.split(".")
        block = document
        for name in blocks:
            block = block[name]
        block[key] = value
    return document


A_CASE = build(case_document())


def a_case(gpu: str, precision: str, **layout: Any) -> Case:
    """That case on another GPU, in another precision and layout."""
    return replace(
        A_CASE,
        hardware=replace(A_CASE.hardware, gpu=gpu),
        layout=replace(A_CASE.layout, precision=precision, **layout),
    )


def write_cases(path: Path, cases: Sequence[Mapping[str, Any]]) -> Path:
    """A file of cases at ``path``."""
    source = {"title": "made by hand", "url": "none", "retrieved_from": "none"}
    path.write_text(yaml.safe_dump({"schema": 1, "source": source, "cases": list(cases)}, sort_keys=False))
    return path


def stage_memory(pp: int, **terms: float) -> StageMemory:
    """Memory of pipeline rank ``pp`` with these terms at its peak."""
    return StageMemory(
        pp=pp,
        terms=terms,
        peak_bytes=sum(terms.values()),
        peak_s=0.0,
        peak_action="0F0",
        static_bytes=terms.get("weights", 0.0),
        capacity_bytes=100.0,
    )
