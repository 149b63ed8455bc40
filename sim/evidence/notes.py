"""What a scenario says that does nothing here, and why: hints beside the assumptions of a prediction.

Knows the plan and what bound its communication. A note never changes a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..result.step import Assumption

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan
    from ..result.step import Bound

SWITCHES = ("leaf", "spine", "core")
"""Parts of the names of links between switches."""


def notes(plan: StepPlan, bounds: Iterable[Bound]) -> tuple[Assumption, ...]:
    """Fields of the scenario without effect; ``bounds`` are the links that bound its communication."""
    return (*_recompute(plan), *_oversubscription(plan, bounds))


def _recompute(plan: StepPlan) -> Iterator[Assumption]:
    """Attention is run again, although a fused kernel keeps no scores that this would save.

    Megatron-LM's selective recomputation was made for the unfused chain (Korthikanti et al. 2022,
    arXiv:2205.05198 section 5); FlashAttention recomputes them itself (Dao et al. 2022, arXiv:2205.14135).
    """
    said, kernel = plan.scenario.training.recompute, plan.scenario.software.kernels.attention
    again = said == "selective" if isinstance(said, str) else "core_attn" in said.modules
    if again and kernel != "unfused":
        yield Assumption(
            text=f"recomputing attention costs time and saves nothing: {kernel} keeps no scores; "
            "leave it out (none), or recompute other modules",
            source="training.recompute",
            note=True,
        )


def _oversubscription(plan: StepPlan, bounds: Iterable[Bound]) -> Iterator[Assumption]:
    """Uplinks of leaf switches were narrowed, and no communication notices."""
    fabric = plan.scenario.cluster.fabric
    said = fabric.oversubscription
    ratio = max(said) if isinstance(said, tuple) else said
    if ratio > 1 and "oversubscription" in fabric.model_fields_set:
        why = _unnoticed(plan, ratio, bounds)
        if why:
            text = f"oversubscription {ratio:g} slows nothing here: {why}"
            yield Assumption(text=text, source="cluster.fabric.oversubscription", note=True)


def _unnoticed(plan: StepPlan, ratio: float, bounds: Iterable[Bound]) -> str:
    """Why nothing notices the oversubscription; empty where something may."""
    cluster = plan.cluster
    if cluster.gpus <= cluster.nvlink_domain or not cluster.interconnect.connects_hosts:
        return "no communication leaves the NVLink domain"
    switches = cluster.switches
    if switches is not None and cluster.nodes <= switches.nodes_per_unit:
        return f"all {cluster.nodes} hosts share their leaf switches, and nothing goes above them"
    if any(word in bound.link for bound in bounds for word in SWITCHES):
        return ""
    above = [(kind, placement) for kind, placement in plan.communication.placements if placement.units > 1]
    if any(kind == "all_to_all" or placement.domains / placement.units < ratio for kind, placement in above):
        return ""
    return "a ring leaves the hosts of a leaf switch once for all of them, so its uplinks are wide enough"
