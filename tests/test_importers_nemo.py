"""NeMo, Megatron-Bridge and Primus: what their files mean where Megatron-LM means something else."""

from __future__ import annotations

import pytest
from framework_files import (
    BRIDGE,
    NEMO,
    PRIMUS,
)
from importing import at, imported, refused, scenario


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
        (
            ("sequence_parallel: true", "fp8: true\n  reduce_amax: false"),
            "software.exchange.amax_group",
            "none",
        ),
        (
            ("sequence_parallel: true", "fp8: true\n  reduce_amax: false\n  mcore_gpt: true"),
            "software.exchange.amax_group",
            "replicas",
        ),
        (
            ("sequence_parallel: true", "fp8: true\n  tp_only_amax_red: true"),
            "software.exchange.amax_group",
            "tensor",
        ),
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


RECIPE = (
    "torchrun --nnodes 2 --nproc_per_node 8 run_recipe.py --recipe llama3_8b_pretrain_config "
    "--dataset llm-pretrain-mock model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=1 "
    "model.context_parallel_size=2 model.seq_length=4096 dataset.sequence_length=8192 "
    "train.micro_batch_size=1 train.global_batch_size=64 train.global_batch_size=128 "
)


def test_megatron_bridge_starts_a_recipe_by_its_name_with_overrides() -> None:
    made = scenario({"run.sh": RECIPE})
    assert (made.model.name, made.cluster.gpus, made.cluster.gpus_per_node) == ("llama3-8b", 16, 8)
    assert (made.parallelism.tp, made.parallelism.cp) == (2, 2)
    assert (made.training.seq_length, made.training.global_batch) == (8192, 128)  # of two the last one
    assert made.training.precision == "bf16"
    assert not made.software.host.cuda_graphs
    eight_bits = scenario({"run.sh": RECIPE + "mixed_precision=bf16_with_fp8_current_scaling_mixed"})
    assert (eight_bits.training.precision, eight_bits.software.kernels.fp8_scaling) == ("fp8", "current")
    assert imported({"run.sh": RECIPE}).framework == "megatron-bridge"


def test_packs_of_a_recipe_are_noted() -> None:
    """How long their samples are stands in the data."""
    packed, plain = (imported({"run.sh": RECIPE + more}).notes for more in ("--packed_sequence", ""))
    assert any("training.document_length" in note for note in packed)
    assert not any("training.document_length" in note for note in plain)


def test_what_a_recipes_python_says_is_asked_for() -> None:
    """Recipes have other degrees, of context too (2 in that of Llama 3 8B)."""
    bare = "torchrun --nproc_per_node 8 --nnodes 1 run_recipe.py --recipe llama3_8b_pretrain_config"
    assert refused({"run.sh": bare}) == {
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "micro_batch_size",
        "global_batch_size",
        "seq_length",
    }
    assert "--peft_scheme" in refused({"run.sh": RECIPE + "--peft_scheme lora"})


def test_short_options_of_a_recipe_and_its_model_without_what_is_trained() -> None:
    """scripts/training/run_recipe.py of Megatron-Bridge's main, October 2026."""
    start = "torchrun --nproc_per_node 8 --nnodes 1 run_recipe.py --model llama3_8b --mode pretrain"
    short = "-sl 4096 -mb 2 -gb 64 -tp 2 -pp 1 -cp 1 model.sequence_parallel=true train.micro_batch_size=1"
    made = scenario({"run.sh": f"{start} {short}"})
    assert (made.model.name, made.parallelism.tp, made.training.seq_length) == ("llama3-8b", 2, 4096)
    assert (made.training.micro_batch, made.training.global_batch) == (1, 64)  # an override holds over it
    assert "--mode" in refused({"run.sh": f"{start} {short}".replace("pretrain", "lora")})


@pytest.mark.parametrize(
    ("override", "has"),
    [
        ("", True),  # the recipe's Python has a coefficient, and no file says it
        ("model.moe_aux_loss_coeff=0.0", False),
        ("model.moe_aux_loss_coeff=1e-3", True),
        ("model.moe_router_load_balancing_type=none", False),
        ("model.moe_router_load_balancing_type=seq_aux_loss", True),
        ("model.moe_aux_loss_coeff=0.1 model.moe_router_load_balancing_type=sinkhorn", False),
    ],
)
def test_a_recipes_routers_have_a_loss_unless_an_override_takes_it(override: str, has: bool) -> None:
    start = "torchrun --nproc_per_node 8 --nnodes 2 run_recipe.py --model qwen3_30b_a3b --mode pretrain"
    short = "-sl 4096 -mb 1 -gb 64 -tp 1 -pp 1 -cp 1 -ep 8"
    made = scenario({"run.sh": f"{start} {short} {override}"})
    assert made.software.exchange.router_loss is has


def test_a_recipe_of_a_benchmark_has_a_precision_of_its_own() -> None:
    start = "torchrun --nproc_per_node 8 --nnodes 2 run_recipe.py --recipe-source performance"
    asked = refused({"run.sh": f"{start} --recipe qwen3_30b_a3b_pretrain_16gpu_h100_fp8_cs_config"})
    assert "compute_dtype" in asked
    assert "model" not in asked


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


def test_primus_has_no_maxima_reduced() -> None:
    text = PRIMUS.replace("overrides: {", "overrides: {fp8: hybrid, ", 1)
    assert at(imported({"run.yaml": text}, {"gpus": "8"}).document, "software.exchange.amax_group") == "none"


def test_primus_refuses_its_own_schedules() -> None:
    text = PRIMUS.replace(
        "pipeline_model_parallel_size: 1",
        "pipeline_model_parallel_size: 4, patch_primus_pipeline: true, pp_algorithm: zbv",
    )
    assert refused({"run.yaml": text}, {"gpus": "8"}) == {"patch_primus_pipeline", "pp_algorithm"}


SHORT = (
    "python run_script.py -m llama -mr llama31_405b -g gb200 -ng 128 -gn 4 -c fp8_cs --seq_length 8192"
    " -gb 64 -tp 4 -pp 8 -cp 2 -vp 8\n"
)
NEMO_2 = (
    "python3 scripts/performance/llm/pretrain_llama3_8b.py --gpu h100 --num_gpus 16 --gpus_per_node 8"
    " -c bf16 --global_batch_size 256 --micro_batch_size 1 --tensor_parallel_size 2"
    " --pipeline_parallel_size 2 --context_parallel_size 1 --virtual_pipeline_parallel_size 4"
    " --expert_parallel_size 1\n"
)


def test_short_names_of_a_launcher_are_its_long_ones() -> None:
    given = {"interconnect": "ib-ndr400-x4", "micro_batch_size": "1"}
    assert imported({"run.sh": SHORT}, given).document == imported({"run.sh": BRIDGE}, given).document


def test_nemo_2_has_its_own_long_names_and_its_script_the_models() -> None:
    made = scenario({"run.sh": NEMO_2}, {"seq_length": "8192"})
    assert (made.parallelism.tp, made.parallelism.pp, made.parallelism.vpp) == (2, 2, 4)
    assert (made.model.name, made.cluster.gpus, made.training.precision) == ("llama3-8b", 16, "bf16")


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
