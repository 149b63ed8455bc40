"""A scenario as a launch script of Megatron-LM: only options that the version has.

What the software fuses and overlaps is in megatron_lm_export_software.py.

Source: as of the importer (megatron_model.py, megatron_layout.py, megatron_software.py, megatron_version.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..chunk_layers import chunk_layers
from ..errors import Mark, Problem, ScenarioError
from ..model.model import Model
from ..models import Scenario
from .importer import Exporter
from .megatron_lm_export_software import Options, software_options
from .megatron_version import SINCE, Version, parse_version

PRESETS = {
    "megatron-2021": "v2.5",
    "megatron-2022-sp": "v3.0",
    "megatron-2023": "23.04",
    "megatron-core-2024": "core_v0.9.0",
}
"""The version that a preset of software is of."""

_CLAMP = 7.0  # of GPT-OSS; what it is, no time depends on

_PRECISIONS = {
    "fp16": ["--fp16"],
    "bf16": ["--bf16"],
    "fp8": ["--bf16"],
    "mxfp8": ["--bf16"],
    "nvfp4": ["--bf16"],
    "fp32": [],
}


def write_script(scenario: Scenario, version: str | None) -> str:
    """The launch script."""
    told = version or version_for(scenario)
    known = parse_version(told)
    options = options_of(scenario, known)
    per_node, gpus = scenario.cluster.gpus_per_node, scenario.cluster.gpus
    each = min(per_node, gpus)
    lines = [
        f"    --{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in options
    ]
    return "\n".join(
        [
            "#!/bin/bash",
            f"# Megatron-LM {told}, for {gpus} {scenario.cluster.gpu_name}. Written by stepsim export.",
            *_environment(scenario),
            "OPTIONS=(",
            *lines,
            ")",
            f"torchrun --nproc_per_node {each} --nnodes {gpus // each} pretrain_gpt.py ${{OPTIONS[@]}}",
            "",
        ]
    )


def _environment(scenario: Scenario) -> list[str]:
    """Variables that the importer reads, and one hardware queue, which keeps communication ahead of compute;
    Megatron-FSDP refuses to start with it.

    Source: megatron/training/arguments.py, validate_args.
    """
    exchange, chunk = scenario.software.exchange, scenario.cluster.message_chunk
    variables = {
        "CUDA_DEVICE_MAX_CONNECTIONS": None if scenario.parallelism.zero > 1 else "1",
        "CUDA_LAUNCH_BLOCKING": "1" if scenario.software.host.launch_blocking else None,
        "NCCL_ALGO": exchange.nccl_algo,
        "NCCL_PROTO": exchange.nccl_proto,
        "NCCL_P2P_NET_CHUNKSIZE": None if chunk is None else f"{float(chunk):.0f}",
    }
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if value]


def version_for(scenario: Scenario) -> str:
    """The version whose software preset the scenario has, else the newest."""
    return PRESETS.get(scenario.software.name, "HEAD")


def options_of(scenario: Scenario, version: Version, *, sharding: bool = True) -> Options:
    """Options by plain name; those that the version has not are left out, for the reading back to tell.

    Without ``sharding`` none says what replicas share: DeepSpeed's forks have that in a file of DeepSpeed's.
    """
    options = [
        *_model(scenario, version),
        *_layout(scenario, version),
        *(_sharding(scenario, version) if sharding else []),
        *_training(scenario, version),
        *software_options(scenario, version),
    ]
    return [
        (name, value)
        for name, value in options
        if value is not None and value is not False and SINCE.get(name, (2, 0)) <= version
    ]


def _model(scenario: Scenario, version: Version) -> Options:
    model = scenario.model
    options: Options = [
        ("num_layers", model.num_layers),
        ("hidden_size", model.hidden_size),
        ("ffn_hidden_size", model.ffn_hidden_size),
        ("num_attention_heads", model.num_attention_heads),
        ("swiglu", model.mlp == "swiglu"),
        ("squared_relu", model.mlp == "relu2"),
        ("activation_func_clamp_value", _CLAMP if model.clamped_gate else None),
        ("normalization", "RMSNorm" if model.norm == "rmsnorm" else None),
        ("position_embedding_type", {"rope": "rope", "none": "none", "learned": None}[model.position]),
        ("untie_embeddings_and_output_weights", not model.tied_embeddings),
        ("disable_bias_linear", not model.biases),
        ("add_qkv_bias", model.qkv_biases),
        ("qk_layernorm", model.qk_norm),
        ("hidden_dropout", model.dropout),
        ("attention_dropout", model.dropout),
        ("mtp_num_layers", model.mtp_layers or None),
        ("seq_length", scenario.training.seq_length),
        ("max_position_embeddings", scenario.training.seq_length),
    ]
    return [*options, *_attention(model), *_vocabulary(scenario, version), *_experts(scenario, version)]


def _attention(model: Model) -> Options:
    """Heads of keys and values (latent, grouped, or one for each of queries), and the window of attention."""
    if model.mla is not None:
        options: Options = [
            ("multi_latent_attention", True),
            ("q_lora_rank", model.mla.q_lora_rank),
            ("kv_lora_rank", model.mla.kv_lora_rank),
            ("qk_head_dim", model.mla.qk_nope_head_dim),
            ("qk_pos_emb_head_dim", model.mla.qk_rope_head_dim),
            ("v_head_dim", model.mla.v_head_dim),
        ]
    else:
        options = [("kv_channels", model.kv_channels)]
        if model.num_query_groups != model.num_attention_heads:
            options += [("group_query_attention", True), ("num_query_groups", model.num_query_groups)]
    if model.sliding_window is not None:
        options += [
            ("window_size", f"{model.sliding_window - 1},0"),
            ("window_attn_skip_freq", model.full_attention_every or None),
        ]
    return options


def _vocabulary(scenario: Scenario, version: Version) -> Options:
    """A tokenizer of as many entries, and the option that pads the table to its rows in this version."""
    model = scenario.model
    # NullTokenizer adds an entry of its own; the rows of the table are told, whatever they are padded to.
    options: Options = [("tokenizer_type", "NullTokenizer"), ("vocab_size", model.vocab_size - 1)]
    if version >= (4, 14):
        options.append(("padded_vocab_size", model.embedding_rows))
    elif model.make_vocab_size_divisible_by not in (None, 128):
        options.append(("make_vocab_size_divisible_by", model.make_vocab_size_divisible_by))
    elif model.embedding_rows == model.vocab_size and model.vocab_size % (128 * scenario.parallelism.tp):
        options.append(("make_vocab_size_divisible_by", max(1, model.vocab_size // scenario.parallelism.tp)))
    return options


def _experts(scenario: Scenario, version: Version) -> Options:
    model = scenario.model
    moe = model.moe
    if moe is None:
        return []
    pattern = [int(model.has_experts(layer)) for layer in range(model.num_layers)]
    frequency: object = None
    if isinstance(moe.layer_freq, tuple) or moe.num_dense_layers:
        frequency = "'" + "[" + ",".join(map(str, pattern)) + "]'"
    elif moe.layer_freq != 1:
        frequency = moe.layer_freq
    return [
        ("num_experts", moe.num_experts),
        ("moe_router_topk", moe.topk),
        ("moe_ffn_hidden_size", moe.expert_ffn_hidden_size),
        ("moe_shared_expert_intermediate_size", moe.shared_expert_ffn_hidden_size or None),
        ("moe_layer_freq", frequency),
        ("moe_expert_capacity_factor", moe.capacity_factor),
        ("moe_pad_expert_input_to_capacity", moe.capacity_factor is not None),
        ("moe_router_num_groups", moe.node_limit + 1 if moe.node_limit else None),
        ("moe_router_group_topk", moe.node_limit),
        ("moe_grouped_gemm", True),
        # Its commit, 022bcb5afe88 (merge request 3274), lies among those of core 0.14.
        ("moe_router_force_load_balancing", scenario.training.routing == "forced" and version >= (4, 14)),
    ]


def _fsdp(version: Version) -> str:
    """The switch of Megatron's FSDP by its name of that version.

    Raises:
        ScenarioError: there is none.
    """
    if version < SINCE["use_custom_fsdp"]:
        newer = f"core_v0.{SINCE['use_custom_fsdp'][1]}.0"
        why = f"Megatron-LM shards gradients and parameters from {newer} on: --to-version {newer} or newer"
        raise ScenarioError([Problem(mark=Mark(file="scenario"), path="parallelism.zero", message=why)])
    return "use_megatron_fsdp" if version >= SINCE["use_megatron_fsdp"] else "use_custom_fsdp"


def _layout(scenario: Scenario, version: Version) -> Options:
    par = scenario.parallelism
    options: Options = [
        ("tensor_model_parallel_size", par.tp),
        ("pipeline_model_parallel_size", par.pp),
        ("context_parallel_size", par.cp if par.cp > 1 else None),
        ("sequence_parallel", par.sequence_parallel),
    ]
    if scenario.model.moe is not None:
        options += [("expert_model_parallel_size", par.ep), ("expert_tensor_parallel_size", par.etp)]
    if par.pp > 1:
        options += _stages(scenario, version)
    return options


def _sharding(scenario: Scenario, version: Version) -> Options:
    par = scenario.parallelism
    options: Options = []
    if par.zero == 1:
        options.append(("use_distributed_optimizer", True))
    elif par.zero > 1:
        strategy = {2: "optim_grads", 3: "optim_grads_params"}[par.zero]
        options += [(_fsdp(version), True), ("data_parallel_sharding_strategy", strategy)]
    if par.fsdp_shard_size:
        options.append(("num_distributed_optimizer_instances", par.dp * par.cp // par.shard_ranks))
    return options


def _stages(scenario: Scenario, version: Version) -> Options:
    """Which layers each chunk has, and how many microbatches go through a chunk in a row."""
    split = chunk_layers(scenario) if _is_uneven(scenario) else None
    options = _even_chunks(scenario) if split is None else _uneven_chunks(scenario, split, version)
    group = scenario.schedule_options.group
    if group:
        options.append(("microbatch_group_size_per_virtual_pipeline_stage", group))
    return options


def _even_chunks(scenario: Scenario) -> Options:
    """Chunks by the layers that each has."""
    par = scenario.parallelism
    options: Options = []
    ends = 0
    if par.stage_split == "embedding_and_loss_as_layers":
        ends = 2
        options += [
            ("account_for_embedding_in_pipeline_split", True),
            ("account_for_loss_in_pipeline_split", True),
        ]
    if par.vpp > 1:
        layers = scenario.model.num_layers + ends
        options.append(("num_layers_per_virtual_pipeline_stage", layers // par.virtual_stages))
    return options


def _uneven_chunks(scenario: Scenario, split: Sequence[int], version: Version) -> Options:
    """A layout of letters; before Megatron core 0.13 the layers of the first stage and of the last."""
    if version < (4, 13):
        return [
            ("decoder_first_pipeline_num_layers", split[0]),
            ("decoder_last_pipeline_num_layers", split[-1]),
        ]
    return [("pipeline_model_parallel_layout", pipeline_layout(scenario, split))]


def pipeline_layout(scenario: Scenario, split: Sequence[int]) -> str:
    """Megatron core's letters for the layers of chunks, quoted: E is the embedding, t a layer, m one of
    multi-token prediction, L the loss; ``|`` stands between two chunks."""
    chunks = ["t" * layers for layers in split]
    chunks[0], chunks[-1] = "E" + chunks[0], chunks[-1] + "m" * scenario.model.mtp_layers + "L"
    return f"'{'|'.join(chunks)}'"


def _is_uneven(scenario: Scenario) -> bool:
    """Whether chunks have layers that Megatron-LM's own division does not give them."""
    split = scenario.parallelism.stage_split
    return isinstance(split, tuple) or (
        split == "uneven_unspecified" and len({*(chunk_layers(scenario) or ())}) > 1
    )


def _training(scenario: Scenario, version: Version) -> Options:
    training = scenario.training
    options: Options = [
        ("micro_batch_size", training.micro_batch),
        ("global_batch_size", training.global_batch),
        *_precision(scenario),
        *_recompute(scenario, version),
    ]
    if training.optimizer.name != "adamw":
        options.append(("optimizer", training.optimizer.name))
        options += [
            ("muon_num_ns_steps", training.optimizer.ns_steps),
            ("muon_tp_mode", training.optimizer.tp_mode),
        ]
    if training.cpu_offload:
        options.append(("optimizer_cpu_offload", True))
    return options


def _precision(scenario: Scenario) -> Options:
    """The types of GEMMs, and how those of 8 bit and less are scaled."""
    training = scenario.training
    options: Options = [(one.lstrip("-"), True) for one in _PRECISIONS[training.precision]]
    if training.precision in ("fp8", "mxfp8"):
        recipe = {"delayed": "delayed", "current": "tensorwise", "blockwise": "blockwise"}[
            scenario.software.kernels.fp8_scaling
        ]
        options += [
            ("fp8_format", "hybrid"),
            ("fp8_recipe", "mxfp8" if training.precision == "mxfp8" else recipe),
        ]
        options.append(("fp8_param_gather", scenario.software.kernels.fp8_parameters))
        if recipe == "delayed":
            options.append(("tp_only_amax_red", scenario.software.exchange.amax_group == "tensor"))
    elif training.precision == "nvfp4":
        options.append(("fp4_format", "e2m1"))
    return options


def _recompute(scenario: Scenario, version: Version) -> Options:
    """Which activations are computed again."""
    recompute = scenario.training.recompute
    if recompute == "full":
        return _full("uniform", 1, version)
    if recompute == "selective":
        return [("recompute_granularity", "selective")]
    if isinstance(recompute, str):
        return []
    if recompute.kind == "full" and recompute.method and recompute.layers:
        return _full(recompute.method, recompute.layers, version)
    if recompute.kind == "modules":
        return [
            ("recompute_granularity", "selective"),
            ("recompute_modules", " ".join(recompute.modules)),
        ]
    return []


def _full(method: str, layers: int, version: Version) -> Options:
    if version < (3, 0):
        return [("activations_checkpoint_method", method), ("activations_checkpoint_num_layers", layers)]
    return [("recompute_granularity", "full"), ("recompute_method", method), ("recompute_num_layers", layers)]


EXPORTER = Exporter(
    name="megatron-lm",
    title="Megatron-LM",
    suffix=".sh",
    write=write_script,
    versioned=True,
    version_for=version_for,
)
