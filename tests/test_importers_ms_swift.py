"""Scripts of ms-swift: its own names and defaults, over the Trainer's and over Megatron's."""

from __future__ import annotations

import pytest
from importing import at, imported, refused, scenario

CORE = (
    "NNODES=2 \\\nNPROC_PER_NODE=8 \\\nmegatron sft --load Qwen3-30B-A3B-Base-mcore"
    " --tensor_model_parallel_size 2 --expert_model_parallel_size 8 --sequence_parallel true"
    " --max_length 4096 --packing true --moe_permute_fusion true --finetune true --lr 1e-5"
)
TRAINER = (
    "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --tuner_type full --max_length 2048"
    " --model_name my-robot --model_author me --dataset some#1000 --learning_rate 1e-5"
)


def test_megatron_has_the_defaults_of_ms_swift() -> None:
    made = scenario({"run.sh": CORE})
    assert made.world_size == 16
    par, training, software = made.parallelism, made.training, made.software
    assert (par.tp, par.ep, par.etp, par.zero, par.sequence_parallel) == (2, 8, 1, 1, True)
    assert (training.micro_batch, training.global_batch, training.seq_length) == (1, 16, 4096)
    assert (training.precision, training.recompute) == ("bf16", "selective")
    assert software.exchange.moe_dispatcher == "alltoall"
    assert (software.kernels.attention, software.gradients.main_grad_bytes) == ("fa2", 4)
    assert (made.model.num_layers, made.model.mtp_layers, made.model.dropout) == (48, 0, 0.0)
    assert made.model.make_vocab_size_divisible_by == 1  # the rows of config.json


@pytest.mark.parametrize(
    ("more", "path", "three", "four"),
    [
        ("", "software.kernels.cross_entropy", "vocab-parallel", "compiled"),
        ("", "software.kernels.fused_rope", None, False),
        ("--recompute_granularity none", "training.recompute", "none", "none"),
        ("--mtp_num_layers 1", "model.mtp_layers", 1, 1),
        ("--moe_expert_capacity_factor 2", "model.moe.capacity_factor", 2.0, 2.0),
        ("--torch_dtype float16", "training.precision", "fp16", "fp16"),
    ],
)
def test_megatron_by_version(more: str, path: str, three: object, four: object) -> None:
    for version, value in (("3.8", three), ("4.0.1", four)):
        assert at(imported({"run.sh": f"{CORE} {more}"}, version=version).document, path) == value


def test_arguments_tell_the_version() -> None:
    assert imported({"run.sh": CORE}).version == "3"  # --load
    later = CORE.replace("--load", "--model") + " --save_interval 200"  # a name that 4 understands, too
    assert imported({"run.sh": later}).version == "4"
    with pytest.raises(ValueError, match="3 and 4"):
        imported({"run.sh": CORE}, version="2.6")


def test_chunks_and_extra_arguments_of_megatron() -> None:
    more = """ --pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 2
    --megatron_extra_kwargs '{"overlap_grad_reduce": true}'""".replace("\n", "\\\n")
    made = scenario({"run.sh": CORE.replace("--load", "--model") + more}, version="4")
    assert (made.parallelism.pp, made.parallelism.vpp, str(made.schedule)) == (2, 2, "interleaved")
    assert made.software.gradients.overlap_grad_reduce


def test_the_trainer_has_the_defaults_of_ms_swift() -> None:
    made = scenario({"run.sh": TRAINER})
    training = made.training
    # 16 samples a step over 4 ranks of one sample each.
    assert (made.world_size, training.micro_batch, training.global_batch) == (4, 1, 16)
    assert (training.recompute, training.precision, training.seq_length) == ("full", "bf16", 2048)
    assert (made.parallelism.zero, made.software.name) == (0, "huggingface-ddp")
    assert not made.software.gradients.master_weights  # loaded in the model's own 16 bit
    assert made.model.hidden_size == 4096


@pytest.mark.parametrize(
    ("more", "zero", "overlap"),
    [("--deepspeed zero2", 2, False), ("--deepspeed zero3", 3, False), ("--fsdp fsdp2", 3, None)],
)
def test_sharding_by_the_names_of_ms_swift(more: str, zero: int, overlap: bool | None) -> None:
    made = scenario({"run.sh": f"{TRAINER} {more}"})
    assert (made.parallelism.zero, made.training.recompute) == (zero, "full")
    if overlap is None:
        assert made.software.sharding.implementation == "fsdp2"
        return
    assert made.software.name == "huggingface-deepspeed"
    assert made.software.gradients.overlap_grad_reduce is overlap
    buckets = made.software.gradients.bucket_elements
    assert buckets == (2e8 if zero == 2 else 4096**2)
    older = scenario({"run.sh": f"{TRAINER} {more}"}, version="3")
    assert older.software.gradients.overlap_grad_reduce


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (TRAINER.replace("--tuner_type full", ""), "tuner_type"),  # LoRA is the default
        (f"{TRAINER} --deepspeed zero3_offload", "--deepspeed zero3_offload"),
        (f"{TRAINER} --deepspeed zero9", "--deepspeed"),
        (f"{TRAINER} --sequence_parallel_size 4", "--sequence_parallel_size"),
        (f"{TRAINER} --freeze_parameters_ratio 0.5", "--freeze_parameters_ratio"),
        (f"{TRAINER} --task_type seq_cls", "--task_type"),
        (TRAINER.replace("sft", "rlhf") + " --rlhf_type dpo", "--rlhf_type"),
        (TRAINER.replace("NPROC_PER_NODE=4", "CUDA_VISIBLE_DEVICES=0,1"), "NPROC_PER_NODE"),
        (TRAINER.replace("--tuner_type", "--sft_type"), "--sft_type"),
        (TRAINER.replace("--max_length 2048", ""), "seq_length"),
        (f"{CORE} --tuner_type lora", "--tuner_type"),
        (CORE.replace("NNODES=2", "NNODES=$HOSTS"), "gpus"),
        (CORE.replace("Qwen3-30B-A3B-Base", "Qwen9-1T"), "model"),
    ],
)
def test_what_is_another_job_is_refused_or_asked(script: str, name: str) -> None:
    assert name in refused({"run.sh": script}, {} if "NPROC" in script else {"gpus": "2"})


def test_a_model_that_nobody_knows_is_all_that_is_asked() -> None:
    script = CORE.replace("Qwen3-30B-A3B-Base", "Qwen9-1T") + " --decoder_first_pipeline_num_layers 3"
    assert refused({"run.sh": script}) == {"model"}


def test_variables_of_the_environment_may_be_given() -> None:
    script = CORE.replace("NNODES=2", "NNODES=$WORLD_SIZE").replace("NPROC_PER_NODE=8 \\\n", "")
    made = scenario({"run.sh": script}, {"WORLD_SIZE": "4", "NPROC_PER_NODE": "8"})
    assert made.world_size == 32


def test_switches_that_are_off_change_nothing() -> None:
    off = "--freeze_llm false --use_megatron_fsdp false --moe_enable_deepep False --fp8_param_gather false"
    plain, switched = (scenario({"run.sh": f"{CORE} {more}"}) for more in ("", off))
    assert plain == switched
    assert "--freeze_llm" in refused({"run.sh": f"{CORE} --freeze_llm true"})


def test_a_program_may_stand_in_a_folder() -> None:
    assert imported({"run.sh": TRAINER.replace("swift sft", "$V/bin/swift sft")}).framework == "ms-swift"


def test_a_json_of_ones_own_is_read_where_it_is_given() -> None:
    files = {
        "run.sh": f"{TRAINER} --deepspeed configs/mine.json",
        "mine.json": '{"zero_optimization": {"stage": 2, "overlap_comm": true}}',
    }
    made = scenario(files)
    assert (made.parallelism.zero, made.software.gradients.overlap_grad_reduce) == (2, True)


def test_a_module_that_torchrun_starts() -> None:
    head = "torchrun --nproc_per_node=4 --nnodes=2 swift/cli/sft.py"
    made = scenario({"run.sh": TRAINER.replace("NPROC_PER_NODE=4 swift sft", head)})
    assert (made.world_size, made.training.global_batch) == (8, 16)
