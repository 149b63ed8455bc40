"""A scenario as a launch script of Megatron-DeepSpeed, or of a Hugging Face Trainer, that writes its JSON.

Source: as of the importer (deepspeed.py).
"""

from __future__ import annotations

import json

from ..models import Scenario
from .importer import Exporter
from .megatron_lm_export import options_of
from .trainer_export import TRAINER, write_trainer, zero_of


def write_script(scenario: Scenario, _version: str | None) -> str:
    """The script, of the Trainer where the run was read from one; it is of any version."""
    if scenario.software.name == TRAINER:
        return write_trainer(scenario)
    training, par, software = scenario.training, scenario.parallelism, scenario.software
    document: dict[str, object] = {
        "train_batch_size": training.global_batch, "train_micro_batch_size_per_gpu": training.micro_batch,
        "zero_optimization": zero_of(scenario),
    }  # fmt: skip
    if training.precision in ("bf16", "fp16"):
        document[training.precision] = {"enabled": True}
    later = "recompute_granularity"  # an option of later versions of Megatron-LM
    options = [one for one in options_of(scenario, (2, 5), sharding=False) if one[0] != later]
    # The attention of later versions is an option of this fork, too.
    options += [("use_flash_attn", True)] if software.kernels.attention == "fa2" else []
    options += [("swiglu", True)] if scenario.model.mlp == "swiglu" else []
    if scenario.model.num_query_groups != scenario.model.num_attention_heads:
        options += [("group_query_attention", True), ("num_query_groups", scenario.model.num_query_groups)]
    if par.stage_split == "embedding_and_loss_as_layers":
        options = [one for one in options if not one[0].startswith("account_for")]
        options.append(("pp_partition_method", "'type:transformer|embedding'"))
    options += [("sequence_parallel", True)] if par.sequence_parallel else []
    if par.cp > 1 and software.exchange.cp_comm == "a2a":
        options.append(("ds_sequence_parallel_size", par.cp))
    options = [one for one in dict(options).items() if one[0] != "context_parallel_size"]
    options += [("deepspeed", True), ("deepspeed_config", "ds_config.json"), ("zero_stage", par.zero)]
    if par.zero > 1 and par.pp == 1:
        options.append(("no_pipeline_parallel", True))
    each = min(scenario.cluster.gpus_per_node, scenario.cluster.gpus)
    lines = [f"    --{_written(name)}" + ("" if value is True else f" {value}") for name, value in options]
    environment = ["export CUDA_LAUNCH_BLOCKING=1"] if software.host.launch_blocking else []
    machine = f"{scenario.cluster.gpus} {scenario.cluster.gpu_name}"
    launcher = f"deepspeed --num_nodes {scenario.cluster.gpus // each} --num_gpus {each}"
    return "\n".join([
        "#!/bin/bash",
        f"# Megatron-DeepSpeed, for {machine}. Written by stepsim export.",
        *environment,
        "cat <<EOT > ds_config.json",
        json.dumps(document, indent=2),
        "EOT",
        "OPTIONS=(",
        *lines,
        ")",
        f"{launcher} pretrain_gpt.py ${{OPTIONS[@]}}",
        "",
    ])  # fmt: skip


def _written(name: str) -> str:
    return name if name == "deepspeed_config" else name.replace("_", "-")


EXPORTER = Exporter(name="deepspeed", title="DeepSpeed", suffix=".sh", write=write_script)
