"""What the simulator cannot express yet: refused by field, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scenario.refusal import NotSupported
from .layers.recompute import FULL, OPERATORS, recomputed_parts
from .layers.shard import ELEMENT_BYTES

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..scenario.models import ClusterSpec, Scenario


def refuse_unsupported(scenario: Scenario, profile: GpuProfile) -> None:
    """Raise NotSupported for the first field that names something not modelled."""
    model, par, training = scenario.model, scenario.parallelism, scenario.training
    if model.sliding_window and scenario.software.attention == "unfused":
        raise NotSupported(
            "model.sliding_window", "windows need a fused attention kernel; this one is unfused"
        )
    if model.sliding_window and par.cp > 1:
        raise NotSupported("model.sliding_window", f"windows are not modelled with cp {par.cp}; set cp to 1")
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
    if par.zero > 1:
        raise NotSupported("parallelism.zero", f"ZeRO-{par.zero} is not modelled yet; known: 0, 1")
    if par.fsdp_shard_size is not None:
        raise NotSupported("parallelism.fsdp_shard_size", "sharding over some ranks is not modelled yet")
    there = {"core_attn", "layernorm", "mlp"}
    there |= {"moe", "moe_act"} if model.moe else set()
    there |= {"shared_experts"} if model.moe and model.moe.shared_expert_ffn_hidden_size else set()
    there |= {"mla_up_proj"} if model.mla else set()
    if parts := recomputed_parts(training) - there - OPERATORS - FULL:
        wrong, known = ", ".join(sorted(parts)), ", ".join(sorted(there))
        raise NotSupported(
            "training.recompute.modules", f"{wrong}: this model has none to recompute; it has {known}"
        )
    _refuse_machine(scenario.cluster)
    if training.precision not in ELEMENT_BYTES:
        known = ", ".join(ELEMENT_BYTES)
        raise NotSupported("training.precision", f"{training.precision} is not modelled yet; known: {known}")
    if training.cpu_offload:
        raise NotSupported("training.cpu_offload", "offload to the host is not modelled yet")
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


_SIMULATED_FABRICS = ("rail-optimized", "fat-tree", "nvlink")


def _refuse_machine(cluster: ClusterSpec) -> None:
    """The step reads leaf units and their oversubscription, not yet the routes of single links."""
    fabric = cluster.fabric
    known = f"step times know {', '.join(_SIMULATED_FABRICS)}; stepsim cluster shows this one"
    if fabric.kind not in _SIMULATED_FABRICS:
        raise NotSupported("cluster.fabric.kind", f"routes of {fabric.kind} are not used yet; {known}")
    if isinstance(fabric.oversubscription, tuple):
        raise NotSupported(
            "cluster.fabric.oversubscription",
            "a ratio of the spines is not used yet; give one number, that of the leaves",
        )
    for field, works in (("levels", None), ("pxn", False), ("ecmp", "spread")):
        value = getattr(fabric, field)
        if value is not None and value != works:
            instead = "leave it out" + (f", or set {str(works).lower()}" if works is not None else "")
            raise NotSupported(f"cluster.fabric.{field}", f"{str(value).lower()} is not used yet; {instead}")
    if cluster.placement is not None and cluster.placement.kind != "contiguous":
        raise NotSupported(
            "cluster.placement", f"{cluster.placement.kind} is not used yet; leave it out, or set contiguous"
        )
