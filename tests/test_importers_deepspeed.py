"""What files of DeepSpeed, and of those that build on it, mean (Megatron-DeepSpeed, GPT-NeoX, trainers)."""

from __future__ import annotations

import pytest
from framework_files import (
    AXOLOTL_WHOLE,
    DEEPSPEED,
    FSDP,
    MEGATRON_DEEPSPEED,
    NEOX,
)
from importing import at, imported, refused, scenario

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


def test_transformers_checkpoint_runs_all_of_a_layer_if_it_is_reentrant() -> None:
    """Which it was unless told until January 2026 (huggingface/transformers pull request 43203)."""
    again = TRAINER | {"gradient_checkpointing": "true"}
    other = again | {"gradient_checkpointing_kwargs.use_reentrant": "true"}
    runs = [scenario({"fsdp.yaml": FSDP}, given) for given in (again, other)]
    assert [run.training.recompute for run in runs] == ["full", "full"]
    assert [run.software.kernels.recompute_stops_early for run in runs] == [True, False]


def test_accelerate_without_a_wrap_policy_is_one_unit() -> None:
    text = FSDP.replace(", fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", "")
    assert refused({"fsdp.yaml": text}, TRAINER) == {"fsdp_config.fsdp_auto_wrap_policy"}
    assert (
        refused({"fsdp.yaml": text.replace("fsdp_config: {", "fsdp_config: {fsdp_version: 2, ")}, TRAINER)
        == set()
    )


def test_accelerates_no_means_32_bit() -> None:
    assert scenario({"fsdp.yaml": FSDP.replace("bf16", "'no'")}, TRAINER).training.precision == "fp32"


REPLICAS = "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"


@pytest.mark.parametrize(
    ("file", "dtype", "masters"),
    [(REPLICAS, "bfloat16", False), (REPLICAS, "float32", True), (FSDP, "bfloat16", True)],
)
def test_weights_loaded_in_16_bit_have_no_masters_unless_fsdp_makes_some(
    file: str, dtype: str, masters: bool
) -> None:
    made = scenario({"run.yaml": file}, TRAINER | {"torch_dtype": dtype})
    assert made.software.gradients.master_weights is masters
    assert made.software.kernels.autocast is (dtype == "float32")  # of replicas


AUTO = (
    '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}, "gradient_accumulation_steps": "auto", '
    '"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}'
)
"""What axolotl ships as deepspeed_configs/zero3_bf16.json: sizes that the trainer fills in."""

BESIDE = AXOLOTL_WHOLE + "deepspeed: ds.json\ngradient_accumulation_steps: 4\n"
LAUNCH = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\nnum_processes: 8\n"


@pytest.mark.parametrize("files", [("run.yaml", "ds.json"), ("ds.json", "run.yaml")])
def test_a_json_of_deepspeed_belongs_to_the_trainer_beside_it(files: tuple[str, ...]) -> None:
    texts = {"run.yaml": BESIDE, "ds.json": AUTO}
    made = scenario({name: texts[name] for name in files}, {"gpus": "8"})
    assert (made.training.micro_batch, made.training.global_batch) == (1, 32)
    assert (made.parallelism.zero, made.training.precision) == (3, "bf16")
    launched = scenario({"run.yaml": LAUNCH + "mixed_precision: bf16\n", "ds.json": AUTO}, TRAINER)
    assert (launched.training.global_batch, launched.training.precision) == (8, "bf16")


def test_sizes_of_a_json_are_those_of_the_trainer() -> None:
    said = '"train_micro_batch_size_per_gpu": 2'
    other = AUTO.replace('"train_micro_batch_size_per_gpu": "auto"', said)
    assert refused({"run.yaml": BESIDE, "ds.json": other}, {"gpus": "8"}) == {"micro_batch_size"}
    same = {"run.yaml": BESIDE.replace("micro_batch_size: 1", "micro_batch_size: 2"), "ds.json": other}
    assert scenario(same, {"gpus": "8"}).training.global_batch == 64
    unsaid = {name: given for name, given in TRAINER.items() if name != "per_device_train_batch_size"}
    assert scenario({"run.yaml": LAUNCH, "ds.json": other}, unsaid).training.micro_batch == 2


def test_a_json_says_the_precision_of_what_accelerate_launches() -> None:
    told = AUTO.replace('"enabled": "auto"', '"enabled": true')
    assert scenario({"run.yaml": LAUNCH, "ds.json": told}, TRAINER).training.precision == "bf16"
    assert scenario({"run.yaml": LAUNCH, "ds.json": AUTO}, TRAINER).training.precision == "fp32"


@pytest.mark.parametrize(
    ("model", "more", "operators", "gemm"),
    [
        ("qwen3-30b-a3b", {}, "torch", "stacked"),
        ("qwen3-30b-a3b", {"experts_implementation": "eager"}, "loop", "stacked"),
        ("qwen3-30b-a3b", {"dynamo_backend": "inductor"}, None, None),
        ("llama3-8b", {}, None, None),
    ],
)
def test_experts_of_transformers_are_its_own_operators(
    model: str, more: dict[str, str], operators: str | None, gemm: str | None
) -> None:
    made = imported({"fsdp.yaml": FSDP}, TRAINER | {"model": model} | more)
    kernels = made.document["software"]["kernels"]
    assert (kernels.get("expert_operators"), kernels.get("grouped_gemm")) == (operators, gemm)
    assert any("a loop" in note for note in made.notes) is (operators == "torch")


@pytest.mark.parametrize(
    ("files", "given", "fused"),
    [
        ({"fsdp.yaml": FSDP}, TRAINER, False),  # foreach, torch's own default
        ({"fsdp.yaml": FSDP}, TRAINER | {"optim": "adamw_torch"}, False),
        ({"fsdp.yaml": FSDP}, TRAINER | {"optim": "adamw_torch_fused"}, True),
        ({"run.yaml": AXOLOTL_WHOLE}, {"gpus": "8"}, True),  # axolotl's default
        ({"run.yaml": AXOLOTL_WHOLE + "optimizer: adamw_torch\n"}, {"gpus": "8"}, False),
        ({"run.yaml": AXOLOTL_WHOLE + "optimizer: adamw_torch_fused\n"}, {"gpus": "8"}, True),
    ],
)
def test_an_update_is_one_pass_over_memory_where_the_trainer_asks_for_torchs_fused_one(
    files: dict[str, str], given: dict[str, str], fused: bool
) -> None:
    software = scenario(files, given).software
    assert software.kernels.optimizer_implementation == ("fused" if fused else "foreach")
    noted = any(note.startswith("optim is not said") for note in imported(files, given).notes)
    assert noted == ("optim" not in given and "fsdp.yaml" in files)


@pytest.mark.parametrize(
    ("json", "given", "way"),
    [
        ("", {}, "foreach"),  # the Trainer's: torch's AdamW
        ("", {"optim": "adamw_torch_fused"}, "fused"),
        ('"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},', {}, "fused"),  # DeepSpeed's FusedAdam
        ('"optimizer": {"type": "AdamW", "params": {"torch_adam": true}},', {}, "foreach"),
    ],
)
def test_an_optimizer_of_the_json_is_deepspeeds_own_and_else_the_trainers(
    json: str, given: dict[str, str], way: str
) -> None:
    text = DEEPSPEED.replace("{", "{" + json, 1)
    software = scenario({"ds_config.json": text}, HF | given).software
    assert software.kernels.optimizer_implementation == way


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


def test_a_trainer_without_its_deepspeed_json_is_asked_for_it() -> None:
    text = (
        "deepspeed --num_nodes 1 --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path llama3-8b "
        "--max_seq_length 4096 --per_device_train_batch_size 1 --bf16 true\n"
    )
    assert refused({"run.sh": text}) == {"zero_optimization.stage"}
    files = {"run.sh": text, "ds.json": DEEPSPEED.replace('_gpu": 2', '_gpu": 1')}
    assert scenario(files).parallelism.zero == 3
    assert refused({"run.sh": text, "ds.json": DEEPSPEED}) == {"--per_device_train_batch_size"}


@pytest.mark.parametrize(
    ("more", "mlp", "wide"),
    [
        ('"activation": "silu"', "gelu", 8192),
        ('"activation": "silu", "mlp_type": "regular"', "gelu", 8192),
        ('"activation": "silu", "mlp_type": "llama"', "swiglu", 5632),  # 8h/3 in whole 256
        ('"activation": "silu", "mlp_type": "llama", "intermediate_size": 6000', "swiglu", 6000),
    ],
)
def test_neoxs_mlp_has_the_branches_and_the_width_of_its_type(more: str, mlp: str, wide: int) -> None:
    text = NEOX.replace('"num_layers": 24', f'"num_layers": 24, {more}')
    model = scenario({"run.yml": text}, {"gpus": "8"}).model
    assert (model.mlp, model.ffn_hidden_size) == (mlp, wide)
    other = NEOX.replace('"num_layers": 24', '"num_layers": 24, "mlp_type": "gated"')
    assert refused({"run.yml": other}, {"gpus": "8"}) == {"mlp_type"}


def test_neox_fuses_what_it_is_told_to() -> None:
    kernels = scenario({"run.yml": NEOX}, {"gpus": "8"}).software.kernels
    assert (kernels.fused_softmax, kernels.fused_activation, kernels.fused_rope) == (False, False, False)
    text = NEOX.replace('"pos_emb"', '"bias_gelu_fusion": true, "pos_emb"')
    assert scenario({"run.yml": text}, {"gpus": "8"}).software.kernels.fused_activation


def test_neox_reduces_in_32_bit_where_it_is_told() -> None:
    text = NEOX.replace('"pos_emb"', '"fp32_allreduce": true, "pos_emb"')
    assert scenario({"run.yml": text}, {"gpus": "8"}).software.gradients.reduce_grad_bytes == 4


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


def test_a_model_by_a_name_that_no_file_can_have_is_refused() -> None:
    assert refused({"ds_config.json": DEEPSPEED}, {**HF, "model": "x" * 500}) == {"model"}
