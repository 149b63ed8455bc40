"""What the files of other frameworks mean, trap by trap: the same word is another thing in each."""

from __future__ import annotations

import re

import pytest
from framework_files import (
    AXOLOTL,
    MAXTEXT,
    MPT,
    NANO,
    OLMO,
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
