"""A study with the questions that were asked of it: what every view shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..figures import lasting
from .campaign.plan import CampaignPlan
from .planning.blocks import CampaignBlocks
from .planning.build_plan import DEFAULT_HORIZON_S
from .study.money import Money, money_of
from .study.optimum import Optimum
from .study.study import Study
from .study.variants import Worth


@dataclass(frozen=True, kw_only=True)
class Answers:
    """``worths`` and ``optimum`` are empty where nobody asked."""

    blocks: CampaignBlocks
    study: Study
    worths: tuple[Worth, ...] = ()
    optimum: Optimum | None = None

    @property
    def tokens_per_s(self) -> float:
        """Goodput: tokens of steps that count over the wall clock; nan without a model."""
        plan = self.study.plan
        return plan.tokens_per_step / plan.step_s * self.study.ettr.mean

    @property
    def money(self) -> Money | None:
        """What the mean run costs; None without a price of a GPU-hour."""
        price = self.blocks.price
        return money_of(self.study, price) if price else None

    @property
    def stuck(self) -> bool:
        """Whether most replications got nowhere."""
        return len(self.study.stuck) * 2 > len(self.study.outcomes)


def rests_on(answers: Answers) -> Iterator[tuple[str, str]]:
    """What moves the result and a user could doubt: the semantics in force, and defaults without a good
    source.
    """
    blocks, plan = answers.blocks, answers.study.plan
    yield _clock(blocks)
    yield (
        f"the fault-free step takes {plan.step_s:.4g} s",
        "given" if blocks.step_time else "predicted by stepsim run",
    )
    yield from _checkpoints(answers)
    yield from _rounded(answers)
    yield from _never(plan)
    yield from _hosts(answers)
    yield from _end(answers)
    for name in blocks.faults.presets:
        yield f"rates of the preset {name}", "sim/scenario/faults/presets"


def _clock(blocks: CampaignBlocks) -> tuple[str, str]:
    faults = blocks.faults
    if faults.clock == "wall":
        return (
            "failures arrive on the wall clock; those during downtime merge into the recovery",
            "faults.clock",
        )
    also = "and while it restores" if faults.restore_exposed else "only, not while it restores"
    return f"failures arrive while the job steps {also}", "faults.clock, faults.restore_exposed"


def _checkpoints(answers: Answers) -> Iterator[tuple[str, str]]:
    plan, storage = answers.study.plan, answers.blocks.checkpoint.storage
    if not plan.tiers:
        yield "there are no checkpoints: every restart begins at step 0", "checkpoint"
    if plan.storage and plan.storage.overlap:
        yield (OVERLAPS[plan.storage.overlap], "checkpoint.storage.on_overlap")
    if storage and storage.mode == "async" and storage.persist_slow_factor == 1.0:
        yield (
            "steps keep their pace while a copy is being written: storage has a network of its own",
            "checkpoint.storage.persist_slow_factor",
        )
    if storage and storage.persist_slow_factor == "from_bytes" and plan.storage:
        yield (
            f"steps take {plan.storage.slow_factor:.4f} times as long while a copy is being written",
            "checkpoint.storage.persist_slow_factor: from_bytes",
        )


def _hosts(answers: Answers) -> Iterator[tuple[str, str]]:
    rules = answers.study.plan.recovering
    if rules.warm is None:
        yield "there is always a warm spare host", "recovery.spares"
    else:
        yield "spare hosts do not fail while they wait; a host that is swapped in starts at age zero", "fixed"
    if rules.warm is not None and "repair" not in answers.blocks.recovery.model_fields_set:
        yield (
            "a broken host is away for a reboot of 10 min, and 3 in 4 for a day (median) besides",
            "assumption",
        )
    if rules.policy == "elastic_dp":
        idle = "make up other replicas" if rules.regroup else "wait for it"
        yield f"healthy hosts of a replica that lacks one {idle}", "recovery.elastic.idle_hosts"


def _end(answers: Answers) -> Iterator[tuple[str, str]]:
    plan = answers.study.plan
    if plan.end_s < plan.horizon_s:
        yield f"a run that is not done after {lasting(plan.end_s)} is given up", "fixed"
    if plan.horizon_s == DEFAULT_HORIZON_S and answers.blocks.run.horizon is None:
        yield "the run ends after 30 days", "default of run.horizon"
    if plan.goal_steps == math.inf:
        yield "work in flight at the horizon counts", "fixed"


OVERLAPS = {
    "skip": "a snapshot that is due while the last one is being written is not taken",
    "block": "steps wait for the write of the last snapshot before they take the next one",
    "queue": "one snapshot may wait for the write of another; for a third one steps wait",
}

ROUNDED = 0.05
"""Share of an interval by which rounding to whole steps may move it without a word."""


def _rounded(answers: Answers) -> Iterator[tuple[str, str]]:
    """Intervals given as time that whole steps cannot keep."""
    step_s = answers.study.plan.step_s
    for name, tier in answers.blocks.checkpoint:
        wanted_s = tier.every.seconds if tier else None
        if wanted_s is None:
            continue
        steps = tier.every.in_steps(step_s)
        if abs(steps * step_s / wanted_s - 1) > ROUNDED:
            many = "step" if steps == 1 else f"{steps} steps"
            yield (
                f"a checkpoint every {wanted_s:.4g} s is one every {many}, {steps * step_s:.4g} s",
                f"checkpoint.{name}.every",
            )


def _never(plan: CampaignPlan) -> Iterator[tuple[str, str]]:
    """Faults at known times that no run lives to see."""
    for event in plan.events:
        at_s = event.at_s or (event.at_step or 0) * plan.step_s
        if at_s >= plan.horizon_s or (event.at_step or 0) >= plan.goal_steps:
            when = f"at step {event.at_step:,}" if event.at_step is not None else f"at {lasting(at_s)}"
            yield (
                f"{event.kind.name} {event.target} {when} comes after the end of the run: it never strikes",
                "faults.events",
            )
