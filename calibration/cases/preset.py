"""Which software a case ran, as the simulator's presets know it.

Decided by the case's ``software`` and ``hardware`` blocks: never by its id, source, family or outcome
(tests/test_validation_preset.py permutes those). What the framework's text says is in framework_text.yaml;
what sites are known for where sources are silent, in unstated.py; what recipe files of one release differ in,
in recipes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...sim.scenario.presets import WITHOUT_CUDNN
from ...sim.scenario.software import get_software
from ...sim.scenario.software.software import grouped
from .case import Case, CaseSoftware
from .framework_text import (
    combined_bytes,
    dispatcher_said,
    document_length,
    fields_of_words,
    fields_said,
    loss_chunks,
    models_of,
    preset_said,
)

ReportedRank = Literal["first", "last", "fullest"]
"""The rank whose memory a run printed."""

UNFUSED = {
    "fused_norm": False,
    "fused_activation": False,
    "fused_softmax": False,
    "fused_rope": False,
    "fused_residual": False,
}
"""What ``fused_kernels: false`` means: norm, activation, bias and softmax as chains of small kernels."""

FUSED = {"fused_norm": True, "fused_activation": True, "fused_softmax": True}
"""What ``fused_kernels: true`` says of a trainer whose code nobody read; other presets know better."""

LOSS_COMPILED = ("torchtitan-2025",)
"""Presets whose loss is torch.compile's, and torch's cross_entropy of FP32 logits where a run compiles
nothing (pytorch/torchtitan components/loss.py, build_cross_entropy_loss: ``if training.compile``)."""

BALANCED_IN_TURN = ("automodel-2025", "torchtitan-2025")
"""Presets whose forced balance gives each token the experts that follow those of the token before
(NVIDIA-NeMo/Automodel nemo_automodel/components/moe/layers.py at 01883b41, FakeBalancedGate; torchtitan
models/moe/moe.py, _debug_force_load_balance_routing, as in NousResearch/torchtitan at 16c94e8c). Megatron
core draws logits at random (core/transformer/moe/moe_utils.py, RandomSTE)."""

SAME_NAME = (
    "torch_compile",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "tp_comm_overlap",
    "moe_a2a_overlap",
)
"""Flags of a case that a preset has under the same name, in one of its groups."""


FETCHED_SINCE = 2026
"""The first year of runs whose GEMMs on Hopper fetch their tiles. Twice the time beside a collective was
seen in December 2024 and July 2025, the share of its SMs in January 2026 and with cuBLAS 13.1. JAX runs
cuBLAS, too: its recipes for H100 have ``--xla_gpu_enable_triton_gemm=false`` (AI-Hypercomputer/maxtext
MaxText/configs/a3, NVIDIA/dgxc-benchmarking maxtext/configure.sh at 0b71cfda, NVIDIA/JAX-Toolbox's image)
(docs/decisions/0106-products-that-take-two-passes.md)."""


def products_of(year: int) -> str:
    """What 16-bit GEMMs on Hopper lose beside collectives in runs of a ``year``, as presets name it."""
    return "share" if year >= FETCHED_SINCE else "two-passes"


def preset_of(software: CaseSoftware) -> str:
    """Name of the preset; of a framework that has none, a generic one, whose interval is wider."""
    return preset_said(software.framework, software.year)


def model_facts(software: CaseSoftware) -> dict[str, Any]:
    """Model fields that follow from a case's framework: from its preset, and from the words of its text."""
    return {**models_of(preset_of(software)), **fields_said("model", software.framework)}


def training_facts(software: CaseSoftware) -> dict[str, Any]:
    """What a case's framework's text says of the training itself."""
    return fields_said("training", software.framework) | document_length(software.framework)


def routing_said(case: Case) -> dict[str, str]:
    """How the router of a case was forced to balance, where its source says that it was."""
    if not case.model.moe or not case.software.balanced_routing:
        return {}
    known = "software.balanced_routing" not in case.assumed
    in_turn = known and preset_of(case.software) in BALANCED_IN_TURN
    return {"routing": "in_turn" if in_turn else "forced"}


def software_document(
    software: CaseSoftware,
    gpu: str = "",
    recipe: Mapping[str, Any] | None = None,
    instead: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The ``software`` of a scenario: a preset, and what the case itself says otherwise, but for ``instead``.

    A flag that is None leaves the preset's own value, or that of the ``recipe`` (recipes.py).
    ``fused_kernels: true`` does too, where the preset tells which of its kernels are fused; so does
    ``p2p_overlap: true`` where the preset overlaps by a rule of its own.
    """
    preset = preset_of(software)
    fields: dict[str, Any] = {**(recipe or {}), "attention": software.attention}
    fields |= {name: flag for name in SAME_NAME if (flag := getattr(software, name)) is not None}
    if software.overlap_grad_reduce is not None:
        fields["overlap_assumed"] = "none"  # the source says what runs beside compute
    fields |= dispatcher_said(software.framework)
    if preset in LOSS_COMPILED and not software.torch_compile:
        fields |= fields_of_words("uncompiled loss")
    fields |= fields_said("software", software.framework)
    fields |= combined_bytes(software.framework) | loss_chunks(software.framework)
    if not software.fused_kernels:
        fields |= UNFUSED
    elif preset.startswith("generic-"):
        fields |= FUSED
    fields |= _kernels_as_run(preset, software, gpu)
    if (products := products_of(software.year)) != get_software(preset).kernels.hopper_products:
        fields["hopper_products"] = products
    if software.p2p_overlap is False:
        fields["point_to_point"] = "blocking"
    elif software.p2p_overlap and get_software(preset).pipeline.point_to_point == "blocking":
        fields["point_to_point"] = "async"
    return {"preset": preset, **grouped({**fields, **(instead or {})})}


def _kernels_as_run(preset: str, software: CaseSoftware, gpu: str) -> dict[str, Any]:
    """Kernels that a run used instead of those that the words of its case name."""
    if gpu.startswith("MI") and software.attention in ("cudnn", "fa3"):
        return {"attention": WITHOUT_CUDNN}  # a case's word for TransformerEngine's fused attention
    if preset == "llm-foundry-2023" and software.attention == "fa2":
        # Its benchmarks take attn_impl triton (submit_benchmarks.py): FlashAttention as a Triton kernel.
        # FlashAttention-2 beats that by 1.3 to 2.5, and the first by 1.7 to 3.0 (arXiv:2307.08691, 4.1).
        return {"attention": "fa1"}
    if preset == "mlperf-3.0" and software.attention == "fa2":
        return {"attention": "fa1"}  # May 2023: FlashAttention-2 came in July (arXiv:2307.08691)
    if preset == "aleph-alpha-2023" and software.attention != "fa2":
        # Its RMSNorm kernel is an option beside FlashAttention-2 only (section 3).
        return {"fused_norm": False}
    return {}


WHOLE_SPECS = ("aleph-alpha-2023",)
"""Presets that split everything the model is made of into parts of equal number, not its layers alone."""


def stage_split(
    software: CaseSoftware, split: str | tuple[int, ...], num_layers: int, stages: int
) -> str | list[int]:
    """``parallelism.stage_split`` as the software means the word of a case, or as the case lists it.

    Aleph Alpha's trainer puts the embedding, the layers, the final norm and the head in one list and cuts it
    into parts of equal number, the remainder one each to the first (Aleph-Alpha/scaling
    core/nn/parallel_module/pipeline_partitioning.py, pipe_partition_uniform, its default;
    transformer/model/model.py, get_transformer_layer_specs). So 80 layers on 8 stages are not ten on each:

    >>> from types import SimpleNamespace
    >>> trainer = SimpleNamespace(framework="Aleph Alpha in-house", year=2023)
    >>> stage_split(trainer, "uniform", 80, 8)
    [10, 11, 11, 10, 10, 10, 10, 8]
    """
    if not isinstance(split, str):
        return list(split)
    if (
        preset_of(software) not in WHOLE_SPECS
        or stages == 1
        or split not in ("uniform", "uneven_unspecified")
    ):
        return split
    each, more = divmod(num_layers + 3, stages)
    parts = [each + (stage < more) for stage in range(stages)]
    parts[0] -= 1
    parts[-1] -= 2
    return parts


def reported_rank(software: CaseSoftware) -> ReportedRank:
    """The rank whose memory this software prints: global rank 0, the last one, or the fullest.

    nanotron logs from rank 0 alone (helpers.py, log_memory; the README of the case files says so too). So do
    MLPerf's runs of NeMo 2: max_memory_usage of their logs (the notes of the cases). What Megatron-LM writes
    for TensorBoard is of the last rank (megatron/training/global_vars.py, _set_tensorboard_writer), which is
    in the last stage of a pipeline.
    """
    if "memory of the last rank" in software.framework.lower():
        return "last"
    first = preset_of(software) in ("nanotron-2024", "mlperf-5.0", "mlperf-5.1")
    return "first" if first else "fullest"
