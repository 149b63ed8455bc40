"""What axolotl's files mean, and what they leave open or change under a harmless name."""

from __future__ import annotations

import pytest
from framework_files import (
    AXOLOTL,
    AXOLOTL_WHOLE,
)
from importing import imported, refused, scenario


@pytest.mark.parametrize(
    ("more", "said"), [("", "longest length"), ("sample_packing: true", "document_length")]
)
def test_axolotl_says_what_its_files_leave_open_of_sequences(more: str, said: str) -> None:
    unpacked = "".join(
        line for line in AXOLOTL_WHOLE.splitlines(keepends=True) if "sample_packing" not in line
    )
    assert any(said in note for note in imported({"run.yaml": unpacked + more}, {"gpus": "8"}).notes)


def test_axolotl_loads_weights_in_16_bit() -> None:
    assert not scenario({"run.yaml": AXOLOTL_WHOLE}, {"gpus": "8"}).software.gradients.master_weights


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("rl: dpo", "rl"),
        ("reward_model: true", "reward_model"),
        ("kd_trainer: true", "kd_trainer"),
        ("tiled_mlp: true", "tiled_mlp"),
        ("chunked_cross_entropy: true", "chunked_cross_entropy"),
        ("unfrozen_parameters: [lm_head.weight]", "unfrozen_parameters"),
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", "plugins"),
        ("plugins: [axolotl.integrations.spectrum.SpectrumPlugin]", "plugins"),
    ],
)
def test_axolotl_refuses_what_changes_the_step_under_a_harmless_name(more: str, name: str) -> None:
    assert name in refused({"run.yaml": f"{AXOLOTL_WHOLE}{more}\n"}, {"gpus": "8"})


def test_axolotls_plugins_that_do_nothing_by_themselves_are_read() -> None:
    plugins = (
        "plugins: [axolotl.integrations.liger.LigerPlugin, "
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\ncut_cross_entropy: false\n"
    )
    assert not refused({"run.yaml": AXOLOTL_WHOLE + plugins}, {"gpus": "8"})


def test_a_batch_of_nothing_is_refused_at_its_line() -> None:
    text = AXOLOTL_WHOLE.replace("micro_batch_size: 1", "micro_batch_size: 0")
    assert "micro_batch_size" in refused({"run.yaml": text}, {"gpus": "8"})


def test_adapters_are_refused() -> None:
    assert {"adapter", "load_in_4bit"} <= refused({"run.yaml": AXOLOTL}, {"gpus": "8"})


def test_keys_that_axolotls_examples_leave_empty_say_nothing() -> None:
    text = AXOLOTL_WHOLE + "deepspeed:\nfsdp:\nfsdp_config:\n"
    assert scenario({"run.yaml": text}, {"gpus": "8"}).parallelism.zero == 0


SHARDED = (
    AXOLOTL_WHOLE + "fsdp_version: 2\nfsdp_config: {auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
    "transformer_layer_cls_to_wrap: LlamaDecoderLayer, reshard_after_forward: true}\n"
)


def test_degrees_beside_fsdp_are_accelerates() -> None:
    more = "dp_shard_size: 4\ndp_replicate_size: 2\ncontext_parallel_size: 2\n"
    made = scenario({"run.yaml": SHARDED + more}, {"gpus": "16"})
    assert (made.parallelism.zero, made.parallelism.cp, made.parallelism.fsdp_shard_size) == (3, 2, 8)
    assert made.training.global_batch == 8 * made.training.micro_batch
    assert refused({"run.yaml": SHARDED + more}, {"gpus": "32"}) == {"dp_shard_size"}
    assert refused({"run.yaml": SHARDED + "tensor_parallel_size: 2\n"}, {"gpus": "8"}) == {
        "tensor_parallel_size"
    }
    alone = AXOLOTL_WHOLE + "context_parallel_size: 2\n"
    assert refused({"run.yaml": alone}, {"gpus": "8"}) == {"context_parallel_size"}


@pytest.mark.parametrize(
    ("more", "comm"),
    [
        ("sample_packing: true\n", "all_gather"),
        ("sample_packing: false\n", "p2p"),
        ("sample_packing: true\nring_attn_func: batch_zigzag\n", "p2p"),
    ],
)
def test_keys_and_values_go_round_but_for_packs(more: str, comm: str) -> None:
    plain = "".join(line for line in SHARDED.splitlines(keepends=True) if "sample_packing" not in line)
    text = plain + "context_parallel_size: 2\n" + more
    assert scenario({"run.yaml": text}, {"gpus": "8"}).software.exchange.cp_comm == comm


def test_units_that_are_no_layers_are_noted() -> None:
    text = SHARDED.replace("LlamaDecoderLayer", "MixtralSparseMoeBlock")
    assert any("MixtralSparseMoeBlock" in note for note in imported({"run.yaml": text}, {"gpus": "8"}).notes)
    assert not any("LlamaDecoderLayer" in n for n in imported({"run.yaml": SHARDED}, {"gpus": "8"}).notes)


def test_axolotl_turns_ligers_kernels_on_one_by_one() -> None:
    plugin = "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\nliger_rms_norm: true\n"
    loss = "liger_fused_linear_cross_entropy: true\n"
    one, both = (
        scenario({"run.yaml": AXOLOTL_WHOLE + text}, {"gpus": "8"}).software.kernels
        for text in (plugin, plugin + loss)
    )
    assert (one.fused_rope, one.fused_norm, one.fused_activation, one.loss_chunks) == (True, True, False, 1)
    assert both.loss_chunks > 1
    other = AXOLOTL_WHOLE + plugin + "liger_layer_norm: true\n"
    assert refused({"run.yaml": other}, {"gpus": "8"}) == {"liger_layer_norm"}
