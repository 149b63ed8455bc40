"""A campaign in numbers: what one replication needs, so that it need not look anything up.

Plain data in SI units, so that worker processes take it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ....hardware.quantities import DAY_S
from ...scenario.faults.kinds import FaultKind
from ...scenario.faults.machine import Machine
from ...scenario.faults.targets import Target
from .chance import Law
from .sources import Source


@dataclass(frozen=True)
class Effect:
    """Something that is wrong while steps go on, ``times`` over: what the step model is asked about."""

    kind: str
    target: Target
    slow_factor: float | None = None
    bandwidth_factor: float | None = None
    latency_add: float = 0.0
    times: int = 1


GIVE_UP_FACTOR, GIVE_UP_S = 100.0, 365 * DAY_S
MOST_EVENTS = 1_000_000
"""Events of one replication after which it is given up: about a minute."""

StepTime = Callable[[frozenset[Effect]], float]
"""Seconds of one step under a set of effects; the empty set is the healthy step."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A place for checkpoints. ``every`` counts steps, ``lag_s`` is from the end of the stall until the copy
    is durable.

    ``group``: peer memory's hosts per group; 0 elsewhere. ``save_s`` is a whole save with nothing else to do.
    ``slow_factor`` is how many times as long steps take while a copy is written; the stall has it already.

    ``overlap``: skip, block or queue where a write may outlast the interval (writer.py); then stall and lag
    are those of one snapshot and one write with nothing else to do.
    """

    name: str
    every: int
    stall_s: float
    lag_s: float
    load_s: float
    save_s: float
    group: int = 0
    across: bool = True
    slow_factor: float = 1.0
    overlap: str = ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A fault at a known time: ``at_s`` of the wall clock or ``at_step``."""

    kind: FaultKind
    target: Target
    at_s: float | None
    at_step: int | None
    duration: Law | None
    slow_factor: float | None
    bandwidth_factor: float | None
    latency_add: float
    notice: float
    order: int


@dataclass(frozen=True, kw_only=True)
class Notice:
    """How faults are noticed (scenario/faults/detection.py), in SI units. ``fixed`` stands for all."""

    fixed: Law | None
    order: tuple[str, ...]
    heartbeat_s: float | None
    checks: dict[str, float]
    uniform_phase: bool
    error_s: float
    watchdog_s: float
    false_positive: float
    silent: Law
    diagnosis: Law
    threshold: float
    window: int
    action: str
    flap_budget_s: float


@dataclass(frozen=True, kw_only=True)
class Recovering:
    """What a restart costs and where spares come from. ``load_s`` is how long loading a checkpoint takes
    (None: by its tier)."""

    policy: str
    fixed: Law | None
    kill_s: float
    standby_s: float
    requeue_s: float
    init_s: float
    compile_s: float
    warmup_s: float
    load_s: float | None
    in_process_s: float
    fallback: tuple[str, ...]
    p_bad_copy: float
    warm: int | None
    cold: int
    promote_s: float
    reboot: Law
    replace: Law
    p_reboot_fixes: float
    exclude_after: int | None
    min_replicas: int
    batch: str
    regrow_at: str
    regroup: bool
    rejoin: Law | None
    repeat: float
    repeat_after_s: float
    max_no_progress: int


@dataclass(frozen=True, kw_only=True)
class CampaignPlan:
    """One campaign. ``goal_steps`` and ``horizon_s`` are infinite where they do not end it."""

    name: str
    step_s: float
    step_time: StepTime
    machine: Machine
    tiers: tuple[Tier, ...]
    sources: tuple[Source, ...]
    events: tuple[Known, ...]
    notice: Notice
    recovering: Recovering
    goal_steps: float
    horizon_s: float
    seed: int
    on_wall: bool
    restore_exposed: bool
    frailty_cv: float = 0.0
    off: frozenset[str] = frozenset()
    tokens_per_step: float = math.nan

    @property
    def end_s(self) -> float:
        """When a replication ends at the latest: at its horizon, or where its work will never be done.

        A run that needs more than a hundred times its fault-free time is given up (ETTR below 1 %); after a
        year at the earliest, so that one long repair does not end a short run.
        """
        return min(self.horizon_s, max(GIVE_UP_FACTOR * self.goal_steps * self.step_s, GIVE_UP_S))

    @property
    def storage(self) -> Tier | None:
        """The tier that every fault leaves alone."""
        return next((tier for tier in self.tiers if tier.name == "storage"), None)

    @property
    def shrinks(self) -> bool:
        """Whether a step may do less work than a whole one."""
        rules = self.recovering
        return rules.policy == "per_step_ft" or (rules.policy == "elastic_dp" and rules.batch == "keep_micro")
