"""A planner by rule of thumb: what an engineer chooses from the guides, without any simulator.

The recipe is Megatron's: tensor parallelism inside the host, the smallest model-parallel size that fits, the
pipeline only where that does not do, the distributed optimizer, no full recomputation unless nothing else
fits, then microbatches and chunks as many as there are. Whether a layout fits is the textbook's bill of
weights, gradients, optimizer state and activations against nine tenths of a GPU.

Sources: NVIDIA Megatron-Bridge docs/performance-guide.md and
skills/nemo-mbridge-perf-parallelism-strategies/SKILL.md; bigscience train/tflops_optimization.md; for bytes
of activations Korthikanti et al. 2022, arXiv:2205.05198, table 2; for 18 bytes a parameter, and 6 beside 12
over the replicas, Megatron core's distributed optimizer guide (docs/dist_optimizer.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....hardware.gpus import get_gpu
from ...cases.case import Case, CaseLayout, CaseModel

USABLE = 0.9
"""Share of a GPU's memory that tuners fill: they leave a tenth free (AMD Primus
docs/02-user-guide/tuning-agent.md)."""

_STATE, _GRADIENTS, _WEIGHTS = 12.0, 4.0, 2.0
"""Bytes a parameter: FP32 weights and two moments, FP32 gradients, 16-bit weights."""


def by_thumb(cases: Sequence[Case]) -> list[int]:
    """Numbers of the layouts that it would try, best first: those that fit by the textbook, else the
    smallest."""
    order = sorted(range(len(cases)), key=lambda place: preference(cases[place]))
    fitting = [place for place in order if _bytes(cases[place]) <= _usable_bytes(cases[place])]
    return fitting or [min(order, key=lambda place: _bytes(cases[place]))]


def preference(case: Case) -> tuple[object, ...]:
    """What the recipe orders layouts by, the best first."""
    layout = case.layout
    return (
        _recompute(layout) == "full",
        layout.tp > case.hardware.gpus_per_node,
        layout.tp * layout.pp * layout.cp,
        layout.pp,
        layout.zero == 0,
        -layout.micro_batch,
        -layout.vpp,
        case.id,
    )


def _recompute(layout: CaseLayout) -> str:
    return layout.recompute if isinstance(layout.recompute, str) else "full"


def _usable_bytes(case: Case) -> float:
    return USABLE * get_gpu(case.hardware.gpu).hbm_bytes


def _bytes(case: Case) -> float:
    """Bytes that the first pipeline rank needs; it holds the most microbatches."""
    model, layout = case.model, case.layout
    held = _parameters(model) / (layout.tp * layout.pp)
    shards = layout.dp * layout.cp
    each = _WEIGHTS / (shards if layout.zero == 3 else 1)
    each += _GRADIENTS / (shards if layout.zero >= 2 else 1)
    each += _STATE / (shards if layout.zero >= 1 else 1)
    microbatches = layout.global_batch // (layout.dp * layout.micro_batch)
    layers = model.num_layers / layout.pp * min(layout.pp, max(microbatches, 1))
    return held * each + layers * _layer_bytes(model, layout, case.software.attention)


def _layer_bytes(model: CaseModel, layout: CaseLayout, attention: str) -> float:
    """Activations of a layer and microbatch (Korthikanti et al., table 2)."""
    tokens = model.seq_length / layout.cp * layout.micro_batch
    wide = tokens * model.hidden_size
    if _recompute(layout) == "full":
        return 2 * wide
    scores = 5 * model.num_attention_heads * model.seq_length / model.hidden_size / layout.tp
    kept = _recompute(layout) == "none" and attention == "unfused"
    whole = 10 / (layout.tp if layout.sequence_parallel else 1) + 24 / layout.tp
    return wide * (whole + (scores if kept else 0.0))


def _parameters(model: CaseModel) -> float:
    """Parameters of matrices and tables; of experts, all of them."""
    hidden, gated = model.hidden_size, 3 if "glu" in model.mlp else 2
    attention = hidden * model.kv_channels * 2 * (model.num_attention_heads + model.num_query_groups)
    mlp = gated * hidden * model.ffn_hidden_size
    if model.moe is not None:
        mlp = gated * hidden * model.moe.expert_ffn_hidden_size * model.moe.num_experts
    tables = (1 if model.tied_embeddings else 2) * model.vocab_size * hidden
    return model.num_layers * (attention + mlp) + tables
