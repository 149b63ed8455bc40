"""Build a campaign plan, with every number at hand, from what a document says.

Knows every block and how the numbers follow; asks the step engine for the step time. What does not fit
together is refused here, by the name of its field.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from ...degradation.checkpoint_write import sizes_of
from ...scenario.faults.kinds import get_kind
from ..campaign.chance import Law, law_of
from ..campaign.plan import CampaignPlan, Notice, Recovering
from .blocks import CampaignBlocks
from .checks import check, prepare
from .sources import known_events, sources_of
from .step_time import GivenStep, SimulatedStep
from .tiers import tiers_of

if TYPE_CHECKING:
    from ...scenario.models import Scenario

DEFAULT_HORIZON_S = 30 * 86400.0
"""Horizon of a run that says nothing about its end."""


def build_plan(blocks: CampaignBlocks, step: SimulatedStep | None = None) -> CampaignPlan:
    """The campaign. ``step`` is a step model that was built already, so that nothing is replayed twice.

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
    cost = blocks.recovery.restart_cost
    loads = cost.fixed is None and isinstance(cost.load, str)
    tiers = tuple(
        tiers_of(blocks.checkpoint, sizes, step_s, loads=loads, during_writes=step_time.during_writes)
    )
    sources = tuple(sources_of(blocks))
    events = tuple(known_events(blocks, step_s))
    plan = CampaignPlan(
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
    check(blocks, plan)
    prepare(plan)
    return plan


def _notice(blocks: CampaignBlocks) -> Notice:
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


def _recovering(blocks: CampaignBlocks, step_s: float) -> Recovering:
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
        regroup=spec.elastic.idle_hosts == "regroup",
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


def _daily_rate(blocks: CampaignBlocks) -> float:
    """Chance that a host fails on a day, of all processes that take hosts out."""
    total = sum(
        source.rate_per_s
        for source in sources_of(blocks)
        if get_kind(source.kind).swapped == "node" and source.gap
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
    return float(scenario.training.tokens_per_step)


def _goal(blocks: CampaignBlocks, step_s: float) -> float:
    run = blocks.run
    if run.steps is not None:
        return float(run.steps)
    if run.work is not None:
        return float(max(1, round(run.work / step_s)))
    budget = blocks.scenario.training.tokens if blocks.scenario else None
    if budget is not None and run.horizon is None:
        return float(math.ceil(budget / _tokens(blocks.scenario)))
    return math.inf


def _horizon(blocks: CampaignBlocks) -> float:
    run = blocks.run
    if run.horizon is not None:
        return run.horizon
    ends = run.steps or run.work or (blocks.scenario and blocks.scenario.training.tokens)
    return math.inf if ends else DEFAULT_HORIZON_S
