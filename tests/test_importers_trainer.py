"""Runs of transformers' Trainer: its arguments in a YAML or a script, with accelerate's file or a JSON."""

from __future__ import annotations

import pytest
from importing import at, imported, refused, scenario

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.export import export

ARGUMENTS = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
bf16: true
gradient_accumulation_steps: 4
gradient_checkpointing: true
max_length: 2048
per_device_train_batch_size: 2
per_device_eval_batch_size: 8
hub_model_id: mine
"""
ACCELERATE = (
    "distributed_type: FSDP\nmixed_precision: 'no'\nnum_processes: 8\n"
    "fsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"
)
AUTO = (
    '{"bf16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 3,\n'
    '"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",\n'
    '"stage3_param_persistence_threshold": "auto"}, "train_micro_batch_size_per_gpu": "auto"}'
)
SCRIPT = (
    "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 True"
    " --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --model_max_length 2048"
)


@pytest.mark.parametrize("order", [1, -1])
def test_a_yaml_of_arguments_belongs_to_accelerates_file_beside_it(order: int) -> None:
    names = ("fsdp.yaml", "sft.yaml")[::order]
    files = {"fsdp.yaml": ACCELERATE, "sft.yaml": ARGUMENTS}
    made = scenario({name: files[name] for name in names})
    assert (made.training.micro_batch, made.training.global_batch, made.training.seq_length) == (2, 64, 2048)
    assert (made.parallelism.zero, made.training.recompute) == (3, "full")
    assert made.training.precision == "bf16"  # of the arguments, over mixed_precision


def test_arguments_alone_are_replicas_and_say_so() -> None:
    made = imported({"sft.yaml": ARGUMENTS}, {"gpus": "8"})
    assert at(made.document, "parallelism.zero") == 0
    assert any("who shards" in note for note in made.notes)


@pytest.mark.parametrize(
    "files",
    [
        {"sft.yaml": ARGUMENTS + "deepspeed: ds.json\n", "ds.json": AUTO},
        {"run.sh": f"{SCRIPT} --gradient_checkpointing True --deepspeed ds.json\n", "ds.json": AUTO},
        {
            "run.sh": SCRIPT.replace(
                "torchrun --nproc_per_node 8",
                "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.conf",
            )
            + " --gradient_checkpointing True\n",
            "ds.conf": AUTO,
        },
    ],
)
def test_sizes_that_a_json_leaves_to_the_trainer_are_the_trainers(files: dict[str, str]) -> None:
    given = {} if "run.sh" in files else {"gpus": "8"}
    made = scenario(files, given)
    assert (made.training.micro_batch, made.training.global_batch) == (2, 64)
    assert (made.parallelism.zero, made.training.precision) == (3, "bf16")
    # What Hugging Face makes of sizes that are auto, by the width of 4096.
    assert made.software.gradients.bucket_elements == 4096**2
    assert made.software.sharding.prefetch_elements == int(0.9 * 4096**2)
    assert made.software.sharding.persistent_elements == 40960


def test_another_accumulation_in_the_json_is_refused() -> None:
    other = AUTO.replace('"gradient_accumulation_steps": "auto"', '"gradient_accumulation_steps": 2')
    files = {"sft.yaml": ARGUMENTS + "deepspeed: ds.json\n", "ds.json": other}
    assert "gradient_accumulation_steps" in refused(files, {"gpus": "8"})
    assert refused({"sft.yaml": ARGUMENTS + "deepspeed: ds.json\n"}, {"gpus": "8"}) == {"deepspeed"}


@pytest.mark.parametrize(
    ("words", "stage"),
    [("full_shard auto_wrap", 3), ("shard_grad_op auto_wrap", 2), ("no_shard auto_wrap", 0)],
)
def test_fsdp_of_the_trainers_arguments(words: str, stage: int) -> None:
    script = f"{SCRIPT} --fsdp '{words}' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer\n"
    made = scenario({"run.sh": script})
    assert (made.parallelism.zero, made.cluster.gpus) == (stage, 8)
    assert made.software.name == "huggingface-fsdp"
    listed = (
        f"{ARGUMENTS}fsdp: [{words.replace(' ', ', ')}]\nfsdp_config: {{transformer_layer_cls_to_wrap: L}}\n"
    )
    assert scenario({"sft.yaml": listed}, {"gpus": "8"}).parallelism.zero == stage


def test_fsdp_of_the_trainers_arguments_is_over_accelerates_file() -> None:
    """transformers training_args.py writes the environment that accelerate launch made by its file."""
    launched = ACCELERATE.replace("{fsdp_auto", "{fsdp_sharding_strategy: FULL_SHARD, fsdp_auto")
    given = {"fsdp.yaml": launched, "sft.yaml": ARGUMENTS + "fsdp: shard_grad_op auto_wrap\n"}
    assert scenario(given).parallelism.zero == 2


def test_sizes_of_the_third_stage_are_nothing_of_the_second() -> None:
    given = {
        "sft.yaml": ARGUMENTS + "deepspeed: ds.json\n",
        "ds.json": AUTO.replace('"stage": 3', '"stage": 2'),
    }
    found = imported(given, {"gpus": "8"})
    assert at(found.document, "software.gradients.bucket_elements") == 4096**2
    assert not any(one.endswith(("prefetch_elements", "persistent_elements")) for one in found.origins)


def test_replicas_that_load_32_bit_run_under_autocast() -> None:
    for dtype, autocast in (("float32", True), ("bfloat16", False)):
        made = scenario({"sft.yaml": f"{ARGUMENTS}torch_dtype: {dtype}\n"}, {"gpus": "8"})
        assert made.software.kernels.autocast is autocast


def test_fsdp_on_the_host_or_of_another_word_is_refused() -> None:
    for words, name in (("full_shard auto_wrap offload", "--fsdp"), ("full_shards auto_wrap", "--fsdp")):
        assert refused({"run.sh": f"{SCRIPT} --fsdp '{words}'\n"}) == {name}


def test_keys_that_accelerate_ends_on_are_refused() -> None:
    wrong = {"fsdp.yaml": ACCELERATE + "invalid_key: 1\n", "sft.yaml": ARGUMENTS}
    assert "invalid_key" in refused(wrong)


FACTORY = (
    "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\ntemplate: llama3\n"
    "per_device_train_batch_size: 1\nbf16: true\nflash_attn: fa2\n"
)


def test_llama_factory_checkpoints_and_cuts_unless_told() -> None:
    made = scenario({"sft.yaml": FACTORY}, {"gpus": "8"})
    assert (made.training.recompute, made.training.seq_length) == ("full", 2048)
    told = FACTORY + "disable_gradient_checkpointing: true\ncutoff_len: 4096\n"
    made = scenario({"sft.yaml": told}, {"gpus": "8"})
    assert (made.training.recompute, made.training.seq_length) == ("none", 4096)


@pytest.mark.parametrize(("more", "stops"), [("", False), ("use_reentrant_gc: false\n", True)])
def test_checkpoints_of_llama_factory_are_reentrant_unless_told(more: str, stops: bool) -> None:
    made = scenario({"sft.yaml": FACTORY + more}, {"gpus": "8"})
    assert made.software.kernels.recompute_stops_early is stops


@pytest.mark.parametrize(
    ("stage", "more", "said"),
    [
        ("sft", "", "longest length"),
        ("sft", "neat_packing: true\n", "document_length"),
        ("sft", "packing: true\n", None),
        ("pt", "", None),
        ("pt", "packing: false\n", "longest length"),
    ],
)
def test_packs_of_llama_factory_are_noted(stage: str, more: str, said: str | None) -> None:
    text = FACTORY.replace("stage: sft", f"stage: {stage}") + more
    notes = imported({"sft.yaml": text}, {"gpus": "8"}).notes
    told = [any(one in note for note in notes) for one in ("document_length", "longest length")]
    assert told == [said == "document_length", said == "longest length"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (("finetuning_type: full", "finetuning_type: lora"), "finetuning_type"),
        (("finetuning_type: full\n", ""), "finetuning_type"),
        (("stage: sft", "stage: dpo"), "stage"),
        (("flash_attn: fa2", "use_galore: true"), "use_galore"),
        (("flash_attn: fa2", "use_unsloth: true"), "use_unsloth"),
    ],
)
def test_what_llama_factory_does_besides_is_refused(change: tuple[str, str], name: str) -> None:
    assert refused({"sft.yaml": FACTORY.replace(*change)}, {"gpus": "8"}) == {name}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", None),
        ("packing: true\n", "document_length"),
        ("packing: true\npacking_strategy: wrapped\n", None),
        ("packing: false\n", "longest length"),
    ],
)
def test_trls_packs_are_noted(more: str, said: str | None) -> None:
    notes = imported({"sft.yaml": ARGUMENTS + more}, {"gpus": "8"}).notes
    told = [any(one in note for note in notes) for one in ("document_length", "longest length")]
    assert told == [said == "document_length", said == "longest length"]


def test_trl_checkpoints_and_cuts_unless_told() -> None:
    plain = "".join(
        line for line in ARGUMENTS.splitlines(keepends=True) if not line.startswith(("gradient_ch", "max_l"))
    )
    made = scenario({"sft.yaml": plain + "packing: true\n"}, {"gpus": "8"})
    assert (made.training.recompute, made.training.seq_length) == ("full", 1024)
    told = plain + "packing: true\ngradient_checkpointing: false\nmax_length: 4096\n"
    made = scenario({"sft.yaml": told}, {"gpus": "8"})
    assert (made.training.recompute, made.training.seq_length) == ("none", 4096)
    assert refused({"sft.yaml": plain}, {"gpus": "8"}) == {"seq_length"}


def test_training_by_preferences_is_refused() -> None:
    assert refused({"dpo.yaml": ARGUMENTS + "beta: 0.1\n"}, {"gpus": "8"}) == {"beta"}


def test_what_is_wrong_is_named_with_its_own_file() -> None:
    with pytest.raises(ScenarioError) as refusal:
        imported({"fsdp.yaml": ACCELERATE, "sft.yaml": "use_galore: true\n" + ARGUMENTS})
    (problem,) = refusal.value.problems
    assert (problem.mark.file, problem.mark.line) == ("sft.yaml", 1)
    ds = AUTO.replace('"stage": 3', '"stage": 3, "zero_quantized_weights": true')
    with pytest.raises(ScenarioError) as refusal:
        imported({"sft.yaml": ARGUMENTS + "deepspeed: ds.json\n", "ds.json": ds}, {"gpus": "8"})
    assert {problem.mark.file for problem in refusal.value.problems} == {"ds.json"}


@pytest.mark.parametrize(
    ("more", "fused", "chunks"),
    [
        ("", False, 1),
        ("use_liger_kernel: true\n", True, 32),  # of 4,096 tokens: 128,256 words over 4,096, 128 rows each
        ("use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: false}\n", True, 1),
        ("use_liger_kernel: true\nliger_kernel_config: {swiglu: false}\n", False, 32),
    ],
)
def test_ligers_kernels_are_fused_and_its_loss_is_in_chunks(more: str, fused: bool, chunks: int) -> None:
    kernels = scenario({"sft.yaml": ARGUMENTS + more}, {"gpus": "8"}).software.kernels
    assert (kernels.fused_activation, kernels.loss_chunks) == (fused, chunks)
    assert (kernels.fused_norm, kernels.fused_rope) == (bool(more), bool(more))
    assert kernels.logits_fp32 is (chunks == 1)
    assert (kernels.cross_entropy == "fused") is (chunks > 1)  # its other loss is off unless told


def test_ligers_kernels_of_experts_are_refused() -> None:
    moe = ARGUMENTS.replace("meta-llama/Meta-Llama-3-8B", "mistralai/Mixtral-8x7B-v0.1")
    assert refused({"sft.yaml": moe + "use_liger_kernel: true\n"}, {"gpus": "8"}) == {"use_liger_kernel"}


def test_json_of_a_command_line_is_taken_apart() -> None:
    more = " --gradient_checkpointing True --gradient_checkpointing_kwargs "
    script = f"{SCRIPT}{more}'{{\"use_reentrant\": false}}'\n"
    assert scenario({"run.sh": script}).software.kernels.recompute_stops_early
    assert refused({"run.sh": f"{SCRIPT}{more}'{{use_reentrant}}'\n"}) == {"--gradient_checkpointing_kwargs"}


def test_a_run_of_accelerates_is_written_as_a_trainers_with_its_json() -> None:
    text = ARGUMENTS + "gradient_checkpointing_kwargs: {use_reentrant: false}\noptim: adamw_torch_fused\n"
    made = scenario({"sft.yaml": text + "deepspeed: ds.json\n", "ds.json": AUTO}, {"gpus": "8"})
    written = export(made, "deepspeed")
    assert "adamw_torch_fused" in written
    assert "use_reentrant" in written


def test_torchrun_without_a_number_of_hosts_starts_one() -> None:
    assert scenario({"run.sh": SCRIPT + "\n"}).cluster.gpus == 8
    slurm = "#!/bin/bash\n#SBATCH --nodes=4\nsrun " + SCRIPT + "\n"
    assert scenario({"run.sh": slurm}).cluster.gpus == 32
