"""Rules of recovery: who notices when, which copy is restored, what a restart takes. No clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from .ledger import Ledger
from .plan import Notice, Tier

if TYPE_CHECKING:
    from random import Random

    from .fault import Fault
    from .state import ReplicationState

Silent = list[tuple[float, int, Ledger, "Fault"]]

CHECKED = ("gpu", "nic", "switch", "host")


def noticed_after(notice: Notice, fault: Fault, stream: Random) -> float:
    """Seconds from a fault until it is noticed, by the first of the ways in ``notice.order`` that can notice
    it.

    A hang raises no error, so only the watchdog ends it; what the watchdog raises is then noticed like any
    other error. ``stream`` is drawn from once whatever comes out (the phase of health checks), and for the
    law of the whole delay where the document gives one.
    """
    phase = stream.random()
    if notice.fixed:
        return notice.fixed.draw(stream)
    detectors = fault.kind.detectors
    if fault.kind.effect == "hang":
        return notice.watchdog_s + notice.error_s
    found = inf
    for path in notice.order:
        if path == "heartbeat" and notice.heartbeat_s is not None and "heartbeat" in detectors:
            found = min(found, notice.heartbeat_s)
        elif path == "health_check":
            for name in CHECKED:
                if name in detectors:
                    period = notice.checks[name]
                    found = min(found, period * phase if notice.uniform_phase else period)
        elif path == "error" and "error" in detectors:
            found = min(found, notice.error_s)
        elif path == "watchdog":
            found = min(found, notice.watchdog_s)
    return found if found < inf else 0.0  # notice, graceful: told before


@dataclass(frozen=True, slots=True)
class RestoredCopy:
    """What is restored: the step, from which tier, and how many bad copies are tried before."""

    step: int
    tier: Tier | None
    bad: tuple[Tier, ...]


def survives(tier: Tier, lost: set[int], nodes: int) -> bool:
    """Whether a tier still has every host's part when the hosts ``lost`` are gone.

    Peer memory: groups of ``tier.group`` hosts hold each other's parts; across: the members of a group lie as
    far apart as can be, so that no rack or leaf holds two.
    """
    if tier.name == "storage" or not lost:
        return True
    if tier.name == "local_disk":
        return False
    groups = -(-nodes // tier.group)
    held: dict[int, int] = {}
    for node in lost:
        group = node % groups if tier.across else node // tier.group
        held[group] = held.get(group, 0) + 1
    return max(held.values()) < tier.group


def choose_copy(state: ReplicationState, lost: set[int]) -> RestoredCopy:
    """The copy to restore after losing the hosts ``lost``, by the order of ``recovery.fallback``."""
    plan = state.plan
    by_name = {tier.name: tier for tier in plan.tiers}
    order = [name for name in plan.recovering.fallback if name in by_name and name != "storage"]
    stream = state.streams.get("bad_copy")
    bad: list[Tier] = []
    for name in order:
        tier = by_name[name]
        if not survives(tier, lost, plan.machine.nodes):
            continue
        step = state.timeline.saved_by(state.now - tier.lag_s, tier.every)
        if step is None and state.base_tier == name:
            step = state.timeline.first
        if step is None or step < state.storage_step:
            continue
        if plan.recovering.p_bad_copy and stream.random() < plan.recovering.p_bad_copy:
            bad.append(tier)
            continue
        return RestoredCopy(step, tier, tuple(bad))
    step = stored(state)
    return RestoredCopy(state.storage_step if step is None else step, plan.storage, tuple(bad))


def stored(state: ReplicationState) -> int | None:
    """The last step since the restart of which a copy is durable on storage; None: there is none."""
    tier = state.plan.storage
    if state.writer:
        return state.writer.stored(state.now)
    return state.timeline.saved_by(state.now - tier.lag_s, tier.every) if tier else None


def save_s(state: ReplicationState) -> float:
    """Seconds until a checkpoint that is asked for now is durable, when nothing else goes on."""
    tier, writer = state.plan.storage, state.writer
    waits = max(0.0, writer.until_s - state.now) if writer else 0.0
    return tier.save_s + waits if tier else 0.0


def ledger_at_storage(state: ReplicationState) -> tuple[int, Ledger]:
    """The last step on storage, and the ledger as it would stand had the job ended there."""
    step = stored(state)
    if step is None or step <= state.storage_step:
        return state.storage_step, state.storage_ledger.copy()
    ledger = state.ledger.copy()
    ledger.book(state.timeline.account(step, state.now)[0])
    return step, ledger


def silent_rollback(silent: Silent, step: int) -> Silent:
    """Corruptions that a rollback to ``step`` leaves behind."""
    return [one for one in silent if one[1] < step]


def close(state: ReplicationState, step: int) -> float:
    """Book the time since the restart: up to the checkpoint after ``step`` as it was, the rest as lost.

    Where ``step`` lies before the restart, all of it is lost, and what had counted since the checkpoint on
    storage. Returns the lost seconds.
    """
    timeline, ledger = state.timeline, state.ledger
    if step < timeline.first:
        before = ledger.seconds["recompute"]
        ledger.add("recompute", state.now - timeline.start_s)
        _take_back(state, ledger.seconds["useful"] - state.storage_ledger.seconds["useful"])
        ledger.undo(state.storage_ledger)
        state.outcome.pieces.append((timeline.start_s, state.now, 0.0))
        return ledger.seconds["recompute"] - before
    stored, at_storage = ledger_at_storage(state)
    entries, saved_s = timeline.account(step, state.now)
    ledger.book(entries)
    lost = state.now - saved_s
    ledger.add("recompute", lost)
    state.outcome.pieces.append((timeline.start_s, saved_s, entries.get("useful", 0.0)))
    if stored > state.storage_step:
        state.storage_step, state.storage_ledger = stored, at_storage
    return lost


def close_whole(state: ReplicationState) -> None:
    """Book the time since the restart as it was: nothing is lost."""
    stored, at_storage = ledger_at_storage(state)
    entries = state.timeline.everything(state.now)
    state.ledger.book(entries)
    state.outcome.pieces.append((state.timeline.start_s, state.now, entries.get("useful", 0.0)))
    if stored > state.storage_step:
        state.storage_step, state.storage_ledger = stored, at_storage


def roll_back(state: ReplicationState, step: int, clean: Ledger) -> float:
    """Back to a clean checkpoint: what was done since is worth nothing. Returns the lost seconds."""
    close_whole(state)
    before = state.ledger.seconds["recompute"]
    _take_back(state, state.ledger.seconds["useful"] - clean.seconds["useful"])
    state.ledger.undo(clean)
    state.storage_step, state.storage_ledger = step, state.ledger.copy()
    return state.ledger.seconds["recompute"] - before


def back_to_storage(state: ReplicationState) -> None:
    """What had counted since the checkpoint on storage counts no more."""
    _take_back(state, state.ledger.seconds["useful"] - state.storage_ledger.seconds["useful"])
    state.ledger.undo(state.storage_ledger)


def _take_back(state: ReplicationState, useful_s: float) -> None:
    """The last useful seconds of the record were none."""
    pieces = state.outcome.pieces
    for number in range(len(pieces) - 1, -1, -1):
        if useful_s <= 0:
            return
        start, end, useful = pieces[number]
        taken = min(useful, useful_s)
        pieces[number] = (start, end, useful - taken)
        useful_s -= taken
