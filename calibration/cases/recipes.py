"""What the recipes of one software release differ in by GPU, precision and kind of model.

NVIDIA's releases are run by recipe files, one for each model, GPU and precision, whose settings no case
states. Knows these facts alone, each with the file that it was read off; which preset a release is, is in
preset.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFact:
    """Fields of the software of ``presets`` where all that is said of a run holds.

    ``gpus`` are beginnings of their names, ``widths`` hidden sizes, which tell the models of a release apart;
    what is empty or None says nothing. ``release`` is a regular expression that the framework's text has to
    match, of facts that a preset's releases differ in. ``order`` is that of the rank grid, fastest axis
    first. ``instead`` holds over what a case says, too: what the code of a run does where the settings that
    its case was read off have no effect.
    """

    presets: tuple[str, ...]
    release: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    instead: Mapping[str, Any] = field(default_factory=dict, hash=False)
    order: str | None = None
    gpus: tuple[str, ...] = ()
    least_gpus: int = 0
    precisions: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    experts: bool | None = None
    tensor_parallel: bool | None = None
    virtual_stages: bool | None = None
    one_host: bool | None = None

    def holds(self, preset: str, case: Case) -> bool:
        """Whether the fact is one of ``case``, which runs ``preset``."""
        said = (
            (self.experts, case.model.moe is not None),
            (self.tensor_parallel, case.layout.tp > 1),
            (self.virtual_stages, case.layout.vpp > 1),
            (self.one_host, case.hardware.gpus <= case.hardware.gpus_per_node),
        )
        return (
            preset in self.presets
            and re.search(self.release, case.software.framework) is not None
            and (not self.gpus or case.hardware.gpu.startswith(self.gpus))
            and case.hardware.gpus >= self.least_gpus
            and (not self.precisions or case.layout.precision in self.precisions)
            and (not self.widths or case.model.hidden_size in self.widths)
            and all(wanted is None or wanted == is_so for wanted, is_so in said)
        )


STAGES_BEFORE_REPLICAS = "tp-cp-ep-pp-dp"
"""Megatron core's ``use_tp_pp_dp_mapping``: all stages of a replica lie side by side, where they may share an
NVLink domain, and replicas lie apart (Megatron-LM core parallel_state.py, initialize_model_parallel)."""

UNTIL_26_04 = r"26\.0[0-3]|26\.04(?!\.)"
"""Releases of Megatron-Bridge of 2026 before 26.04.01."""

_BRIDGE = ("megatron-bridge-2025", "megatron-bridge-2026", "megatron-bridge-26.06")

RECIPE_FACTS = (
    # mosaicml/llm-foundry scripts/train/benchmarking: the table of A100 of 40 GB (bf16, mixed precision PURE)
    # is of torch 1.13, submit_benchmarks.py's first default, whose checkpoints run as a whole; those of A100
    # of 80 GB and of H100 (amp_bf16, DEFAULT; pull request 543) came with torch 2.1 (h100new.csv at beb8dee,
    # column Image: the nightly of 2023-08-27).
    RecipeFact(
        presets=("llm-foundry-2023",),
        gpus=("A100-SXM4-40GB",),
        fields={"recompute_stops_early": False},
    ),
    # The same: fc_type te under fp8, whose checkpoints train.py makes reentrant. TransformerEngine's products
    # make the gradients of biases.
    RecipeFact(
        presets=("llm-foundry-2023",),
        precisions=("fp8",),
        fields={"recompute_stops_early": False, "bias_grad_apart": False},
    ),
    # Megatron-Bridge scripts/performance/configs of 2025, for Qwen3 (set_qwen3_specific_overrides) and for
    # DeepSeek-V3 (set_deepseek_v3_common_configs) alike: moe_router_fusion True.
    RecipeFact(presets=("megatron-bridge-2025",), experts=True, fields={"moe_router_fusion": True}),
    # NVIDIA-NeMo/Automodel examples/benchmark/configs, every model with experts: fake_balanced_gate, of which
    # weights and indices are constants (components/moe/layers.py, FakeBalancedGate: no scores, no top-k).
    RecipeFact(presets=("automodel-2025",), experts=True, fields={"moe_router_fusion": True}),
    # pytorch/torchtitan benchmarks/llama3_8b_h200_2025-06_torchtitan.md at bcdeaa37: its command has
    # float8.enable_fsdp_float8_all_gather, with one reduction of all scales a step.
    RecipeFact(
        presets=("torchtitan-2025",),
        gpus=("H200",),
        precisions=("fp8",),
        widths=(4096,),
        fields={"fp8_parameters": True},
    ),
    # NVIDIA/dgxc-benchmarking nemo_megatron/gpt3_175b_hydra.yaml, and NeMo-Framework-Launcher
    # conf/training/gpt3/175b_fp8.yaml: optim.grad_sync_dtype bf16, bucket_cap_mb 220
    RecipeFact(
        presets=("nemo-2024",), widths=(12288,), fields={"main_grad_bytes": 2, "bucket_elements": 1.15e8}
    ),
    # dgxc-benchmarking nemotron/nemotron4-340b-synth.yaml: the same, bucket_cap_mb 50, and
    # cross_entropy_loss_fusion
    RecipeFact(
        presets=("nemo-2024",),
        widths=(18432,),
        fields={"main_grad_bytes": 2, "bucket_elements": 2.6e7, "cross_entropy": "fused"},
    ),
    # dgxc-benchmarking ran GPT-3 175B under NeMo 24.05 as long as it did (nemo_megatron/launch.sh FW_VERSION,
    # CHANGELOG): the optimizer of Apex, a loss that is not fused, and NVTE_FUSED_ATTN 0 (configure.sh), which
    # leaves FlashAttention-2.
    RecipeFact(
        presets=("nemo-2025",),
        widths=(12288,),
        fields={"cross_entropy": "vocab-parallel", "casts_by_slice": False, "bucket_elements": 1.15e8},
        instead={"attention": "fa2"},
    ),
    # NVIDIA/NeMo scripts/performance/recommended_model_configs/model_configs_gb200.csv at 06c0e700, column
    # cuda_graphs of bf16 and fp8: 1 for 8B, 15B and 175B, for Mixtral 8x7B, and for 340B under fp8; 0 for 70B
    # and 405B.
    RecipeFact(
        presets=("nemo-2025",),
        gpus=("GB200",),
        precisions=("bf16", "fp8"),
        widths=(4096, 6144, 12288),
        experts=False,
        fields={"cuda_graphs": True},
    ),
    RecipeFact(
        presets=("nemo-2025",),
        gpus=("GB200",),
        precisions=("bf16", "fp8"),
        widths=(4096,),
        experts=True,
        fields={"cuda_graphs": True},
    ),
    # NVIDIA/dgxc-benchmarking passes --cuda_graphs true for both sizes of Nemotron-4 and both precisions on
    # GB200 (nemotron/launch.sh at 1f6d9f40), and on B200 and GB300 (nemotron4-15b/launch.sh at 46e42015,
    # nemotron4-340b/launch.sh at db1b14c4), over the table's 0 for 340B under bf16.
    RecipeFact(
        presets=("nemo-2025",),
        gpus=("GB",),
        precisions=("bf16", "fp8"),
        widths=(6144, 18432),
        experts=False,
        fields={"cuda_graphs": True},
    ),
    # Megatron-Bridge scripts/performance/configs, perf_recipes/*/h100: no graphs under FP8, no fused grouped
    # MLP, moe_flex_dispatcher_backend deepep.
    RecipeFact(
        presets=("megatron-bridge-2026", "megatron-bridge-26.06"),
        gpus=("H",),
        fields={"cuda_graphs": False, "grouped_gemm": "streams", "moe_dispatcher": "deepep"},
    ),
    # cutedsl_fused_grouped_mlp is of MXFP8 and NVFP4 (perf_recipes/_common.py); in 16 bits GroupedLinear
    # issues a product for each expert (TransformerEngine pytorch/cpp_extensions/gemm.py,
    # general_grouped_gemm).
    RecipeFact(
        presets=("megatron-bridge-26.06",),
        precisions=("bf16",),
        experts=True,
        fields={"grouped_gemm": "streams"},
    ),
    # Qwen3 235B, scripts/performance/configs/qwen/qwen3_llm_pretrain.py and qwen3_workload_base_configs.py
    # (at f29a269f): on B200 and B300 moe_token_dispatcher_type alltoall and no cuda_graph_impl; of B300 until
    # pull request 3490 of May 2026, which is in 26.04.01, and with moe_a2a_overlap where stages are virtual.
    RecipeFact(
        presets=("megatron-bridge-2026",),
        widths=(4096,),
        experts=True,
        gpus=("B200",),
        fields={"moe_dispatcher": "alltoall", "cuda_graphs": False},
    ),
    RecipeFact(
        presets=("megatron-bridge-2026",),
        release=UNTIL_26_04,
        widths=(4096,),
        experts=True,
        gpus=("B300",),
        fields={"moe_dispatcher": "alltoall", "cuda_graphs": False},
    ),
    RecipeFact(
        presets=("megatron-bridge-2026",),
        release=UNTIL_26_04,
        widths=(4096,),
        experts=True,
        gpus=("B300",),
        virtual_stages=True,
        fields={"moe_a2a_overlap": True},
    ),
    # GPT-OSS, models/gpt_oss/gpt_oss_bridge.py: bias_dropout_fusion False, moe_token_dispatcher_type alltoall
    # unless a recipe names another. Its recipes, scripts/performance/configs/gpt_oss and
    # perf_recipes/gpt_oss: graphs on GB300 and B300 alone (cuda_graph_impl), HybridEP on B300, and from 26.04
    # to 26.06 on B200 and GB200 (pull requests 2906, 2915, 3561).
    RecipeFact(presets=_BRIDGE, widths=(2880,), fields={"fused_residual": False}),
    RecipeFact(presets=_BRIDGE, widths=(2880,), gpus=("H", "GB300"), fields={"moe_dispatcher": "alltoall"}),
    RecipeFact(
        presets=("megatron-bridge-26.06",),
        widths=(2880,),
        gpus=("B200", "GB200"),
        precisions=("bf16",),
        fields={"moe_dispatcher": "alltoall"},
    ),
    RecipeFact(
        presets=("megatron-bridge-2026", "megatron-bridge-26.06"),
        widths=(2880,),
        gpus=("B200", "GB200"),
        precisions=("bf16",),
        fields={"cuda_graphs": False},
    ),
    # Its positions are YaRN's, whose scale TransformerEngine's fused rotary kernel does not know: Megatron
    # core from 0.16 on, models/common/embeddings/rope_utils.py, apply_rotary_pos_emb ("mscale is not
    # supported").
    RecipeFact(
        presets=("megatron-bridge-2026", "megatron-bridge-26.06"),
        widths=(2880,),
        fields={"fused_rope": False},
    ),
    # training/mixed_precision.py, bf16_with_nvfp4_mixed: with the random Hadamard transform, whose own kernel
    # takes the maximum (TransformerEngine pytorch/csrc/extensions/normalization.cpp).
    RecipeFact(presets=_BRIDGE, precisions=("nvfp4",), fields={"fused_amax": False}),
    # scripts/performance/configs/llama, llama3_llm_pretrain.py and llama31_llm_pretrain.py, for every GPU:
    # tp_comm_overlap False if precision == "nvfp4" ("TP overlap not supported yet", says MLPerf 5.1's
    # config_common_fp4.sh).
    RecipeFact(presets=_BRIDGE, precisions=("nvfp4",), fields={"tp_comm_overlap": False}),
    # In perf_recipes/qwen/common.py, _enable_hybridep_full_iteration_mxfp8, and deepseek/common.py,
    # _enable_deepseek_full_iteration_mxfp8: use_transformer_engine_op_fuser with
    # NVTE_CUTEDSL_FUSED_GROUPED_MLP, fp8_dot_product_attention
    RecipeFact(
        presets=("megatron-bridge-26.06",),
        gpus=("GB",),
        precisions=("mxfp8", "nvfp4"),
        experts=True,
        fields={"fused_grouped_mlp": True, "fp8_attention": True},
    ),
    # In these files as well, overlap_moe_expert_parallel_comm, which takes virtual stages.
    RecipeFact(
        presets=("megatron-bridge-26.06",),
        gpus=("GB",),
        precisions=("mxfp8", "nvfp4"),
        experts=True,
        virtual_stages=True,
        fields={"moe_a2a_overlap": True},
    ),
    # training_results_v5.0 config_common_cg.sh, sourced by every config of GB200
    RecipeFact(presets=("mlperf-5.0",), gpus=("B", "GB"), fields={"cuda_graphs": True}),
    # pretrain.py of eos-dfw_n64_ngc25.01_nemo and of Cisco's 5.1: DistributedDataParallelConfig with
    # check_for_nan_in_grad; no graph of a whole step can hold the wait that it takes
    RecipeFact(presets=("mlperf-5.0", "mlperf-5.1"), gpus=("H100",), fields={"nan_check": True}),
    RecipeFact(presets=("mlperf-5.0",), gpus=("H200",), fields={"nan_check": True}),
    # training_results_v5.0 llama31_405b: config_GB200_128x4x112xtp4pp8cp2_cg_dplast.sh (tyche_ngpu512), and
    # what is larger; config_GB200_64x4x112xtp4pp8cp2_cg.sh has the order of Megatron core.
    RecipeFact(presets=("mlperf-5.0",), gpus=("GB",), least_gpus=512, order=STAGES_BEFORE_REPLICAS),
    # training_results_v5.1 and v6.0 config_common.sh: TP_PP_DP_MAPPING True; False in DeepSeek-V3's
    # conf/model/671b.yaml, which nothing sets
    RecipeFact(presets=("mlperf-5.1", "mlperf-6.0"), experts=False, order=STAGES_BEFORE_REPLICAS),
    # training_results_v5.1 config_common_fp4.sh: FP8_PARAM_GATHER False
    RecipeFact(presets=("mlperf-5.1",), precisions=("nvfp4",), fields={"fp8_parameters": False}),
    # config_common_fp4.sh: NVTE_NVFP4_DISABLE_RHT 1; config_common_8b.sh: DISABLE_STOCHASTIC_ROUNDING 0
    RecipeFact(
        presets=("mlperf-5.1",), precisions=("nvfp4",), widths=(4096,), fields={"stochastic_casts": True}
    ),
    # config_common_8b.sh: USE_TE_OPS; off where tensors are split (config_GB300_128x4x1xtp2pp1cp4_8b.sh)
    RecipeFact(presets=("mlperf-5.1",), tensor_parallel=False, fields={"fused_quantise": True}),
    # What that fuses quantises 16-bit weights in every forward: TransformerEngine 2.8 pytorch/ops/basic/
    # basic_linear.py, _functional_forward (w = weight_quantizer(w)), which knows of no first microbatch.
    RecipeFact(
        presets=("mlperf-5.1",),
        precisions=("nvfp4",),
        tensor_parallel=False,
        fields={"caches_mlp_weights": False},
    ),
    # config_common_fp8attn.sh, sourced by the FP4 configs of 8B alone; NVTE_DPA_FP8_RECIPE F16 elsewhere
    RecipeFact(
        presets=("mlperf-5.1",), precisions=("nvfp4",), tensor_parallel=False, fields={"fp8_attention": True}
    ),
    # --tp-comm-overlap, which is off unless it is given, is in no file of a model with experts
    # (yanring/Megatron-MoE-ModelZoo model_configs/benchmarking; Megatron-LM examples/mixtral,
    # tests/functional_tests/test_cases/mixtral)
    RecipeFact(
        presets=("megatron-core-2024", "megatron-core-2025"),
        experts=True,
        tensor_parallel=True,
        fields={"tp_comm_overlap": False},
    ),
    # NVIDIA/NeMo collections/llm/recipes/deepseek_v3.py: MegatronCommOverlapCallback(tp_comm_overlap=False)
    RecipeFact(presets=("nemo-2025",), experts=True, widths=(7168,), fields={"tp_comm_overlap": False}),
    # Nebius/results/nebius_b200_n1 and Supermicro/results/AS-4126GS-NBR-LCC, llama31_8b: the logs print
    # bucket_size 768000000; those of more hosts and of 8 bits 134217728
    RecipeFact(
        presets=("mlperf-5.1",),
        gpus=("B",),
        precisions=("nvfp4",),
        one_host=True,
        fields={"bucket_elements": 768e6},
    ),
    # Cisco/benchmarks/llama31_8b/implementations/nemo: the code of 5.0 (FP8_RECIPE delayed,
    # MCORE_CUDA_GRAPH False, tp_only_amax_red True), but for MegatronCommOverlapCallback, which pretrain.py
    # leaves out (main: "# trainer.callbacks.append(get_overlap_callback(cfg))"). It alone reads
    # TP_COMM_OVERLAP, and puts its bucket over that of conf/custom.yaml (BUCKET_SIZE 64), so that here each
    # parameter is a bucket.
    RecipeFact(
        presets=("mlperf-5.1",),
        gpus=("H100",),
        fields={"fp8_scaling": "delayed", "cuda_graphs": False, "fused_amax": False, "fused_quantise": False,
                "logits_fp32": True, "amax_group": "tensor", "bucket_elements": 64},
        instead={"tp_comm_overlap": False},
    ),
    # training_results_v6.0 config_common_fp4.sh: FP8_PARAM_GATHER False, NVTE_NVFP4_DISABLE_RHT 0 (ASUSTeK's
    # copy has "0 to 1"), so that the transform's own kernel takes the maximum, as in Megatron-Bridge above.
    RecipeFact(
        presets=("mlperf-6.0",), precisions=("nvfp4",), fields={"fp8_parameters": False, "fused_amax": False}
    ),
    # config_common_8b.sh: USE_TE_OPS, which config_GB200_256x4x1xtp4pp1cp4_8b.sh and those of 405B take back;
    # BUCKET_SIZE 768000000. What it fuses quantises 16-bit weights in every forward, as in round 5.1.
    RecipeFact(presets=("mlperf-6.0",), widths=(4096,), fields={"bucket_elements": 768e6}),
    RecipeFact(
        presets=("mlperf-6.0",), widths=(4096,), tensor_parallel=False, fields={"fused_quantise": True}
    ),
    # config_common_fp8attn.sh, sourced by the FP4 configs of 8B but for that of eight hosts of B300 (Nebius'
    # config_DGXB300_8x8x1xtp1pp1cp1_8b_fp4.sh), whose run says so; NVTE_DPA_FP8_RECIPE F16 in those of 405B.
    RecipeFact(
        presets=("mlperf-6.0",),
        precisions=("nvfp4",),
        tensor_parallel=False,
        fields={"fp8_attention": True, "caches_mlp_weights": False},
    ),
    # gpt_oss_20b: config_common.sh (BUCKET_SIZE 768000000), config_common_mxfp8.sh (no FP8_PARAM_GATHER and
    # no FP8_DPA), conf/gpt_oss.yaml (cp_comm_type a2a, MOE_ROUTER_FUSION False)
    RecipeFact(
        presets=("mlperf-6.0",),
        widths=(2880,),
        fields={"bucket_elements": 768e6, "fp8_parameters": False, "cp_comm": "a2a"},
    ),
    # deepseekv3_671b: config_common_mxfp8.sh (FP8_DPA), config_GB*.sh (MOE_ROUTER_FUSION), config_common.sh
    # (AVERAGE_IN_COLLECTIVE True)
    RecipeFact(
        presets=("mlperf-6.0",),
        widths=(7168,),
        fields={"fp8_attention": True, "moe_router_fusion": True, "scaled_first": False},
    ),
    # Both, on Blackwell: NVTE_CUTEDSL_FUSED_GROUPED_MLP
    RecipeFact(
        presets=("mlperf-6.0",), gpus=("B", "GB"), experts=True, fields={"fused_grouped_mlp": True}
    ),
    # AMD/benchmarks/llama31_8b: Megatron on ROCm's TransformerEngine
    RecipeFact(
        presets=("mlperf-5.1", "mlperf-6.0"),
        gpus=("MI",),
        fields={"fp8_scaling": "delayed", "cuda_graphs": False, "fused_amax": False, "fused_quantise": False,
                "logits_fp32": True},
    ),
)  # fmt: skip
"""In this order: a later fact holds over an earlier one."""


def recipe_fields(preset: str, case: Case) -> dict[str, Any]:
    """Fields of the software that the recipe of ``case`` has, as no case says it."""
    return _joined(fact.fields for fact in RECIPE_FACTS if fact.holds(preset, case))


def fields_instead(preset: str, case: Case) -> dict[str, Any]:
    """Fields of the software that the code of the run has, whatever ``case`` says."""
    return _joined(fact.instead for fact in RECIPE_FACTS if fact.holds(preset, case))


def recipe_order(preset: str, case: Case) -> str | None:
    """The order of the rank grid that the recipe of ``case`` asks for, if it does and the run has stages."""
    orders = [fact.order for fact in RECIPE_FACTS if fact.order and fact.holds(preset, case)]
    return orders[-1] if orders and case.layout.pp > 1 else None


def _joined(all_fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for fields in all_fields:
        joined |= fields
    return joined
