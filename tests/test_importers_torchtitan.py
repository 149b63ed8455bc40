"""What the files of torchtitan and nanotron mean, trap by trap."""

from __future__ import annotations

import pytest
from framework_files import (
    NANO,
    TITAN,
)
from importing import at, imported, refused, scenario

from stepsim.hardware.files import FileError


def titan(more: str = "", base: str = TITAN) -> dict[str, str]:
    return {"run.toml": base + more}


def test_a_number_that_python_does_not_read_is_the_files() -> None:
    with pytest.raises(FileError, match="TOML"):
        imported({"run.toml": f"[training]\nseq_len = {'9' * 5000}\n"}, {"gpus": "64"})


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
        ("[compile]\nenable = true\n", "software.kernels.cross_entropy", "compiled-torch"),
        ('[compile]\nenable = true\ncomponents = ["model"]\n', "software.kernels.cross_entropy", "eager"),
        ("context_parallel_degree = 2\n", "software.exchange.cp_comm", "all_gather"),
        # One pass over memory; each operation over all tensors; each tensor by itself.
        ("", "software.kernels.optimizer_implementation", "fused"),
        ('[optimizer]\nimplementation = "foreach"\n', "software.kernels.optimizer_implementation", "foreach"),
        (
            '[optimizer]\nimplementation = "for-loop"\n',
            "software.kernels.optimizer_implementation",
            "for-loop",
        ),
        ("[optimizer]\nfused = false\n", "software.kernels.optimizer_implementation", "foreach"),
    ],
)
def test_torchtitan(more: str, path: str, value: object) -> None:
    assert at(imported(titan(more), {"gpus": "32"}).document, path) == value


def test_each_model_of_torchtitan_had_a_list_of_what_it_keeps() -> None:
    text = TITAN.replace('"llama3"', '"qwen3"').replace('"8B"', '"30B-A3B"')
    selective = '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n'
    spread = "expert_parallel_degree = 4\n" + selective
    keep = {"kind": "operators", "keep": ["every_second_mm", "attention", "reduce_scatter"]}
    for more, expected in ((spread, keep), (selective, "op_selective")):  # one list without exchanges
        made = imported(titan(more, text), {"gpus": "8"})
        assert at(made.document, "training.recompute") == expected


def test_torchtitan_takes_experts_in_turn_where_it_forces_balance() -> None:
    text = TITAN.replace('"llama3"', '"qwen3"').replace('"8B"', '"30B-A3B"')
    forced = "[debug]\nmoe_force_load_balance = true\n"

    def routing(more: str, of: str = text) -> object:
        return imported(titan(more, of), {"gpus": "8"}).document["training"].get("routing")

    assert routing("expert_parallel_degree = 4\n" + forced) == "in_turn"
    assert routing("expert_parallel_degree = 4\n") is None
    assert routing(forced) is None
    assert routing(forced, TITAN) is None


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
    assert at(made.document, "software.kernels.optimizer_implementation") == "foreach"
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
        (
            ("zero_stage: 0,", "zero_stage: 0, torch_adam_is_fused: false,"),
            "software.kernels.optimizer_implementation",
            "foreach",
        ),
        (
            ("zero_stage: 0,", "zero_stage: 0, optimizer_factory: {torch_adam_is_fused: true},"),
            "software.kernels.optimizer_implementation",
            None,  # the preset's
        ),
    ],
)
def test_nanotron(change: tuple[str, str], path: str, value: object) -> None:
    assert at(imported({"run.yaml": NANO.replace(*change)}).document, path) == value


def test_nanotron_refuses_experts_over_ranks() -> None:
    text = NANO.replace("pp: 2", "pp: 2, expert_parallel_size: 2")
    assert refused({"run.yaml": text}) == {"parallelism.expert_parallel_size"}


def test_torchtitans_reduction_may_be_in_16_bit() -> None:
    text = TITAN.replace("seq_len", 'mixed_precision_reduce = "bfloat16"\nseq_len')
    made = imported({"run.toml": text}, {"gpus": "32"}).document
    assert at(made, "software.gradients.reduce_grad_bytes") == 2


def test_torchtitans_weights_may_be_of_16_bit_alone() -> None:
    text = TITAN.replace("seq_len", 'dtype = "bfloat16"\nseq_len')
    made = imported({"run.toml": text}, {"gpus": "32"}).document
    assert at(made, "software.gradients.master_weights") is False


@pytest.mark.parametrize(
    "degree", ["data_parallel_replicate_degree = 0", "pipeline_parallel_degree = 99999999"]
)
def test_degrees_of_torchtitan_that_nobody_can_have(degree: str) -> None:
    assert f"parallelism.{degree.split()[0]}" in refused(titan(degree + "\n"), {"gpus": "32"})


@pytest.mark.parametrize(
    ("said", "tp", "names"),
    [
        ("enable_loss_parallel = true", 8, set()),
        ("enable_loss_parallel = false", 8, {"training.enable_loss_parallel"}),
        ("enable_loss_parallel = false", 1, set()),
        ("disable_loss_parallel = true", 8, {"training.disable_loss_parallel"}),
        ("disable_loss_parallel = true", 1, set()),
    ],
)
def test_a_loss_of_whole_logits_is_refused_where_tensors_are_split(
    said: str, tp: int, names: set[str]
) -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nbatch_size = 8\nseq_len = 8192\n'
        f"tensor_parallel_degree = {tp}\n{said}\n"
    )
    assert refused({"run.toml": text}, {"gpus": "64"}) == names
