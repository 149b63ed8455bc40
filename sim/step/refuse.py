"""What the simulator cannot express yet: refused by field, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hardware.gpus import get_gpu
from ..scenario.refusal import NotSupported
from .layers.checkpoints import layers_in_one_go
from .layers.precision import recipe_of
from .layers.recompute import FULL, by_operators, recomputed_parts
from .zero.rule import sharding_rule

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..scenario.models import Scenario

WHOLE_BACKWARDS = ("none", "gpipe", "1f1b", "interleaved", "looped-bfs")
"""Schedules whose actions are whole forwards and backwards, one at a time."""


def refuse_unsupported(scenario: Scenario, profile: GpuProfile) -> None:
    """Raise NotSupported for the first field that names something not modelled."""
    model, par, training = scenario.model, scenario.parallelism, scenario.training
    _refuse_layers(scenario)
    _refuse_recomputation(scenario)
    heads = model.num_attention_heads // par.tp
    if par.cp_a2a is None and scenario.software.cp_comm == "a2a" and heads % par.cp:
        raise NotSupported(
            "parallelism.cp",
            f"cp {par.cp} does not divide the {heads} heads of a TP rank, which a2a exchanges",
        )
    if par.cp > 1 and scenario.software.attention == "unfused":
        raise NotSupported(
            "parallelism.cp", f"cp {par.cp} needs a fused attention kernel; this one is unfused"
        )
    if par.zero > 1 and scenario.schedule == "dualpipe":
        raise NotSupported("parallelism.zero", f"ZeRO-{par.zero} under dualpipe is not modelled; known: 0, 1")
    if par.fsdp_shard_size is not None and (model.moe or scenario.schedule == "dualpipe"):
        where = "of experts" if model.moe else "under dualpipe"
        raise NotSupported("parallelism.fsdp_shard_size", f"sharding over some ranks {where} is not modelled")
    gpu = get_gpu(scenario.cluster.gpu)
    recipe = recipe_of(scenario, gpu.architecture)
    if recipe and recipe.gemm_dtype not in gpu.peak_flops:
        has = ", ".join(gpu.peak_flops)
        raise NotSupported(
            "training.precision", f"{gpu.name} has no {recipe.gemm_dtype} products; it has {has}"
        )
    if training.precision == "mxfp8" and gpu.architecture != "blackwell":
        wrong = f"{gpu.name} has no products of blocks with scales of their own, only fp8; set fp8"
        raise NotSupported("training.precision", wrong)
    offloads = training.cpu_offload or training.nvme_offload
    if offloads and (scenario.schedule in ("pipedream", "dualpipe") or model.moe):
        what = "experts" if model.moe else str(scenario.schedule)
        raise NotSupported("training.cpu_offload", f"offload under {what} is not modelled yet")
    if training.activation_offload and scenario.schedule not in WHOLE_BACKWARDS:
        known = ", ".join(WHOLE_BACKWARDS)
        raise NotSupported(
            "training.activation_offload",
            f"{scenario.schedule} splits backwards or overlaps them; known: {known}",
        )
    kernels = {curve.implementation for curve in profile.attention}
    attention = scenario.software.attention
    if attention != "unfused" and attention not in kernels:
        known = ", ".join(sorted(kernels | {"unfused"}))
        raise NotSupported(
            "software.attention", f"{profile.gpu} has no attention kernel {attention}; known: {known}"
        )
    if scenario.schedule == "pipedream" and par.dp * par.cp > 1:
        raise NotSupported(
            "schedule",
            f"pipedream updates after every microbatch; replicas of its stages (dp {par.dp}) are not "
            "modelled; set dp to 1",
        )


def _refuse_layers(scenario: Scenario) -> None:
    """Kinds of layer in layouts that they are not modelled in."""
    model, par = scenario.model, scenario.parallelism
    if scenario.software.moe_a2a_overlap and par.ep > 1 and par.zero > 1:
        raise NotSupported(
            "software.moe_a2a_overlap",
            f"exchanges beside other layers are not modelled with ZeRO-{par.zero}; set it to false",
        )
    if model.sliding_window and scenario.software.attention == "unfused":
        raise NotSupported(
            "model.sliding_window", "windows need a fused attention kernel; this one is unfused"
        )
    if model.sliding_window and par.cp > 1:
        raise NotSupported("model.sliding_window", f"windows are not modelled with cp {par.cp}; set cp to 1")


def _refuse_recomputation(scenario: Scenario) -> None:
    """Modules that the model has not, and rules that are about plain layers."""
    model, parts = scenario.model, recomputed_parts(scenario.training)
    rule = sharding_rule(scenario)
    if layers_in_one_go(scenario.training) > 1 and (
        (rule and rule.regathers) or scenario.training.activation_offload
    ):
        what = "activations on the host" if scenario.training.activation_offload else "ZeRO-3"
        raise NotSupported(
            "training.recompute.layers", f"several layers recomputed at once under {what}; set layers to 1"
        )
    there = {"core_attn", "layernorm", "mlp"}
    there |= {"moe", "moe_act"} if model.moe else set()
    there |= {"shared_experts"} if model.moe and model.moe.shared_expert_ffn_hidden_size else set()
    there |= {"mla_up_proj"} if model.mla else set()
    if not by_operators(parts) and (absent := parts - there - FULL):
        wrong, known = ", ".join(sorted(absent)), ", ".join(sorted(there))
        raise NotSupported(
            "training.recompute.modules", f"{wrong}: this model has none to recompute; it has {known}"
        )
