"""Published step times of configurations in the shared data: what their rows change, and what was measured.

A row describes the run that was measured; where its file says otherwise, the row is given beside the file, as
the one who ran it had it on the command line. Rows are left out that contradict themselves (SUSPECT), that
are small models on few GPUs, that leave out a size, or whose figure is neither a step time nor tokens per
second nor FLOPs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from imported_configs import GPUS, Published, facts

from stepsim.sim.scenario.machine import slurm_segment

Given = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure: a step time, tokens per second and GPU, or model FLOP/s of a GPU; one of them."""

    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    flops_per_s: float | None = None

    def step_s(self, *, tokens_per_gpu: float, flops_per_gpu: float) -> float:
        """The step time that it means for a step of so many tokens and FLOPs."""
        if self.step_time_s is not None:
            return self.step_time_s
        if self.tokens_per_s_per_gpu is not None:
            return tokens_per_gpu / self.tokens_per_s_per_gpu
        assert self.flops_per_s is not None
        return flops_per_gpu / self.flops_per_s


def figure_of(one: Published) -> Figure | None:
    """The first figure of the row's text; None where it has none of a known kind."""
    text = one.row.get("published_figure", "")
    if found := re.search(r"step ([\d.]+) s", text) or re.search(r"([\d.]+) s/iteration", text):
        return Figure(step_time_s=float(found[1]))
    if found := re.match(r"([\d.]+)(?: \([\d.]+\))? tokens/s/GPU", text):
        return Figure(tokens_per_s_per_gpu=float(found[1]))
    if found := re.match(r"([\d.]+) TFLOP/s/GPU", text):
        return Figure(flops_per_s=float(found[1]) * 1e12)
    return None


def skipped(one: Published) -> str | None:
    """Why a row with a figure is not predicted; None where it is."""
    row = one.row
    note, gpus, text = row.get("note", ""), row.get("gpus", ""), row["published_figure"]
    if "SUSPECT" in note:
        return "it contradicts itself"
    if "small model" in note:
        return "a small model, whose time is its launches"
    if not gpus.isdigit() and not ("gpu_type" in row and row["gpu_type"].startswith("TPU")):
        return "the number of GPUs is not published"
    if "V100" in row.get("gpu_type", ""):
        return "the GPU (V100) is not in the catalogue"
    if "hardware" in text and "176B" not in row["model"]:
        return "the sizes of the model are not in the row"
    if gpus.isdigit() and int(gpus) < 8 and not re.search(r"\d\s?[bB]\b|\dB", row["model"]):
        return "fewer than 8 GPUs and 1 B parameters"
    return None if figure_of(one) else "the figure is of another kind"


def sizes_of(one: Published) -> dict[str, str]:
    """``tp=2 pp=4 (8)`` as numbers, the first where two are given."""
    return dict(re.findall(r"(\w+)=(-?\d+)", one.row.get("parallelism", "")))


def given_of(one: Published) -> Given:
    """All that is given beside the file for the run of this row."""
    return facts(one) | _BY_FRAMEWORK.get(one.framework, lambda _: {})(one)


def _torchtitan(one: Published) -> Given:
    sizes, row = sizes_of(one), one.row
    note, figure = row["note"], row["published_figure"]
    given = {
        "training.seq_len": row["seq_length"],
        "interconnect": "roce-400-x8",
        "data_parallel_shard_degree": sizes["fsdp"],
    }
    given["training.batch_size" if "9dec370" in one.file else "training.local_batch_size"] = row[
        "micro_batch"
    ]
    for axis, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context")):
        given[f"{name}_parallel_degree"] = sizes.get(axis, "1")
    old = "9dec370" in one.file
    given["training.compile"] = str("compile" in note).lower()
    if "full AC" in note:
        given["activation_checkpoint.mode"] = "full"
    elif "SAC" in note or "(op)" in note:
        given |= {
            "activation_checkpoint.mode": "selective",
            "activation_checkpoint.selective_ac_option": "op",
        }
    if old:
        given["float8.enable_float8_linear"] = str("float8" in note).lower()
    elif "float8" in note or "float8" in figure:
        given["model.converters"] = "float8"
    if "float8" in note or "float8" in figure:
        given["enable_fsdp_float8_all_gather"] = "true"
    if sizes.get("tp", "1") != "1":
        given["enable_async_tensor_parallel"] = str("full AC" in note).lower()
    if "float8 rowwise" in figure:
        given["float8.recipe_name"] = "rowwise"
    if found := re.search(r"schedule (\w+)", note):
        given["pipeline_parallel_schedule"] = found[1]
    return given


def _foundry(one: Published) -> Given:
    row, note = one.row, one.row["note"]
    mixed = re.search(r"mixed_precision (\w+)", note)
    precision = re.search(r"precision (\w+)", note)
    again = re.search(r"activation_checkpointing=(\w+)", note)
    given = {
        "max_seq_len": row["seq_length"], "global_train_batch_size": row["global_batch"],
        "device_train_microbatch_size": row["micro_batch"],
        "attn_impl": "triton", "interconnect": "roce-200-x8" if "A100" in row["gpu_type"] else "ib-ndr400-x8",
    }  # fmt: skip
    if mixed and precision and again:
        given |= {
            "mixed_precision": mixed[1],
            "precision": precision[1],
            "activation_checkpointing": again[1].lower(),
        }
    if found := re.search(r"(FULL_SHARD|SHARD_GRAD_OP|HYBRID_SHARD)", row["parallelism"]):
        given["sharding_strategy"] = found[1]
    return given


_MODELS = {"Grok-1": "grok-1", "Llama 3.1 405B": "llama3.1-405b", "Nemotron4 340B": "nemotron4-340b"}


def _nemo(one: Published) -> Given:
    sizes, row = sizes_of(one), one.row
    eight = "FP8" in row["published_figure"]
    batches = {"global_batch_size": row["global_batch"], "micro_batch_size": row["micro_batch"]}
    if one.record is not None:
        model = next(name for words, name in _MODELS.items() if row["model"].startswith(words))
        given = {
            "model": model,
            "compute_dtype": "fp8" if eight else "bf16",
            "seq_length": row["seq_length"],
            **batches,
        }
        for axis, name in (("tp", "tensor_model"), ("pp", "pipeline_model"), ("cp", "context"), ("ep",
        "expert_model"),
                           ("vp", "virtual_pipeline_model"), ("etp", "expert_tensor")):  # fmt: skip
            if axis in sizes:
                given[f"{name}_parallel_size"] = sizes[axis]
        if model == "nemotron4-340b":  # the list has the options of several sizes
            given |= {"num_layers": "96", "hidden_size": "18432"}
        return given | {"gpus_per_node": "4" if "GB" in row["gpu_type"] else "8"}
    given = {"encoder_seq_length": row["seq_length"], **batches, "fp8": str(eight).lower()}
    for axis, name in (
        ("tp", "tensor_model"),
        ("pp", "pipeline_model"),
        ("cp", "context"),
        ("ep", "expert_model"),
    ):
        given[f"{name}_parallel_size"] = sizes.get(axis, "1")
    given["virtual_pipeline_model_parallel_size"] = sizes.get("vp", "1")
    if found := re.search(r"\((\d+) of \d+ layers\)", row["model"]):
        given["num_layers"] = found[1]
    return given


def _bridge(one: Published) -> Given:
    sizes, row = sizes_of(one), one.row
    given = {
        "compute_dtype": "fp8_cs",
        "global_batch_size": row["global_batch"],
        "micro_batch_size": row["micro_batch"],
    }
    for axis, name in (
        ("tp", "tensor_model"),
        ("pp", "pipeline_model"),
        ("cp", "context"),
        ("ep", "expert_model"),
        ("vp", "virtual_pipeline_model"),
    ):
        given[f"{name}_parallel_size"] = sizes.get(axis, "1")
    given["use_megatron_fsdp"] = str(sizes.get("fsdp", "0") != "0").lower()
    given["use_tokendrop"] = str("tokendrop" in row["model"]).lower()
    return given


def _megatron(one: Published) -> Given:
    given = {}
    used = slurm_segment(GPUS.get(one.row["gpu_type"], ""), int(one.row["gpus"]), 4)
    if used is not None and "GB" in one.row["gpu_type"]:
        given["gpus_per_domain"] = str(used)
    if "MXFP8" in one.row["published_figure"]:
        given |= {"fp8_format": "e4m3", "fp8_recipe": "mxfp8"}
    if "selective recompute" in one.row["note"]:
        given["recompute_granularity"] = "selective"
    return given | (_zoo(one) if "Megatron-MoE-ModelZoo" in one.file else {})


def _zoo(one: Published) -> Given:
    """What the repository's scripts put on the command line behind the YAML of a model (best_practice/qwen3:
    run_h100_235b.sh, run_gb200_235b.sh, run_gb300_235b.sh at 020b8136, readme.md)."""
    given = {"moe_router_force_load_balancing": "true"}
    if "H100" in one.row["gpu_type"]:
        return given | {"recompute_modules": "layernorm moe"}
    given["moe_flex_dispatcher_backend"] = "hybridep"
    if one.row["seq_length"] == "4096":
        given |= {
            "cuda_graph_impl": "transformer_engine",
            "cuda_graph_scope": "attn moe_router moe_preprocess",
        }
    else:
        given |= {"recompute_granularity": "selective", "recompute_modules": "moe_act layernorm"}
    return given


def _deepspeed(one: Published) -> Given:
    return {
        "global_batch_size": one.row["global_batch"], "pp_partition_method": "type:transformer|embedding",
        "interconnect": "omnipath-100-x4",
    }  # fmt: skip


def _maxtext(one: Published) -> Given:
    return {"interconnect": "roce-400-x8"}


_BY_FRAMEWORK: dict[str, Callable[[Published], Given]] = {
    "torchtitan": _torchtitan, "llm-foundry": _foundry, "nemo": _nemo, "megatron-bridge": _bridge,
    "megatron-lm": _megatron, "deepspeed": _deepspeed, "maxtext": _maxtext,
}  # fmt: skip
