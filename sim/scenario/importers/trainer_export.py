"""A scenario as a launch of a Hugging Face Trainer with its DeepSpeed JSON, for runs that were read from one.

Source: as of the importers (deepspeed_json.py, trainer.py). The model is told by its name in the catalogue.
"""

from __future__ import annotations

import json

from ..errors import Mark, Problem, ScenarioError
from ..models import Scenario

TRAINER = "huggingface-deepspeed"
"""How the software of such a run is called (deepspeed.py)."""

_ATTENTION = {"fa2": "sdpa", "fa3": "flash_attention_3", "unfused": "eager"}


def write_trainer(scenario: Scenario) -> str:
    """The script, which writes the JSON before it starts.

    Raises:
        ScenarioError: the layout has more than data parallelism, which is all that a Trainer has.
    """
    _check_axes(scenario)
    training = scenario.training
    each = min(scenario.cluster.gpus_per_node, scenario.cluster.gpus)
    options: list[tuple[str, object]] = [
        ("deepspeed", "ds_config.json"),
        ("model_name_or_path", scenario.model.name),
        ("max_seq_length", training.seq_length),
        ("per_device_train_batch_size", training.micro_batch),
        ("gradient_accumulation_steps", scenario.num_microbatches),
        ("gradient_checkpointing", str(training.recompute == "full").lower()),
        ("attn_implementation", _ATTENTION.get(scenario.software.kernels.attention, "sdpa")),
    ]
    if training.recompute == "full" and scenario.software.kernels.recompute_stops_early:
        options.append(("gradient_checkpointing_kwargs", "'{\"use_reentrant\":false}'"))
    if scenario.software.kernels.optimizer_implementation == "fused":
        options.append(("optim", "adamw_torch_fused"))
    if training.precision in ("bf16", "fp16"):
        options.append((training.precision, "true"))
    lines = [f"    --{name} {value}" for name, value in options]
    machine = f"{scenario.cluster.gpus} {scenario.cluster.gpu_name}"
    return "\n".join([
        "#!/bin/bash",
        f"# Hugging Face Trainer with DeepSpeed, for {machine}. Written by stepsim export.",
        "cat <<EOT > ds_config.json",
        json.dumps(_document(scenario), indent=2),
        "EOT",
        "OPTIONS=(",
        *lines,
        ")",
        f"deepspeed --num_nodes {scenario.cluster.gpus // each} --num_gpus {each} train.py ${{OPTIONS[@]}}",
        "",
    ])  # fmt: skip


def _check_axes(scenario: Scenario) -> None:
    sizes = {axis: getattr(scenario.parallelism, axis) for axis in ("tp", "pp", "cp", "ep")}
    problems = [
        Problem(
            mark=Mark(file="scenario"),
            path=f"parallelism.{axis}",
            message="a Trainer's DeepSpeed file cannot express this: it has data parallelism alone",
            value=size,
        )
        for axis, size in sizes.items()
        if size > 1
    ]
    if problems:
        raise ScenarioError(problems)


def _document(scenario: Scenario) -> dict[str, object]:
    training, zero = scenario.training, zero_of(scenario)
    if scenario.parallelism.zero == 3:
        sharding = scenario.software.sharding
        zero |= {
            "stage3_prefetch_bucket_size": _whole(sharding.prefetch_elements),
            "stage3_max_live_parameters": _whole(sharding.max_live_elements),
            "stage3_param_persistence_threshold": _whole(sharding.persistent_elements),
        }
    document: dict[str, object] = {
        "train_batch_size": training.global_batch,
        "train_micro_batch_size_per_gpu": training.micro_batch,
        "gradient_accumulation_steps": scenario.num_microbatches,
        "zero_optimization": {name: value for name, value in zero.items() if value is not None},
    }
    if training.precision in ("bf16", "fp16"):
        document[training.precision] = {"enabled": True}
    return document


def zero_of(scenario: Scenario) -> dict[str, object]:
    """The part ``zero_optimization`` of DeepSpeed's JSON, without what stage 3 has alone."""
    par, training, gradients = scenario.parallelism, scenario.training, scenario.software.gradients
    zero: dict[str, object] = {"stage": par.zero}
    if par.zero:
        zero["overlap_comm"] = gradients.overlap_grad_reduce
        zero["reduce_bucket_size"] = int(min(gradients.bucket(par.dp), 1e12))
    if training.cpu_offload:
        zero["offload_optimizer"] = {"device": "nvme" if training.nvme_offload else "cpu"}
    return zero


def _whole(elements: float | None) -> int | None:
    return None if elements is None else int(elements)
