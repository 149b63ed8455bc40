"""From what a document says to a campaign with every number at hand.

Knows every block and how the numbers follow; asks the step engine for the step time. What does not fit
together is refused here, by the name of its field.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .campaign.chance import Law, gap_law, law_of
from .campaign.plan import Effect, Known, Notice, Plan, Recovering
from .campaign.sources import Source
from .kinds import get_kind
from .presets import get_preset
from .spec.detection import Detection
from .spec.faults import Event, Faults, Process
from .spec.recovery import Checkpoint, Recovery, Run
from .step_time import GivenStep, SimulatedStep
from .tiers import sizes_of, tiers_of
from .traces import read_trace

if TYPE_CHECKING:
    from ..scenario.models import Scenario
    from .spec.bare import Bare
    from .spec.machine import Machine

DEFAULT_HORIZON_S = 30 * 86400.0
"""Of a run that says nothing about its end."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The fault blocks of a document, defaults filled in. ``scenario`` is None in a bare campaign."""

    name: str
    title: str
    scenario: Scenario | None
    machine: Machine
    step_time: float | None
    faults: Faults
    detection: Detection
    recovery: Recovery
    checkpoint: Checkpoint
    run: Run


def blocks_of(loaded: Scenario | Bare) -> Blocks:
    """The blocks of a loaded document. ValueError for a scenario that says nothing of faults."""
    from ..scenario.checks_faults import bare_machine, machine_of
    from .spec.bare import Bare

    if isinstance(loaded, Bare):
        machine = bare_machine(loaded.cluster, loaded.faults.domains, loaded.recovery.elastic.replicas)
        return Blocks(
            name=loaded.name,
            title=loaded.title,
            scenario=None,
            machine=machine,
            step_time=loaded.step_time,
            faults=loaded.faults,
            detection=loaded.detection,
            recovery=loaded.recovery,
            checkpoint=loaded.checkpoint,
            run=loaded.run,
        )
    if loaded.faults is None:
        raise ValueError(
            f"{loaded.name}: this scenario has no block faults; give it one, as in "
            "--set 'faults.presets=[llama3-2024]' --set checkpoint.storage.every=30min"
        )
    return Blocks(
        name=loaded.name,
        title=loaded.title,
        scenario=loaded,
        machine=machine_of(loaded.cluster, loaded.parallelism, loaded.faults.domains),
        step_time=loaded.step_time,
        faults=loaded.faults,
        detection=loaded.detection or Detection(),
        recovery=loaded.recovery or Recovery(),
        checkpoint=loaded.checkpoint or Checkpoint(),
        run=loaded.run or Run(),
    )


def build_plan(blocks: Blocks, step: SimulatedStep | None = None) -> Plan:
    """The campaign. ``step``: a step model that is at hand already, so that nothing is replayed twice.

    Raises:
        ValueError: blocks that do not fit together; names the field.
        NotSupported: an effect that the step model does not know.
    """
    step_time: GivenStep | SimulatedStep
    if blocks.scenario is None:
        assert blocks.step_time is not None
        step_s, step_time = blocks.step_time, GivenStep(blocks.step_time)
    else:
        step_time = step or SimulatedStep(blocks.scenario, blocks.machine, blocks.step_time)
        step_s = step_time.healthy_s
    sizes = sizes_of(blocks.scenario, blocks.checkpoint, blocks.machine.nodes, blocks.machine.gpus)
    tiers = tuple(tiers_of(blocks.checkpoint, sizes, step_s))
    sources = tuple(_sources(blocks))
    events = tuple(_known(blocks, step_s))
    plan = Plan(
        name=blocks.name,
        step_s=step_s,
        step_time=step_time,
        machine=blocks.machine,
        tiers=tiers,
        sources=sources,
        events=events,
        notice=_notice(blocks),
        recovering=_recovering(blocks, step_s),
        goal_steps=_goal(blocks, step_s),
        horizon_s=_horizon(blocks),
        seed=blocks.faults.seed,
        on_wall=blocks.faults.clock == "wall",
        restore_exposed=blocks.faults.restore_exposed,
        frailty_cv=blocks.faults.heterogeneity.node_frailty.gamma_cv
        if blocks.faults.heterogeneity.node_frailty
        else 0.0,
        off=frozenset(blocks.faults.off),
        tokens_per_step=_tokens(blocks.scenario),
    )
    _check(blocks, plan)
    _prepare(plan)
    return plan


def _processes(faults: Faults) -> list[Process]:
    try:
        given = [process for name in faults.presets for process in get_preset(name)]
    except ValueError as error:
        raise ValueError(f"faults.presets: {error}") from None
    return [*given, *faults.processes]


def _sources(blocks: Blocks) -> list[Source]:
    faults, machine = blocks.faults, blocks.machine
    taken: dict[str, int] = {}
    found = []
    for process in _processes(faults):
        kind = get_kind(process.kind)
        taken[process.title] = taken.get(process.title, 0) + 1
        number = taken[process.title]
        rate = process.rate_per_unit_s * faults.scale
        per_node = {
            "gpu": machine.gpus_per_node,
            "rank": machine.gpus_per_node,
            "node": 1,
            "nic": machine.nics_per_node,
        }
        slow, band = process.slow_factor, process.bandwidth_factor
        found.append(
            Source(
                name=process.title if number == 1 else f"{process.title} {number}",
                kind=kind.name,
                scope=process.unit,
                units=machine.units(process.unit),
                gap=None
                if process.prevalence is not None
                else gap_law(process.dist, 1 / rate if rate else math.inf),
                memoryless=process.dist.memoryless,
                keep_age=process.on_repair == "keep",
                prevalence=process.prevalence or 0.0,
                duration=law_of(process.duration) if process.duration else None,
                repair=law_of(process.repair) if process.repair else None,
                slow_factor=kind.keys.get("slow_factor") if slow is None else slow,
                bandwidth_factor=kind.keys.get("bandwidth_factor") if band is None else band,
                latency_add=process.latency_add or kind.keys.get("latency_add") or 0.0,
                notice=(process.notice if process.notice is not None else kind.keys.get("notice")) or 0.0,
                units_per_node=per_node.get(process.unit, 0),
            )
        )
    return found


def _known(blocks: Blocks, step_s: float) -> list[Known]:
    counts = blocks.machine.counts
    events: list[Event] = []
    for event in blocks.faults.events:
        if event.trace is None:
            events.append(event)
            continue
        for traced in read_trace(event.trace, step_s):
            try:
                counts.check(traced.where)
            except ValueError as error:
                raise ValueError(f"{event.trace}: at {traced.at or 0.0:g} s: {error}") from None
            events.append(traced)
    return [_event(event, order) for order, event in enumerate(events)]


def _event(event: Event, order: int) -> Known:
    assert event.kind is not None
    kind = get_kind(event.kind)
    slow, band = event.slow_factor, event.bandwidth_factor
    return Known(
        kind=kind,
        target=event.where,
        at_s=event.at if event.at_step is None else None,
        at_step=event.at_step,
        duration=law_of(event.duration) if event.duration else None,
        slow_factor=kind.keys.get("slow_factor") if slow is None else slow,
        bandwidth_factor=kind.keys.get("bandwidth_factor") if band is None else band,
        latency_add=event.latency_add or kind.keys.get("latency_add") or 0.0,
        notice=(event.notice if event.notice is not None else kind.keys.get("notice")) or 0.0,
        order=order,
    )


def _notice(blocks: Blocks) -> Notice:
    spec = blocks.detection
    checks = spec.health_check
    return Notice(
        fixed=law_of(spec.fixed) if spec.fixed else None,
        order=spec.order,
        heartbeat_s=spec.heartbeat,
        checks={"gpu": checks.gpu, "nic": checks.nic, "switch": checks.switch, "host": checks.host},
        uniform_phase=checks.period == "uniform_phase",
        error_s=spec.error,
        watchdog_s=spec.watchdog.timeout,
        false_positive=spec.watchdog.false_positive_per_ckpt,
        silent=law_of(spec.silent),
        diagnosis=law_of(spec.diagnosis),
        threshold=spec.straggler.threshold,
        window=spec.straggler.window,
        action=spec.straggler.action,
        flap_budget_s=spec.flap_budget,
    )


def _recovering(blocks: Blocks, step_s: float) -> Recovering:
    spec, machine = blocks.recovery, blocks.machine
    cost = spec.restart_cost
    requeue = cost.schedule.requeue
    doublings = max(0.0, math.log2(machine.nodes / 128))
    init_s = _curve(cost.init.curve, machine.gpus)
    warm = spec.spares.warm
    if spec.spares.rule:
        warm = p99_spares(machine.nodes, _daily_rate(blocks))
    limit = max(1, math.ceil(spec.elastic.min_replicas * machine.replicas - 1e-9))
    rejoin = law_of(spec.elastic.rejoin) if spec.elastic.rejoin else None
    if rejoin is None and spec.policy == "per_step_ft":
        rejoin = Law("constant", blocks.detection.error + cost.schedule.standby + init_s + cost.compile)
    return Recovering(
        policy=spec.policy,
        fixed=law_of(cost.fixed) if cost.fixed else None,
        kill_s=cost.kill,
        standby_s=cost.schedule.standby,
        requeue_s=requeue.base + requeue.per_doubling_over_128 * doublings,
        init_s=init_s,
        compile_s=cost.compile,
        warmup_s=cost.warmup_steps * step_s,
        load_s=None if isinstance(cost.load, str) else cost.load,
        in_process_s=spec.in_process,
        fallback=tuple(spec.fallback),
        p_bad_copy=spec.p_bad_copy,
        warm=warm,
        cold=spec.spares.cold,
        promote_s=spec.spares.promote,
        reboot=law_of(spec.repair.reboot),
        replace=law_of(spec.repair.replace),
        p_reboot_fixes=spec.repair.p_reboot_fixes,
        exclude_after=spec.repair.exclude_after,
        min_replicas=limit,
        batch=spec.elastic.batch,
        regrow_at=spec.elastic.regrow_at,
        rejoin=rejoin,
        repeat=spec.crash_loop.probability,
        repeat_after_s=spec.crash_loop.after,
        max_no_progress=spec.crash_loop.max_no_progress,
    )


def p99_spares(nodes: int, daily: float) -> int:
    """The 99th percentile of the hosts that fail in a day, each with chance ``daily`` (ByteRobust).

    >>> [p99_spares(nodes, 1.2e-3) for nodes in (128, 256, 512, 1024)]
    [2, 2, 3, 4]
    """
    below, term, count = 0.0, (1 - daily) ** nodes, 0
    while True:
        below += term
        if below >= 0.99 or count >= nodes:
            return count
        term *= (nodes - count) / (count + 1) * daily / (1 - daily)
        count += 1


def _daily_rate(blocks: Blocks) -> float:
    """Chance that a host fails on a day, of all processes that take hosts out."""
    total = sum(
        source.rate_per_s
        for source in _sources(blocks)
        if get_kind(source.kind).damage == "node" and source.gap
    )
    return -math.expm1(-total * 86400.0 / blocks.machine.nodes)


def _curve(points: tuple[tuple[int, float], ...], gpus: int) -> float:
    """Seconds at a number of GPUs: straight between points in the logarithm of both, flat outside."""
    first, last = points[0], points[-1]
    if gpus <= first[0]:
        return first[1]
    for (a, at_a), (b, at_b) in itertools.pairwise(points):
        if gpus <= b:
            part = math.log(gpus / a) / math.log(b / a)
            return math.exp(math.log(max(at_a, 1e-9)) * (1 - part) + math.log(max(at_b, 1e-9)) * part)
    return last[1]


def _tokens(scenario: Scenario | None) -> float:
    if scenario is None:
        return math.nan
    return float(scenario.training.global_batch * scenario.training.seq_length)


def _goal(blocks: Blocks, step_s: float) -> float:
    run = blocks.run
    if run.steps is not None:
        return float(run.steps)
    if run.work is not None:
        return float(max(1, round(run.work / step_s)))
    budget = blocks.scenario.training.tokens if blocks.scenario else None
    if budget is not None and run.horizon is None:
        return float(math.ceil(budget / _tokens(blocks.scenario)))
    return math.inf


def _horizon(blocks: Blocks) -> float:
    run = blocks.run
    if run.horizon is not None:
        return run.horizon
    ends = run.steps or run.work or (blocks.scenario and blocks.scenario.training.tokens)
    return math.inf if ends else DEFAULT_HORIZON_S


def _check(blocks: Blocks, plan: Plan) -> None:
    """What no single block can see."""
    rules, storage = plan.recovering, plan.storage
    if rules.policy == "per_step_ft" and plan.machine.replicas < 2:
        raise ValueError("recovery.elastic.replicas: per_step_ft needs two replicas or more")
    if rules.policy == "elastic_dp" and plan.machine.replicas < 2:
        raise ValueError("recovery.elastic.replicas: elastic_dp needs two replicas or more")
    if rules.policy == "per_step_ft" and rules.warm is not None:
        raise ValueError(
            "recovery.spares: per_step_ft takes a replica's time to be back from elastic.rejoin alone"
        )
    if rules.policy == "peer_memory" and blocks.checkpoint.peer_memory is None:
        raise ValueError("checkpoint.peer_memory: the policy peer_memory needs it")
    if rules.policy == "peer_memory" and "peer_memory" not in rules.fallback:
        raise ValueError("recovery.fallback: the policy peer_memory needs peer_memory in it")
    peer = blocks.checkpoint.peer_memory
    if peer and peer.replicas > plan.machine.nodes:
        raise ValueError(
            f"checkpoint.peer_memory.replicas: {peer.replicas} copies need as many hosts, not "
            f"{plan.machine.nodes}"
        )
    silent = any(get_kind(source.kind).effect == "silent" for source in plan.sources) or any(
        event.kind.effect == "silent" for event in plan.events
    )
    if silent and storage and blocks.checkpoint.storage and blocks.checkpoint.storage.keep is not None:
        held_s = blocks.checkpoint.storage.keep * storage.every * plan.step_s
        if held_s < plan.notice.silent.longest():
            raise ValueError(
                f"checkpoint.storage.keep: {blocks.checkpoint.storage.keep} copies reach back "
                f"{held_s / 3600:.1f} h, but "
                f"corruption is noticed after up to {plan.notice.silent.longest() / 3600:.1f} h; nothing "
                f"clean would be left"
            )
    blind = "watchdog" not in plan.notice.order and plan.notice.fixed is None
    if blind and any(get_kind(source.kind).effect == "hang" for source in plan.sources):
        raise ValueError("detection.order: only the watchdog ends a hang; add watchdog")
    if plan.goal_steps == math.inf and plan.horizon_s == math.inf:
        raise ValueError("run: say when the run ends: horizon, work or steps")


def _prepare(plan: Plan) -> None:
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
    from .spec.targets import Target

    return Effect(
        source.kind,
        Target(source.scope, unit),
        source.slow_factor,
        source.bandwidth_factor,
        source.latency_add,
    )


def _one_per_stage(plan: Plan, source: Source) -> list[int]:
    """A unit in the first, the middle and the last pipeline stage."""
    stages = plan.machine.stages
    return sorted({stage * source.units // stages for stage in (0, (stages - 1) // 2, stages - 1)})
