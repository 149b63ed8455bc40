"""A scenario's software as options of Megatron-LM: overlap, fused kernels, attention, experts, CUDA graphs.

Knows from which version on each option exists. Layout, model and precision are in megatron_lm_export.py.

Source: as of the importer (megatron_software.py, megatron_version.py).
"""

from __future__ import annotations

from ..models import Scenario
from .cuda_graphs import PARTS_SINCE, scopes_told
from .megatron_version import Version

Options = list[tuple[str, object]]
"""Names of options without dashes, in the order in which they are written, each with its value.

``True`` is an option without a value; ``False`` and ``None`` are left out.
"""

_BACKENDS = {"fa2": "flash", "unfused": "unfused"}
"""``--attention-backend`` by attention kernel; cuDNN's is what TransformerEngine chooses by itself."""

_CP_COMM = {"all_gather": "allgather", "a2a": "a2a"}


def software_options(scenario: Scenario, version: Version) -> Options:
    """The options of the scenario's software that the version has."""
    return [
        *_overlap(scenario, version),
        *_pipeline_messages(scenario, version),
        *_gradient_precision(scenario),
        *_attention(scenario, version),
        *_experts(scenario),
        *_cuda_graphs(scenario, version),
    ]


def _overlap(scenario: Scenario, version: Version) -> Options:
    """Overlap of data and tensor parallelism, and the fused loss."""
    software, par = scenario.software, scenario.parallelism
    gradients, loss = software.gradients, software.kernels.cross_entropy
    options: Options = []
    if version >= (4, 4):
        gathers = gradients.overlap_param_gather and par.zero > 0 and gradients.overlap_grad_reduce
        options += [
            ("overlap_grad_reduce", gradients.overlap_grad_reduce),
            ("overlap_param_gather", gathers),
            ("tp_comm_overlap", software.exchange.tp_comm_overlap and par.sequence_parallel),
            ("cross_entropy_loss_fusion", loss in ("fused", "compiled")),
        ]
    if version >= (4, 12) and loss == "fused":
        options.append(("cross_entropy_fusion_impl", "te"))
    return options


def _pipeline_messages(scenario: Scenario, version: Version) -> Options:
    if scenario.parallelism.pp == 1 or version < (4, 4):
        return []
    rule = scenario.software.pipeline.point_to_point
    return [
        ("no_overlap_p2p_communication", rule == "blocking"),
        ("overlap_p2p_communication_warmup_flush", rule == "prefetch-full" and version >= (4, 10)),
    ]


def _gradient_precision(scenario: Scenario) -> Options:
    """Gradients of another width than the version takes by default: FP32, but for FP16 jobs."""
    precision, width = scenario.training.precision, scenario.software.gradients.main_grad_bytes
    if precision == "fp16":
        return [("accumulate_allreduce_grads_in_fp32", True)] if width == 4 else []
    return [("grad_reduce_in_bf16", True)] if precision != "fp32" and width == 2 else []


def _attention(scenario: Scenario, version: Version) -> Options:
    """The attention kernel, and how context parallelism communicates."""
    attention, cp_comm = scenario.software.kernels.attention, scenario.software.exchange.cp_comm
    options: Options = []
    if version >= (4, 6) and attention in _BACKENDS:
        options.append(("attention_backend", _BACKENDS[attention]))
    elif version < (4, 6) and attention == "fa2":
        options.append(("use_flash_attn", True))
    if scenario.parallelism.cp > 1 and cp_comm != "p2p":
        options.append(("cp_comm_type", _CP_COMM[cp_comm]))
    return options


def _experts(scenario: Scenario) -> Options:
    if scenario.model.moe is None:
        return []
    exchange, kernels = scenario.software.exchange, scenario.software.kernels
    eight_bits = scenario.training.precision in ("fp8", "mxfp8", "nvfp4")
    fused = exchange.moe_dispatcher == "deepep" and not exchange.arrivals_indexed_by_torch
    return [
        ("moe_token_dispatcher_type", "alltoall" if exchange.moe_dispatcher == "alltoall" else "flex"),
        ("moe_flex_dispatcher_backend", "hybridep" if exchange.moe_dispatcher == "hybridep" else None),
        ("enable_experimental", fused),
        ("moe_permute_fusion", fused),
        # A scenario has no coefficient; this one is where arguments.py says to start.
        ("moe_aux_loss_coeff", 0.01 if exchange.router_loss else None),
        ("moe_router_fusion", kernels.moe_router_fusion),
        ("moe_router_padding_for_fp8", eight_bits and not kernels.expert_rows_padded),
        ("moe_shared_expert_overlap", exchange.moe_shared_expert_overlap),
        ("overlap_moe_expert_parallel_comm", exchange.moe_a2a_overlap),
    ]


def _cuda_graphs(scenario: Scenario, version: Version) -> Options:
    """Graphs of layers, or of the parts of layers with experts that the version can name."""
    host = scenario.software.host
    if not host.cuda_graphs:
        return []
    parts = scopes_told(host) if scenario.model.moe is not None else []
    kind = "transformer_engine" if parts else "local"
    options: Options = [("cuda_graph_impl", kind) if version >= (4, 15) else ("enable_cuda_graph", True)]
    if parts and version >= PARTS_SINCE:
        options.append(("cuda_graph_scope", " ".join(parts)))
    return options
