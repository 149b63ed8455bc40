"""What the files of other frameworks mean, trap by trap: the same word is another thing in each."""

from __future__ import annotations

import re

import pytest
from framework_files import (
    AXOLOTL,
    BRIDGE,
    MAXTEXT,
    MPT,
    NANO,
    NEMO,
    OLMO,
    PRIMUS,
    TORCHTUNE,
)
from importing import at, imported, refused, scenario

from stepsim.sim.scenario.errors import ScenarioError


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
        (("", ""), "model.qk_norm", None),
        (("attn_impl: flash", "attn_impl: flash, qk_gn: true"), "model.qk_norm", True),
        (("attn_impl: flash", "attn_impl: flash, qk_ln: true"), "model.qk_norm", None),
        (("", ""), "software.kernels.logged_losses", None),
        (("d_model", "use_train_metrics: false, d_model"), "software.kernels.logged_losses", 0),
        (("", ""), "training.recompute", "full"),
        (("", ""), "training.micro_batch", 8),
        (("device_train_microbatch_size: 8", "device_train_microbatch_size: 64"), "training.micro_batch", 16),
    ],
)
def test_llm_foundry(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"mpt.yaml": MPT.replace(*change)}, {"gpus": "16"}).document, path) == value


def test_norms_of_heads_that_are_not_counted_are_said() -> None:
    """Over all heads together in llm-foundry; behind the positions, and without weights, in Llama 4."""
    mpt = imported(
        {"mpt.yaml": MPT.replace("attn_impl: flash", "attn_impl: flash, qk_ln: true")}, {"gpus": "16"}
    )
    llama = MAXTEXT + "use_qk_norm: true\ndecoder_block: llama4\n"
    for made in (mpt, imported({"run.yml": llama}, {"gpus": "32"})):
        assert any("norms of queries and keys" in one for one in made.notes)


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


def test_a_recipe_of_a_benchmark_has_a_precision_of_its_own() -> None:
    start = "torchrun --nproc_per_node 8 --nnodes 2 run_recipe.py --recipe-source performance"
    asked = refused({"run.sh": f"{start} --recipe qwen3_30b_a3b_pretrain_16gpu_h100_fp8_cs_config"})
    assert "compute_dtype" in asked
    assert "model" not in asked


@pytest.mark.parametrize(
    ("name", "text", "setting"),
    [("run.yaml", TORCHTUNE, "batch_size"), ("run.yaml", AXOLOTL, "micro_batch_size")],
)
def test_a_wrong_size_is_refused_and_not_asked_for_as_well(name: str, text: str, setting: str) -> None:
    wrong = re.sub(rf"\b{setting}: *\d+", f"{setting}: abc", text)
    with pytest.raises(ScenarioError) as refusal:
        imported({name: wrong})
    messages = [one.message for one in refusal.value.problems if one.path == setting]
    assert len(messages) == 1
    assert "'abc'" in messages[0]


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
        (
            ("remat_policy: full", "remat_policy: save_dot_with_context_except_mlp"),
            "training.recompute",
            {"kind": "operators", "keep": ["qkv", "proj", "attention"]},
        ),
        (
            ("remat_policy: full", "remat_policy: save_qkv_proj"),
            "training.recompute",
            {"kind": "operators", "keep": ["qkv"]},
        ),
        (("", ""), "software.sharding.unrolled", None),
        (("remat_policy: full", "scan_layers: true"), "software.sharding.unrolled", None),
        (("remat_policy: full", "scan_layers: false"), "software.sharding.unrolled", True),
        (("remat_policy: full", ""), "training.recompute", "full"),
        (("remat_policy: full", "quantization: fp8"), "training.precision", "fp8"),
        (("", ""), "model.qk_norm", None),
        (("remat_policy: full", "use_qk_norm: true"), "model.qk_norm", True),
        (("remat_policy: full", "use_qk_norm: true\ndecoder_block: llama4"), "model.qk_norm", None),
        (("remat_policy: full", "use_qk_norm: true\nattention_type: mla"), "model.qk_norm", None),
    ],
)
def test_maxtext(change: tuple[str, str], path: str, value: object) -> None:
    text = MAXTEXT.replace(*change)
    if "tensor" in change[1]:
        text = text.replace("ici_fsdp_parallelism: 8", "ici_fsdp_parallelism: 4")
    assert at(imported({"run.yml": text}, {"gpus": "32"}).document, path) == value


@pytest.mark.parametrize(
    ("name", "text", "change"),
    [
        ("mpt.yaml", MPT, ("attn_impl: flash", "attn_impl: flash, attn_uses_sequence_id: true")),
        ("olmo.yaml", OLMO, ("global_train", "data: {generate_doc_lengths: true}\nglobal_train")),
    ],
)
def test_documents_that_do_not_attend_to_one_another_are_noted(
    name: str, text: str, change: tuple[str, str]
) -> None:
    made = [imported({name: one}, {"gpus": "16"}).notes for one in (text, text.replace(*change))]
    assert [any("document_length" in note for note in notes) for notes in made] == [False, True]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "document_length"),
        ("packing: false\n", "longest length"),
        ("dataset_type: synthetic\n", None),
        ("dataset_type: synthetic\npacking: true\n", None),
    ],
)
def test_maxtext_says_what_its_files_leave_open_of_sequences(more: str, said: str | None) -> None:
    plain = "".join(line for line in MAXTEXT.splitlines(keepends=True) if "dataset_type" not in line)
    notes = imported({"run.yml": plain + more}, {"gpus": "32"}).notes
    assert any(said in note for note in notes) if said else not notes


def test_maxtext_refuses_tpus_and_policies_that_keep_a_product_of_an_mlp() -> None:
    assert refused({"run.yml": MAXTEXT.replace("hardware: gpu", "hardware: tpu")}, {"gpus": "32"}) == {
        "hardware"
    }
    assert refused(
        {"run.yml": MAXTEXT.replace("remat_policy: full", "remat_policy: save_dot_except_mlpwi")},
        {"gpus": "32"},
    ) == {"remat_policy"}


@pytest.mark.parametrize("files", [{"run.yaml": TORCHTUNE}, {"run.yml": MAXTEXT}])
def test_who_does_not_say_how_many_gpus_is_asked_for_them_alone(files: dict[str, str]) -> None:
    """A batch for each GPU is a setting that is known, though nobody can say what it makes."""
    assert refused(files) == {"gpus"}


@pytest.mark.parametrize(
    ("more", "stage", "said"),
    [
        ("", 3, "longest length"),
        ("fsdp_reshard_after_forward: false\n", 2, "longest length"),
        ("dataset: {packed: true}\n", 3, "document_length"),
    ],
)
def test_torchtune_says_how_it_shards_and_packs(more: str, stage: int, said: str) -> None:
    made = imported({"run.yaml": TORCHTUNE + more}, {"gpus": "8"})
    assert at(made.document, "parallelism.zero") == stage
    assert any(said in note for note in made.notes)


def test_torchtunes_rounded_weights_are_refused() -> None:
    qat = "quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer}\n"
    assert refused({"run.yaml": TORCHTUNE + qat}, {"gpus": "8"}) == {"quantizer._component_"}


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


def test_torchtune_keeps_no_masters_in_16_bit() -> None:
    narrow = scenario({"run.yaml": TORCHTUNE}, {"gpus": "8"})
    assert narrow.parallelism.zero == 3
    assert narrow.training.precision == "bf16"
    assert not narrow.software.gradients.master_weights
    assert narrow.software.kernels.optimizer_implementation == "foreach"  # torch's, where nobody says fused
    fused = scenario({"run.yaml": TORCHTUNE}, {"gpus": "8", "optimizer.fused": "true"})
    assert fused.software.kernels.optimizer_implementation == "fused"
    wide = scenario({"run.yaml": TORCHTUNE.replace("bf16", "fp32")}, {"gpus": "8"})
    assert wide.software.gradients.master_weights


def test_olmos_embedding_is_padded_beside_its_vocabulary() -> None:
    made = scenario({"OLMo.yaml": OLMO}, {"gpus": "64"})
    assert made.model.embedding_rows == 100352
    assert made.model.ffn_hidden_size == 11008


def test_a_note_says_what_is_left_out() -> None:
    text = NANO.replace("optimizer:", "deterministic_mode: true\noptimizer:")
    assert any("deterministic" in note for note in imported({"run.yaml": text}).notes)


def test_maxtexts_settings_are_not_in_its_scripts() -> None:
    text = "python3 -m maxtext.train configs/base.yml --xla_gpu_enable_triton_gemm=false\n"
    assert refused({"128vm.sh": text}, {"gpus": "32"}, framework="maxtext") == {"128vm.sh"}


MIXTRAL = MAXTEXT.replace("llama3.1-70b", "mixtral-8x7b")


def test_the_line_of_maxtexts_sharding_names_the_degrees_that_shard() -> None:
    text = MAXTEXT.replace("ici_fsdp_parallelism: 8\n", "")
    origins = imported({"run.yml": text + "ici_expert_parallelism: 1\n"}, {"gpus": "32"}).origins
    assert "dcn_fsdp_parallelism" in origins["parallelism.zero"]
    assert "ici_expert_parallelism" not in origins["parallelism.zero"]


def test_maxtexts_experts_run_by_groups_alone() -> None:
    assert scenario({"run.yml": MIXTRAL}, {"gpus": "32"}).model.moe is not None
    dense = MIXTRAL + "sparse_matmul: false\n"
    assert refused({"run.yml": dense}, {"gpus": "32"}) == {"sparse_matmul"}
    assert refused({"run.yml": dense + "capacity_factor: 1.25\n"}, {"gpus": "32"}) == {"sparse_matmul"}
    grouped = scenario({"run.yml": MIXTRAL + "capacity_factor: 1.25\n"}, {"gpus": "32"}).model.moe
    assert grouped is not None
    assert grouped.capacity_factor is None
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
