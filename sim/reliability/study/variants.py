"""What if: the same campaign with one kind of fault switched off, or one thing done better, under the same
chance.

A variant is a plan. Every one is run with the same replications as the original, so that differences are far
more certain than the figures themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from ...scenario.faults.kinds import get_kind
from ..campaign.chance import Law
from ..campaign.outcome import Outcome
from ..campaign.plan import CampaignPlan, Notice, Recovering, Tier
from .closed_forms import optimal_interval
from .statistics import Estimate, ratio_difference
from .study import Progress, Study, many

REPLICATIONS = 32
"""Replications of each variant: enough under common random numbers, and quick."""


@dataclass(frozen=True)
class Variant:
    """``about``: fault (switched off), mitigation (done better) or bound (what no mitigation can beat)."""

    name: str
    about: str
    plan: CampaignPlan


@dataclass(frozen=True)
class Worth:
    """What a variant gains: ETTR, and hours of the run's wall clock."""

    name: str
    about: str
    gain: Estimate
    hours: float


def fault_variants(plan: CampaignPlan, failures: Sequence[str]) -> Iterator[Variant]:
    """The campaign without each of the kinds of fault in ``failures``, one kind at a time."""
    for name in failures:
        yield Variant(f"no {name}", "fault", replace(plan, off=plan.off | {name}))


def mitigation_variants(study: Study) -> Iterator[Variant]:
    """What could be done better, where it is not done yet."""
    plan = study.plan
    rules, notice, storage = plan.recovering, plan.notice, plan.storage
    names = set(study.counts("failures"))
    effects = {get_kind(name).effect for name in names}
    yield Variant("if every fault were noticed at once", "bound", replace(plan, notice=_at_once(plan)))
    if "hang" in effects and notice.fixed is None and notice.watchdog_s > 60:
        yield _of(plan, "watchdog of 60 s", notice=replace(notice, watchdog_s=60.0))
    if notice.diagnosis.mean > 0:
        yield _of(plan, "no time for diagnosis", notice=replace(notice, diagnosis=Law("constant", 0.0)))
    if "silent" in effects and notice.silent.mean > 3600:
        yield _of(plan, "corruption found within 1 h", notice=replace(notice, silent=Law("constant", 3600.0)))
    if rules.fixed is None:
        yield _of(plan, "restart twice as fast", recovering=_twice_as_fast(plan))
        if rules.policy == "restart":
            yield _of(plan, "hot spares", recovering=replace(rules, policy="hot_spare"))
            yield _of(plan, "restart in process", recovering=replace(rules, policy="in_process"))
    else:
        half = replace(
            rules.fixed,
            a=rules.fixed.a / 2,
            b=rules.fixed.b if rules.fixed.kind != "uniform" else rules.fixed.b / 2,
        )
        yield _of(plan, "restart twice as fast", recovering=replace(rules, fixed=half))
    if rules.warm is not None and rules.policy != "elastic_dp":
        yield _of(plan, "4 more warm spares", recovering=replace(rules, warm=rules.warm + 4))
    if plan.machine.replicas > 1 and rules.warm is not None and rules.policy == "restart":
        yield _of(plan, "elastic data parallelism", recovering=replace(rules, policy="elastic_dp"))
    if "slow" in effects and notice.action == "tolerate":
        watching = replace(notice, action="drain_at_checkpoint", threshold=1.005)
        yield _of(plan, "slow hosts leave at a checkpoint", notice=watching)
    if plan.frailty_cv and rules.exclude_after is None:
        yield _of(plan, "hosts leave after 2 failures", recovering=replace(rules, exclude_after=2))
    if storage:
        yield from _checkpoint_variants(study, storage)


def _checkpoint_variants(study: Study, storage: Tier) -> Iterator[Variant]:
    plan = study.plan
    if storage.lag_s == 0 and storage.stall_s > 2:
        later = replace(storage, stall_s=1.0, lag_s=storage.stall_s)
        if later.lag_s <= later.every * plan.step_s:
            yield Variant("checkpoints asynchronous, 1 s of stall", "mitigation", with_tier(plan, later))
    best = optimal_interval(storage.stall_s, study.mtbf_s) if storage.stall_s and study.mtbf_s < 1e12 else 0.0
    writable = ceil(storage.lag_s / plan.step_s)  # the last copy is written when the next one comes
    steps = max(1, round(best / plan.step_s), writable)
    if best and abs(steps / storage.every - 1) > 0.1:
        name = f"a checkpoint every {steps * plan.step_s / 60:.3g} min"
        yield Variant(name, "mitigation", with_tier(plan, replace(storage, every=steps)))
    if not any(tier.name == "peer_memory" for tier in plan.tiers) and plan.machine.nodes >= 2:
        peer = Tier(
            name="peer_memory",
            every=1,
            stall_s=0.04,
            lag_s=0.0,
            load_s=min(5.0, storage.load_s),
            save_s=0.04,
            group=2,
        )
        fallback = ("peer_memory", *(name for name in plan.recovering.fallback if name != "peer_memory"))
        with_peers = replace(
            plan, tiers=(peer, *plan.tiers), recovering=replace(plan.recovering, fallback=fallback)
        )
        yield Variant("a copy in peers' memory every step", "mitigation", with_peers)


def _of(plan: CampaignPlan, name: str, **changes: object) -> Variant:
    return Variant(name, "mitigation", replace(plan, **changes))  # type: ignore[arg-type]


def with_tier(plan: CampaignPlan, tier: Tier) -> CampaignPlan:
    """The plan with another tier of that name."""
    return replace(plan, tiers=tuple(tier if one.name == tier.name else one for one in plan.tiers))


def _at_once(plan: CampaignPlan) -> Notice:
    zero = Law("constant", 0.0)
    return replace(plan.notice, fixed=zero, silent=zero)


def _twice_as_fast(plan: CampaignPlan) -> Recovering:
    rules = plan.recovering
    return replace(
        rules,
        kill_s=rules.kill_s / 2,
        standby_s=rules.standby_s / 2,
        requeue_s=rules.requeue_s / 2,
        init_s=rules.init_s / 2,
        compile_s=rules.compile_s / 2,
        warmup_s=rules.warmup_s / 2,
        load_s=None if rules.load_s is None else rules.load_s / 2,
    )


def worth(study: Study, variant: Variant, after: Sequence[Outcome]) -> Worth:
    """What a variant gains over the original, by as many replications of it as there are."""
    count = len(after)
    before = study.outcomes[:count]
    gain = ratio_difference(parts_of(before), parts_of(after), study.confidence)
    wall = study.wall.mean
    if study.plan.goal_steps < float("inf"):
        saved = sum(one.wall_s for one in before) / count - sum(one.wall_s for one in after) / count
    else:
        saved = gain.mean * wall
    return Worth(variant.name, variant.about, gain, saved / 3600)


def parts_of(done: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    """Useful and wall seconds."""
    return [one.seconds["useful"] for one in done], [one.wall_s for one in done]


def all_worths(study: Study, progress: Progress | None) -> list[Worth]:
    """Every kind of fault and every mitigation, each by what it gains; bounds come last."""
    faults = fault_variants(study.plan, list(study.counts("failures")))
    variants = [*faults, *mitigation_variants(study)]
    if progress:
        progress(f"what if: {len(variants)} variants")
    count = min(REPLICATIONS, len(study.outcomes))
    done = many([variant.plan for variant in variants], count)
    found = [worth(study, variant, after) for variant, after in zip(variants, done, strict=True)]
    return sorted(found, key=lambda one: (one.about == "bound", -one.gain.mean))
