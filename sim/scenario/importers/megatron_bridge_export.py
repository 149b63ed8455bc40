"""A scenario as options of Megatron-Bridge's performance launcher. Source: as of the importer
(recipes.py)."""

from __future__ import annotations

from ..errors import Mark, Problem, ScenarioError
from ..model.catalogue import get_model
from ..models import Scenario
from .cuda_graphs import scopes_told
from .importer import Exporter
from .megatron_lm_export import pipeline_layout
from .recipes import GPUS, PRECISIONS, RECIPES

_UNSEEN = {"name", "padded_vocab_size", "make_vocab_size_divisible_by"}


def write_command(scenario: Scenario, _version: str | None) -> str:
    """The command, of any version."""
    par, training, software = scenario.parallelism, scenario.training, scenario.software
    options: list[tuple[str, object]] = [
        ("model_recipe_name", _recipe(scenario)), ("gpu", _gpu(scenario)), ("num_gpus",
        scenario.cluster.gpus),
        ("gpus_per_node", scenario.cluster.gpus_per_node), ("compute_dtype", _precision(scenario)),
        ("seq_length", training.seq_length), ("global_batch_size", training.global_batch),
        ("micro_batch_size", training.micro_batch),
        ("tensor_model_parallel_size", par.tp), ("pipeline_model_parallel_size", par.pp),
        ("context_parallel_size", par.cp),
        ("expert_model_parallel_size", par.ep), ("expert_tensor_parallel_size", par.etp),
        ("virtual_pipeline_model_parallel_size", par.vpp if par.vpp > 1 else "None"),
        ("use_megatron_fsdp", str(par.zero == 3).lower()),
    ]  # fmt: skip
    if isinstance(par.stage_split, tuple):
        options.append(("pipeline_model_parallel_layout", pipeline_layout(scenario, par.stage_split)))
    recompute = training.recompute
    if recompute == "selective":
        options.append(("recompute_modules", "core_attn"))
    elif not isinstance(recompute, str) and recompute.kind == "modules":
        options.append(("recompute_modules", ",".join(recompute.modules)))
    elif not isinstance(recompute, str) and recompute.method == "block":
        options.append(("recompute_num_layers", recompute.layers))
    options.append(("cuda_graph_impl", "transformer_engine" if software.host.cuda_graphs else "none"))
    if scenario.model.moe is not None:
        if software.host.cuda_graphs:
            scopes = scopes_told(software.host) or ["attn", "moe"]
            options.append(("cuda_graph_scope", ",".join(scopes)))
        options.append(("moe_a2a_overlap", str(software.exchange.moe_a2a_overlap).lower()))
        if scenario.model.moe.capacity_factor == 1.0:
            options.append(("use_tokendrop", "true"))
    lines = " \\\n".join(f"    --{name} {value}" for name, value in options)
    machine = f"{scenario.cluster.gpus} {scenario.cluster.gpu_name}"
    head = f"#!/bin/bash\n# Megatron-Bridge, for {machine}. Written by stepsim export.\n"
    return f"{head}python scripts/performance/run_script.py \\\n{lines}\n"


def _recipe(scenario: Scenario) -> str:
    mine = scenario.model.model_dump(exclude=_UNSEEN)
    if mine.get("moe"):
        mine["moe"] = mine["moe"] | {"capacity_factor": None}
    for recipe, name in RECIPES.items():
        if get_model(name).model_dump(exclude=_UNSEEN) == mine:
            return recipe
    raise _refusal("model", "its recipes are of models by name, and none has this shape")


def _gpu(scenario: Scenario) -> str:
    for short, name in GPUS.items():
        if name == scenario.cluster.gpu:
            return short
    raise _refusal("cluster.gpu", f"it has recipes for {', '.join(GPUS)}")


def _precision(scenario: Scenario) -> str:
    kind, scaling = scenario.training.precision, scenario.software.kernels.fp8_scaling
    for name, (precision, how) in PRECISIONS.items():
        if precision == kind and how in (None, scaling):
            return name
    raise _refusal("training.precision", f"it has {', '.join(PRECISIONS)}")


def _refusal(path: str, why: str) -> ScenarioError:
    return ScenarioError(
        [Problem(mark=Mark(file="scenario"), path=path, message=f"megatron-bridge cannot say this: {why}")]
    )


EXPORTER = Exporter(name="megatron-bridge", title="Megatron-Bridge", suffix=".sh", write=write_command)
