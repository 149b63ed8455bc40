"""One fault as it strikes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...scenario.faults.kinds import FaultKind
from ...scenario.faults.targets import Target
from .chance import Law
from .outcome import LogEntry
from .plan import CampaignPlan, Effect

STOPS = ("crash", "hang")


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault as it strikes. ``nodes`` are the slots that it takes along."""

    kind: FaultKind
    name: str
    target: Target
    nodes: range
    duration_s: float | None
    repair: Law | None
    effect: Effect
    notice: float
    entry: LogEntry | None = None


def strike(
    plan: CampaignPlan,
    kind: FaultKind,
    name: str,
    effect: Effect,
    duration_s: float | None = None,
    repair: Law | None = None,
    notice: float = 0.0,
) -> Fault:
    """A fault of that kind at the target of ``effect``; what it does may depend on strength and length."""
    if repair is None and duration_s is not None and kind.swapped != "none" and kind.effect in STOPS:
        repair = Law("constant", duration_s)
    elif repair is None and kind.repair_s is not None:
        repair = Law("constant", kind.repair_s)
    felt = kind
    if kind.effect == "crash" and effect.bandwidth_factor is not None:  # fails over, or is routed around
        felt = replace(kind, effect="slow")
    elif kind.effect == "pause" and (duration_s or 0.0) > plan.notice.flap_budget_s:
        felt = replace(kind, effect="crash")
    return Fault(
        kind=felt,
        name=name,
        target=effect.target,
        nodes=plan.machine.nodes_of(effect.target),
        duration_s=duration_s,
        repair=repair,
        effect=effect,
        notice=notice,
    )
