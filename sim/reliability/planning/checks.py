"""What no single block can see: refused by the name of its field, before any work."""

from __future__ import annotations

import math

from ...scenario.faults.kinds import get_kind
from ...scenario.faults.targets import Target
from ..campaign.plan import CampaignPlan, Effect
from ..campaign.sources import Source
from .blocks import CampaignBlocks
from .step_time import GivenStep, SimulatedStep


def check(blocks: CampaignBlocks, plan: CampaignPlan) -> None:
    """Refuse what no single block can see. ValueError naming the field."""
    _check_policy(blocks, plan)
    _check_copies(blocks, plan)
    _check_kinds(plan)
    if plan.goal_steps == math.inf and plan.horizon_s == math.inf:
        raise ValueError("run: say when the run ends: horizon, work or steps")


def _check_policy(blocks: CampaignBlocks, plan: CampaignPlan) -> None:
    """A policy of recovery has the replicas and the copies that it needs."""
    rules = plan.recovering
    replicas = blocks.recovery.elastic.replicas
    if replicas not in (None, plan.machine.replicas):  # of a campaign without a model they make the machine
        raise ValueError(
            f"recovery.elastic.replicas: {replicas}, but the layout of the model has {plan.machine.replicas} "
            "(parallelism.dp); leave it out"
        )
    if rules.policy in ("per_step_ft", "elastic_dp") and plan.machine.replicas < 2:
        raise ValueError(f"recovery.elastic.replicas: {rules.policy} needs two replicas or more")
    if rules.policy == "per_step_ft" and rules.warm is not None:
        raise ValueError(
            "recovery.spares: with per_step_ft a replica is back after elastic.rejoin, whatever spares there "
            "are; leave it out"
        )
    if rules.policy == "peer_memory" and blocks.checkpoint.peer_memory is None:
        raise ValueError("checkpoint.peer_memory: the policy peer_memory needs it")
    if rules.policy == "peer_memory" and "peer_memory" not in rules.fallback:
        raise ValueError("recovery.fallback: the policy peer_memory needs peer_memory in it")


def _check_copies(blocks: CampaignBlocks, plan: CampaignPlan) -> None:
    """Copies have hosts to lie on, and reach back to before corruption that is noticed late."""
    peer, kept = blocks.checkpoint.peer_memory, blocks.checkpoint.storage
    if peer and peer.replicas > plan.machine.nodes:
        raise ValueError(
            f"checkpoint.peer_memory.replicas: {peer.replicas} copies need as many hosts, not "
            f"{plan.machine.nodes}"
        )
    silent = any(get_kind(name).effect == "silent" for name in _kinds_of(plan))
    if silent and plan.storage and kept and kept.keep is not None:
        held_s, noticed_s = kept.keep * plan.storage.every * plan.step_s, plan.notice.silent.longest()
        if held_s < noticed_s:
            raise ValueError(
                f"checkpoint.storage.keep: {kept.keep} copies reach back {held_s / 3600:.1f} h, but "
                f"corruption is noticed after up to {noticed_s / 3600:.1f} h; nothing clean would be left"
            )


def _check_kinds(plan: CampaignPlan) -> None:
    """ValueError for faults that exist only within a step, and for hangs that nothing would notice."""
    if single := next((name for name in sorted(_kinds_of(plan)) if get_kind(name).of_a_step), None):
        raise ValueError(
            f"faults: {single}: it exists only within a step, not over weeks; simulate the step with stepsim "
            "run, and give its time as step_time, or the block checkpoint"
        )
    blind = "watchdog" not in plan.notice.order and plan.notice.fixed is None
    if blind and any(get_kind(source.kind).effect == "hang" for source in plan.sources):
        raise ValueError("detection.order: only the watchdog ends a hang; add watchdog")


def _kinds_of(plan: CampaignPlan) -> set[str]:
    """The kinds of fault that may strike: by rates, and at known times."""
    return {*(source.kind for source in plan.sources), *(event.kind.name for event in plan.events)}


def prepare(plan: CampaignPlan) -> None:
    """Have the step model replay what slow faults may come, and refuse what it does not know before any
    work.
    """
    effects: list[Effect] = []
    for source in plan.sources:
        kind = get_kind(source.kind)
        fails_over = kind.effect == "crash" and source.bandwidth_factor is not None
        if (kind.effect == "slow" or fails_over) and kind.name not in plan.off:
            effects += [_effect(source, unit) for unit in _one_per_stage(plan, source)]
    for event in plan.events:
        if event.kind.effect == "slow" or (
            event.kind.effect == "crash" and event.bandwidth_factor is not None
        ):
            effects.append(
                Effect(
                    event.kind.name,
                    event.target,
                    event.slow_factor,
                    event.bandwidth_factor,
                    event.latency_add,
                )
            )
    if isinstance(plan.step_time, SimulatedStep):
        plan.step_time.prepare(effects)
    else:
        for effect in effects:
            GivenStep.factor(effect)


def _effect(source: Source, unit: int) -> Effect:
    return Effect(
        source.kind,
        Target(source.scope, unit),
        source.slow_factor,
        source.bandwidth_factor,
        source.latency_add,
    )


def _one_per_stage(plan: CampaignPlan, source: Source) -> list[int]:
    """A unit in each pipeline stage, of few units all."""
    stages = plan.machine.stages
    return sorted({stage * source.units // stages for stage in range(stages)})
