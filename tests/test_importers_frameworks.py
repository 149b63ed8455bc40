"""What the files of other frameworks mean, trap by trap: the same word is another thing in each."""

from __future__ import annotations

from typing import Any

import pytest
from framework_files import (
    AXOLOTL,
    BRIDGE,
    DEEPSPEED,
    FSDP,
    MAXTEXT,
    MEGATRON_DEEPSPEED,
    MPT,
    NANO,
    NEMO,
    NEOX,
    OLMO,
    PRIMUS,
    TITAN,
    TORCHTUNE,
)
from importing import imported, refused, scenario


def at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def titan(more: str = "", base: str = TITAN) -> dict[str, str]:
    return {"run.toml": base + more}


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        # dp_shard -1 is the rest, over cp as well; ep never multiplies the world.
        ("tensor_parallel_degree = 2\n", "training.global_batch", 64),
        ("context_parallel_degree = 2\n", "training.global_batch", 64),
        ("context_parallel_degree = 2\n", "parallelism.fsdp_shard_size", None),
        ("tensor_parallel_degree = 2\n", "parallelism.sequence_parallel", True),
        ("data_parallel_replicate_degree = 4\n", "parallelism.fsdp_shard_size", 8),
        # A pipeline splits the local batch, by the size of a part.
        ("pipeline_parallel_degree = 4\n", "training.micro_batch", 1),
        ("pipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = 2\n", "training.micro_batch", 2),
        # First and last stage have a layer less each.
        ("pipeline_parallel_degree = 2\n", "parallelism.stage_split", [16, 16]),
        ("pipeline_parallel_degree = 4\n", "parallelism.stage_split", [8, 9, 8, 7]),
        (
            'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "Interleaved1F1B"\n',
            "parallelism.vpp",
            2,
        ),
        ('pipeline_parallel_degree = 4\npipeline_parallel_schedule = "ZBVZeroBubble"\n', "schedule", "zb-v"),
        # Every second layer by default; a number as text; per operator.
        ("", "training.recompute", {"kind": "full", "every": 2}),
        (
            '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n',
            "training.recompute",
            "op_selective",
        ),
        (
            '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "3"\n',
            "training.recompute",
            {"kind": "full", "every": 3},
        ),
        ('[activation_checkpoint]\nmode = "none"\n', "training.recompute", "none"),
        ("[activation_checkpoint]\nearly_stop = false\n", "software.kernels.recompute_stops_early", False),
        (
            "[compile]\nenable = true\n[activation_checkpoint]\nearly_stop = false\n",
            "software.kernels.recompute_stops_early",
            True,
        ),
        ("", "parallelism.zero", 3),
        ("", "software.sharding.reshard_after_forward", "default"),
        ("", "software.kernels.torch_compile", False),
        ("[compile]\nenable = true\n", "software.kernels.cross_entropy", "fused"),
        ('[compile]\nenable = true\ncomponents = ["model"]\n', "software.kernels.cross_entropy", "eager"),
        ("context_parallel_degree = 2\n", "software.exchange.cp_comm", "all_gather"),
    ],
)
def test_torchtitan(more: str, path: str, value: object) -> None:
    assert at(imported(titan(more), {"gpus": "32"}).document, path) == value


def test_torchtitan_of_2024_has_other_tables_and_counts_microbatches() -> None:
    text = TITAN.replace("local_batch_size = 4", "batch_size = 32\ntensor_parallel_degree = 1").replace(
        "[parallelism]", "[experimental]"
    )
    text = text.replace(
        "data_parallel_shard_degree = -1", "pipeline_parallel_degree = 8\npipeline_parallel_microbatches = 16"
    )
    made = imported({"run.toml": text}, {"gpus": "64"})
    assert made.document["software"]["preset"] == "torchtitan-2024"
    assert made.document["training"]["micro_batch"] == 2
    assert made.document["training"]["global_batch"] == 256
    left_out = text.replace("pipeline_parallel_microbatches = 16", "")
    assert (
        imported({"run.toml": left_out}, {"gpus": "64"}).document["training"]["micro_batch"] == 4
    )  # a stage each


def test_torchtitan_counts_tokens_later() -> None:
    text = (
        '{"model": {"name": "llama3", "flavor": "8B"}, "training": {"max_context_length": 4096, '
        '"num_tokens_per_microbatch_per_dp_rank": 16384, "num_tokens_per_train_step": 1048576}, '
        '"parallelism": {}, "activation_checkpoint": {"mode": "full"}}'
    )
    made = scenario({"dump.json": text}, {"gpus": "32"})
    assert made.training.micro_batch == 4
    assert made.training.global_batch == 256


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("tensor_parallel_degree = 3\n", "gpus"),
        (
            "data_parallel_replicate_degree = 2\n[parallelism2]\nfoo_parallel = 2\n",
            "parallelism2.foo_parallel",
        ),
        ('[activation_checkpoint]\nmode = "memory_budget"\n', "activation_checkpoint.mode"),
        (
            "enable_async_tensor_parallel = true\ntensor_parallel_degree = 2\n",
            "parallelism.enable_async_tensor_parallel",
        ),
        ('[quantize.linear.float8]\nrecipe_name = "rowwise"\n', "run.toml"),
        ("[optimizer]\nearly_step_in_backward = true\n", "optimizer.early_step_in_backward"),
    ],
)
def test_torchtitan_refuses(more: str, name: str) -> None:
    found = refused(titan(more), {"gpus": "32"})
    assert name in found or (name == "run.toml" and not found)


def test_torchtitan_asks_for_models_that_are_in_its_python() -> None:
    text = TITAN.replace('"8B"', '"9B"')
    assert refused({"run.toml": text}, {"gpus": "32"}) == {"model"}
    assert scenario({"run.toml": text}, {"gpus": "32", "model": "llama3-70b"}).model.num_layers == 80


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (("", ""), "training.global_batch", 64),
        (("", ""), "schedule", "gpipe"),
        (("pp: 2", "pp: 2, pp_engine: 1f1b"), "schedule", "1f1b"),
        (("", ""), "parallelism.sequence_parallel", False),
        (("pp: 2", "pp: 2, tp_mode: REDUCE_SCATTER"), "parallelism.sequence_parallel", True),
        (
            ("pp: 2", "pp: 2, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true"),
            "software.exchange.tp_comm_overlap",
            True,
        ),
        (("", ""), "cluster.gpus", 16),
        (("", ""), "model.make_vocab_size_divisible_by", 1),
        (
            ("accumulate_grad_in_fp32: true", "accumulate_grad_in_fp32: false"),
            "software.gradients.main_grad_bytes",
            2,
        ),
        (("pp: 2", "pp: 2, recompute_layer: true"), "training.recompute", "full"),
    ],
)
def test_nanotron(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"run.yaml": NANO.replace(*change)}).document, path) == value


def test_nanotron_refuses_experts_over_ranks() -> None:
    text = NANO.replace("pp: 2", "pp: 2, expert_parallel_size: 2")
    assert refused({"run.yaml": text}) == {"parallelism.expert_parallel_size"}


HF = {"gpus": "8", "model": "llama3-8b", "seq_length": "4096"}


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (("", ""), "training.global_batch", 64),
        (('"gradient_accumulation_steps": 4', '"train_batch_size": 32'), "training.global_batch", 32),
        (("", ""), "software.gradients.overlap_grad_reduce", True),
        (('"stage": 3', '"stage": 2'), "software.gradients.overlap_grad_reduce", False),
        (('"stage": 3', '"stage": 2, "overlap_comm": true'), "software.gradients.overlap_grad_reduce", True),
        (
            ('"stage": 3', '"stage": 3, "stage3_prefetch_bucket_size": 1e7'),
            "software.sharding.prefetch_elements",
            1e7,
        ),
        (('"stage": 3', '"stage": 2, "offload_optimizer": {"device": "cpu"}'), "training.cpu_offload", True),
        (('"stage": 3', '"stage": 2, "cpu_offload": true'), "training.cpu_offload", True),
        (("", ""), "training.recompute", "none"),
    ],
)
def test_deepspeed_json(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"ds_config.json": DEEPSPEED.replace(*change)}, HF).document, path) == value


def test_deepspeed_json_asks_for_what_auto_stands_for() -> None:
    text = DEEPSPEED.replace(
        '"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4',
        '"train_micro_batch_size_per_gpu": "auto"',
    )
    assert refused({"ds_config.json": text.replace('"enabled": true', '"enabled": "auto"')}, HF) == {
        "train_micro_batch_size_per_gpu",
        "bf16",
    }


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (('"gradient_accumulation_steps": 4', '"train_batch_size": 33'), "train_batch_size"),
        (
            ('"stage": 3', '"stage": 3, "offload_param": {"device": "cpu"}'),
            "zero_optimization.offload_param.device",
        ),
        (
            ('"stage": 3', '"stage": 3, "zero_hpz_partition_size": 8'),
            "zero_optimization.zero_hpz_partition_size",
        ),
        (
            ('"stage": 3', '"stage": 3, "zero_quantized_weights": true'),
            "zero_optimization.zero_quantized_weights",
        ),
        (('"stage": 3', '"stage": 2, "zenflow": {"topk_ratio": 0.1}'), "zero_optimization.zenflow"),
    ],
)
def test_deepspeed_json_refuses(change: tuple[str, str], name: str) -> None:
    assert name in refused({"ds_config.json": DEEPSPEED.replace(*change)}, HF)


def megatron_deepspeed(zero: int, pp: int, more: str = "") -> dict[str, str]:
    return {
        "train.slurm": MEGATRON_DEEPSPEED.replace("ZERO", str(zero))
        .replace("PP", str(pp))
        .replace("MORE", more)
    }


def test_bf16_optimizer_shards_though_stage_0_is_told() -> None:
    made = scenario(megatron_deepspeed(0, 2))
    assert made.parallelism.zero == 1
    assert made.training.recompute == "full"
    assert made.model.embedding_rows == 250880
    assert made.cluster.gpus == 16


def test_embeddings_count_as_layers_where_the_partition_says_so() -> None:
    made = scenario(megatron_deepspeed(0, 8, "--pp-partition-method 'type:transformer|embedding'"))
    assert made.parallelism.stage_split == "embedding_and_loss_as_layers"
    assert refused(megatron_deepspeed(0, 8)) == {"pp_partition_method"}


def test_deepspeeds_pipeline_takes_stages_below_2() -> None:
    assert "--zero-stage" in refused(megatron_deepspeed(2, 2)) | {"--zero-stage"}
    assert refused(megatron_deepspeed(2, 2)) == {"zero_optimization.stage"}
    assert scenario(megatron_deepspeed(2, 1, "--no-pipeline-parallel")).parallelism.zero == 2


def test_a_stage_that_the_json_has_otherwise_is_refused() -> None:
    files = {
        "train.slurm": megatron_deepspeed(1, 2)["train.slurm"].replace("--zero-stage 1", "--zero-stage 0")
    }
    assert refused(files) == {"--zero-stage"}


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (("", ""), "training.global_batch", 32),
        (("", ""), "model.tied_embeddings", True),
        (('"pos_emb"', '"no_weight_tying": true, "pos_emb"'), "model.tied_embeddings", False),
        (("", ""), "model.make_vocab_size_divisible_by", 128),
        (("", ""), "model.ffn_hidden_size", 8192),
        # Gated activations are scaled so that they have as many parameters: two thirds, in two halves.
        (
            (
                '"pos_emb"',
                '"activation": "swiglu", "mlp_multiple_of": 256, "intermediate_size": 32768, "pos_emb"',
            ),
            "model.ffn_hidden_size",
            11008,
        ),
        (("", ""), "training.recompute", "full"),
    ],
)
def test_gpt_neox(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"model.yml": NEOX.replace(*change)}, {"gpus": "8"}).document, path) == value


def test_gpt_neox_merges_files_and_takes_no_key_twice() -> None:
    cluster = '{"vocab-file": "gpt2-vocab.json", "data_path": "/d", "tensorboard_dir": "/t"}'
    files = {"model.yml": NEOX.replace(', "vocab_file": "gpt2-vocab.json"', ""), "local_setup.yml": cluster}
    assert scenario(files, {"gpus": "8"}).model.vocab_size == 50257
    assert "vocab_file" in refused({"model.yml": NEOX, "local_setup.yml": cluster}, {"gpus": "8"})


def test_gpt_neox_refuses_the_residual_of_gpt_j_under_tensor_parallelism() -> None:
    text = NEOX.replace('"pos_emb"', '"gpt_j_residual": true, "pos_emb"')
    assert refused({"model.yml": text}, {"gpus": "8"}) == {"gpt_j_residual"}
    assert (
        refused(
            {"model.yml": text.replace('"model_parallel_size": 2', '"model_parallel_size": 1')}, {"gpus": "8"}
        )
        == set()
    )


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (("", ""), "training.seq_length", 2048),
        (("", ""), "parallelism.zero", 3),
        (("FULL_SHARD", "SHARD_GRAD_OP"), "parallelism.zero", 2),
        (("", ""), "software.gradients.reduce_grad_bytes", None),
        (("PURE", "DEFAULT"), "software.gradients.reduce_grad_bytes", 4),
        (("attn_impl: flash", "attn_impl: triton"), "software.kernels.attention", "fa1"),
        (("", ""), "software.kernels.recompute_stops_early", False),
        (
            ("checkpointing: true", "checkpointing: true, activation_checkpointing_reentrant: false"),
            "software.kernels.recompute_stops_early",
            True,
        ),
        (("", ""), "software.kernels.logged_losses", None),
        (("d_model", "use_train_metrics: false, d_model"), "software.kernels.logged_losses", 0),
        (("", ""), "training.recompute", "full"),
        (("", ""), "training.micro_batch", 8),
        (("device_train_microbatch_size: 8", "device_train_microbatch_size: 64"), "training.micro_batch", 16),
    ],
)
def test_llm_foundry(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"mpt.yaml": MPT.replace(*change)}, {"gpus": "16"}).document, path) == value


def test_llm_foundry_refuses_microbatches_of_unequal_size_and_asks_for_auto() -> None:
    assert refused({"mpt.yaml": MPT.replace("size: 8", "size: 3")}, {"gpus": "16"}) == {
        "device_train_microbatch_size"
    }
    assert refused({"mpt.yaml": MPT.replace("size: 8", "size: auto")}, {"gpus": "16"}) == {
        "device_train_microbatch_size"
    }


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        # Chunks, where Megatron's option of that name counts layers: 96 layers, 8 stages, 6 chunks of 2.
        (("", ""), "parallelism.vpp", 6),
        (("", ""), "cluster.gpus", 128),
        (("", ""), "model.ffn_hidden_size", 49152),
        (("", ""), "parallelism.zero", 1),
        (("", ""), "software.gradients.overlap_grad_reduce", True),
        # Megabytes, of 4-byte gradients.
        (("", ""), "software.gradients.bucket_elements", 400 * 2**20 / 4),
        (("bucket_cap_mb: 400", "grad_sync_dtype: bf16"), "software.gradients.main_grad_bytes", 2),
        (("", ""), "model.tied_embeddings", True),
        (("sequence_parallel: true", "fp8: true\n  fp8_hybrid: true"), "training.precision", "fp8"),
        (("sequence_parallel: true", "fp8: false\n  fp8_hybrid: true"), "training.precision", "bf16"),
    ],
)
def test_nemo(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"run.yaml": NEMO.replace(*change)}).document, path) == value


def test_nemo_takes_its_microbatches_from_the_batch_alone() -> None:
    assert refused(
        {"run.yaml": NEMO.replace("accumulate_grad_batches: 1", "accumulate_grad_batches: 2")}
    ) == {"trainer.accumulate_grad_batches"}


def test_megatron_bridge_recipes() -> None:
    made = scenario({"run.sh": BRIDGE}, {"gpu": "GB200-NVL72", "interconnect": "ib-ndr400-x4"})
    assert made.parallelism.vpp == 8
    assert made.parallelism.sequence_parallel
    assert made.parallelism.zero == 1
    assert made.parallelism.stage_split == "embedding_and_loss_as_layers"
    assert made.software.kernels.fp8_scaling == "current"
    assert made.cluster.gpus_per_domain == 64
    assert scenario({"run.sh": BRIDGE + " --use_megatron_fsdp true"}).parallelism.zero == 3


def test_megatron_bridge_is_told_how_tokens_travel() -> None:
    machine = {"gpu": "GB200-NVL72", "interconnect": "ib-ndr400-x4"}
    told = imported({"run.sh": BRIDGE}, {**machine, "moe_token_dispatcher_type": "flex"}).document
    assert at(told, "software.exchange.moe_dispatcher") == "hybridep"
    assert at(imported({"run.sh": BRIDGE}, machine).document, "software.exchange.moe_dispatcher") is None


def test_megatron_bridge_refuses_offload_of_some_layers() -> None:
    assert "activation_offload_layers" in {
        one.lstrip("-") for one in refused({"run.sh": BRIDGE + " --activation_offload_layers 95"})
    }


def test_primus_reads_defaults_of_variables_and_drops_sequence_parallelism_without_tensors() -> None:
    made = scenario({"run.yaml": PRIMUS}, {"gpus": "8", "gpu": "MI300X"})
    assert made.training.seq_length == 8192
    assert not made.parallelism.sequence_parallel
    assert made.parallelism.zero == 1
    assert (
        scenario({"run.yaml": PRIMUS}, {"gpus": "8", "gpu": "MI300X", "SEQ": "4096"}).training.seq_length
        == 4096
    )


def test_primus_reads_presets_that_are_given() -> None:
    preset = "extends:\n  - base.yaml\nnum_layers: 16\nvocab_size: 1024\n"
    base = "hidden_size: 1024\nnum_attention_heads: 16\nnum_layers: 99\n"
    files = {"run.yaml": PRIMUS, "llama3.1_8B.yaml": preset, "base.yaml": base}
    assert scenario(files, {"gpus": "8"}).model.num_layers == 16


def test_primus_refuses_its_own_schedules() -> None:
    text = PRIMUS.replace(
        "pipeline_model_parallel_size: 1",
        "pipeline_model_parallel_size: 4, patch_primus_pipeline: true, pp_algorithm: zbv",
    )
    assert refused({"run.yaml": text}, {"gpus": "8"}) == {"patch_primus_pipeline", "pp_algorithm"}


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (("", ""), "training.global_batch", 64),
        (("", ""), "parallelism.fsdp_shard_size", 16),
        (
            ("per_device_batch_size: 2", "per_device_batch_size: 0.5\nici_tensor_parallelism: 2"),
            "training.global_batch",
            16,
        ),
        (
            ("remat_policy: full", "remat_policy: minimal_with_context"),
            "training.recompute",
            {"kind": "operators", "keep": ["mm", "attention"]},
        ),
        (("remat_policy: full", ""), "training.recompute", "full"),
        (("remat_policy: full", "quantization: fp8"), "training.precision", "fp8"),
    ],
)
def test_maxtext(change: tuple[str, str], path: str, value: object) -> None:
    text = MAXTEXT.replace(*change)
    if "tensor" in change[1]:
        text = text.replace("ici_fsdp_parallelism: 8", "ici_fsdp_parallelism: 4")
    assert at(imported({"run.yml": text}, {"gpus": "32"}).document, path) == value


def test_maxtext_refuses_tpus_and_policies_that_save_single_projections() -> None:
    assert refused({"run.yml": MAXTEXT.replace("hardware: gpu", "hardware: tpu")}, {"gpus": "32"}) == {
        "hardware"
    }
    assert refused(
        {"run.yml": MAXTEXT.replace("remat_policy: full", "remat_policy: save_qkv_proj")}, {"gpus": "32"}
    ) == {"remat_policy"}


TRAINER = {"model": "llama3-8b", "seq_length": "4096", "per_device_train_batch_size": "1"}


def test_accelerate_counts_all_processes() -> None:
    assert scenario({"fsdp.yaml": FSDP}, TRAINER).cluster.gpus == 16


@pytest.mark.parametrize(("strategy", "zero"), [("FULL_SHARD", 3), ("SHARD_GRAD_OP", 2), ("1", 3), ("2", 2)])
def test_accelerate_has_strategies_by_name_and_by_number(strategy: str, zero: int) -> None:
    assert scenario({"fsdp.yaml": FSDP.replace("FULL_SHARD", strategy)}, TRAINER).parallelism.zero == zero


def test_accelerate_reduces_with_the_last_microbatch_unless_told() -> None:
    each = {"accelerator_config.gradient_accumulation_kwargs.sync_each_batch": "true"}
    ways = [scenario({"fsdp.yaml": FSDP}, TRAINER | more).software.sharding for more in ({}, each)]
    assert [one.reduce for one in ways] == ["last", "each"]
    assert {one.implementation for one in ways} == {"fsdp1"}


def test_transformers_checkpoint_runs_all_of_a_layer_unless_it_is_not_reentrant() -> None:
    again = TRAINER | {"gradient_checkpointing": "true"}
    other = again | {"gradient_checkpointing_kwargs.use_reentrant": "false"}
    runs = [scenario({"fsdp.yaml": FSDP}, given) for given in (again, other)]
    assert [run.training.recompute for run in runs] == ["full", "full"]
    assert [run.software.kernels.recompute_stops_early for run in runs] == [False, True]


def test_accelerate_without_a_wrap_policy_is_one_unit() -> None:
    text = FSDP.replace(", fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "")
    assert refused({"fsdp.yaml": text}, TRAINER) == {"fsdp_config.fsdp_auto_wrap_policy"}
    assert (
        refused({"fsdp.yaml": text.replace("fsdp_config: {", "fsdp_config: {fsdp_version: 2, ")}, TRAINER)
        == set()
    )


def test_accelerates_no_means_32_bit() -> None:
    assert scenario({"fsdp.yaml": FSDP.replace("bf16", "'no'")}, TRAINER).training.precision == "fp32"


def test_adapters_are_refused() -> None:
    assert {"adapter", "load_in_4bit"} <= refused({"run.yaml": AXOLOTL}, {"gpus": "8"})


def test_torchtune_keeps_no_masters_in_16_bit() -> None:
    assert refused({"run.yaml": TORCHTUNE}, {"gpus": "8"}) == {"dtype"}
    assert scenario({"run.yaml": TORCHTUNE.replace("bf16", "fp32")}, {"gpus": "8"}).parallelism.zero == 3


def test_olmos_embedding_is_padded_beside_its_vocabulary() -> None:
    made = scenario({"OLMo.yaml": OLMO}, {"gpus": "64"})
    assert made.model.embedding_rows == 100352
    assert made.model.ffn_hidden_size == 11008


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        (('"stage": 3', '"stage": 3}, "data_types": {"grad_accum_dtype": "fp32"'), "main_grad_bytes", 4),
        (
            ('"stage": 3', '"stage": 3}, "communication_data_type": "fp32", "a": {"b": 0'),
            "reduce_grad_bytes",
            4,
        ),
    ],
)
def test_deepspeeds_types_of_gradients(change: tuple[str, str], path: str, value: object) -> None:
    made = imported({"ds_config.json": DEEPSPEED.replace(*change)}, HF).document
    assert at(made, f"software.gradients.{path}") == value


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (('"stage": 3', '"stage": 2, "reduce_scatter": false'), "zero_optimization.reduce_scatter"),
        (('"stage": 3', '"stage": 3}, "compile": {"disable": false'), "compile"),
        (('"stage": 3', '"stage": 3}, "optimizer": {"type": "OneBitAdam"'), "optimizer.type"),
        (('"stage": 3', '"stage": 3}, "elasticity": {"enabled": true'), "elasticity.enabled"),
    ],
)
def test_what_is_harmless_at_one_value_alone_is_refused_at_others(change: tuple[str, str], name: str) -> None:
    text = DEEPSPEED.replace(*change)
    assert refused({"ds_config.json": text}, HF) == {name}
    mild = (
        text.replace("false", "true").replace("OneBit", "").replace('"enabled": true}}', '"enabled": false}}')
    )
    assert refused({"ds_config.json": mild}, HF) == set()


def test_a_trainer_without_its_deepspeed_json_is_asked_for_it() -> None:
    text = (
        "deepspeed --num_nodes 1 --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path llama3-8b "
        "--max_seq_length 4096 --per_device_train_batch_size 1 --bf16 true\n"
    )
    assert refused({"run.sh": text}) == {"zero_optimization.stage"}
    files = {"run.sh": text, "ds.json": DEEPSPEED.replace('_gpu": 2', '_gpu": 1')}
    assert scenario(files).parallelism.zero == 3
    assert refused({"run.sh": text, "ds.json": DEEPSPEED}) == {"--per_device_train_batch_size"}


def test_a_model_by_a_name_that_no_file_can_have_is_refused() -> None:
    assert refused({"ds_config.json": DEEPSPEED}, {**HF, "model": "x" * 500}) == {"model"}


def test_neox_fuses_what_it_is_told_to() -> None:
    kernels = scenario({"run.yml": NEOX}, {"gpus": "8"}).software.kernels
    assert (kernels.fused_softmax, kernels.fused_activation, kernels.fused_rope) == (False, False, False)
    text = NEOX.replace('"pos_emb"', '"bias_gelu_fusion": true, "pos_emb"')
    assert scenario({"run.yml": text}, {"gpus": "8"}).software.kernels.fused_activation


def test_neox_reduces_in_32_bit_where_it_is_told() -> None:
    text = NEOX.replace('"pos_emb"', '"fp32_allreduce": true, "pos_emb"')
    assert scenario({"run.yml": text}, {"gpus": "8"}).software.gradients.reduce_grad_bytes == 4


def test_torchtitans_reduction_may_be_in_16_bit() -> None:
    text = TITAN.replace("seq_len", 'mixed_precision_reduce = "bfloat16"\nseq_len')
    made = imported({"run.toml": text}, {"gpus": "32"}).document
    assert at(made, "software.gradients.reduce_grad_bytes") == 2


@pytest.mark.parametrize(
    "degree", ["data_parallel_replicate_degree = 0", "pipeline_parallel_degree = 99999999"]
)
def test_degrees_of_torchtitan_that_nobody_can_have(degree: str) -> None:
    assert f"parallelism.{degree.split()[0]}" in refused(titan(degree + "\n"), {"gpus": "32"})


def test_a_note_says_what_is_left_out() -> None:
    text = NANO.replace("optimizer:", "deterministic_mode: true\noptimizer:")
    assert any("deterministic" in note for note in imported({"run.yaml": text}).notes)


def test_maxtexts_settings_are_not_in_its_scripts() -> None:
    text = "python3 -m maxtext.train configs/base.yml --xla_gpu_enable_triton_gemm=false\n"
    assert refused({"128vm.sh": text}, {"gpus": "32"}, framework="maxtext") == {"128vm.sh"}


MIXTRAL = MAXTEXT.replace("llama3.1-70b", "mixtral-8x7b")


def test_maxtexts_experts_run_by_groups_or_to_a_capacity() -> None:
    assert scenario({"run.yml": MIXTRAL}, {"gpus": "32"}).model.moe is not None
    dense = MIXTRAL + "sparse_matmul: false\n"
    assert refused({"run.yml": dense}, {"gpus": "32"}) == {"sparse_matmul"}
    padded = scenario({"run.yml": dense + "capacity_factor: 1.25\n"}, {"gpus": "32"}).model.moe
    assert padded is not None
    assert padded.capacity_factor == 1.25
    assert refused({"run.yml": MAXTEXT + "sparse_matmul: false\n"}, {"gpus": "32"}) == set()


def test_primus_names_its_preset_by_a_variable_and_has_its_own_windows() -> None:
    text = PRIMUS.replace("llama3.1_8B.yaml", "${MODEL:gpt_oss_20B}.yaml").replace(
        "sequence_parallel: 1", "expert_model_parallel_size: 8"
    )
    made = scenario({"run.yaml": text}, {"gpus": "8"})
    assert (made.model.num_layers, made.parallelism.ep, made.model.sliding_window) == (24, 8, 128)
    flat = text.replace("overlap_grad_reduce: true", "sink_sliding_window: 0")
    assert scenario({"run.yaml": flat}, {"gpus": "8"}).model.sliding_window is None
    assert refused({"run.yaml": text}, {"gpus": "8", "MODEL": "llama3.1_8B"}) == {
        "expert_model_parallel_size"
    }
    eight = PRIMUS.replace("sequence_parallel: 1", "enable_turbo_attention_float8: true")
    assert refused({"run.yaml": eight}, {"gpus": "8"}) == {"enable_turbo_attention_float8"}
