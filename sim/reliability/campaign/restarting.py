"""Time passing while the job is down: hosts, restores, waiting; and what strikes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TYPE_CHECKING

from .fault import STOPS, Fault
from .plan import Tier
from .replicas import next_slot
from .state import ReplicationState
from .stepping import Stop, mark_broken, only_idle

if TYPE_CHECKING:
    import simpy

Steps = Generator["simpy.Event", None, str]
"""Ends with ok, horizon or events (the run is over), fault (another one struck) or stuck (no progress)."""


def reschedule(state: ReplicationState, stop: Stop, fault: Fault | None) -> Steps:
    """Diagnosis, the end of the old processes, and a host for every slot."""
    rules = state.plan.recovering
    swapped, before = bool(state.empty), state.cold_taken
    done = yield from _hosts(state)
    if done != "ok":
        return done
    seconds = 0.0
    if not rules.fixed:
        cold = state.cold_taken > before and stop.why != "regrow"  # those were fetched while steps went on
        wait = rules.requeue_s if cold or _requeued(fault) else rules.standby_s
        in_place = rules.policy == "in_process" and not swapped
        seconds = rules.in_process_s if in_place else rules.kill_s + wait
    done = yield from spend(state, seconds + _diagnosis(state, fault), "reschedule")
    if done != "ok":
        return done
    return (yield from _hosts(state))  # for those that were lost, or came back, meanwhile


def _hosts(state: ReplicationState) -> Steps:
    """A host for every slot, or for as many as an elastic job needs. It starts with these."""
    while state.empty:
        _fill(state)
        if not state.empty or _shrinks(state):
            break
        done = yield from _await(state, lambda: state.pool.ready > 0, "a host")
        if done != "ok":
            return done
    state.settle()
    return "ok"


def _diagnosis(state: ReplicationState, fault: Fault | None) -> float:
    if fault is None or fault.kind.effect == "graceful":
        return 0.0
    return state.plan.notice.diagnosis.draw(state.streams.get(f"{fault.name}/diagnosis"))


def _requeued(fault: Fault | None) -> bool:
    return fault is not None and fault.kind.requeued


def _shrinks(state: ReplicationState) -> bool:
    """Elastic: whether the job goes on without the replicas whose hosts cannot be had."""
    rules = state.plan.recovering
    if rules.policy != "elastic_dp" or rules.batch == "refuse":
        return False
    state.settle()
    return state.standing.live >= rules.min_replicas


def _fill(state: ReplicationState) -> None:
    """Spares, and hosts that are back, for empty slots."""
    elastic = state.plan.recovering.policy == "elastic_dp"
    while state.empty:
        slot = next_slot(state.plan.machine, state.empty) if elastic else state.empty[0]
        warm = state.swap(slot)
        if warm is None:
            break
        state.cold_taken += not warm
        state.empty.remove(slot)


def _await(state: ReplicationState, ready: Callable[[], bool], what: str) -> Steps:
    """Wait until something holds; idle."""
    state.waits = (what, state.now)
    while not ready():
        if state.exhausted:
            return "events"
        before = state.now
        reached = yield from state.sleep(state.plan.end_s)
        state.ledger.add("idle", state.now - before)
        if reached:
            return "horizon"
        _merge(state)
    state.waits = ("", state.now)
    return "ok"


def restore(state: ReplicationState, tier: Tier | None, category: str, *, live: bool = False) -> Steps:
    """Processes, communicators, the checkpoint, compilation, warm-up."""
    rules = state.plan.recovering
    if state.storage_down and (tier is None or tier.name == "storage") and not live:
        done = yield from _await(state, lambda: not state.storage_down, "the storage")
        if done != "ok":
            return done
    if rules.fixed:
        start, load = rules.fixed.draw(state.streams.get("restart")), 0.0
    else:
        ready = rules.policy in ("in_process", "hot_spare")
        start = rules.init_s + (0.0 if ready else rules.compile_s + rules.warmup_s)
        load = _load_s(state, tier, live=live)
    before = state.ledger.seconds.copy()
    done = yield from spend(state, start + load, category, restoring=True)
    spent = state.ledger.seconds[category] - before[category]
    if done == "fault" and category != "failed_restart":
        state.ledger.add(category, -spent)
        state.ledger.add("failed_restart", spent)
    elif done == "ok" and category == "restart" and load:
        state.ledger.add("restart", -load)
        state.ledger.add("load", load)
    return done


def _load_s(state: ReplicationState, tier: Tier | None, *, live: bool) -> float:
    rules = state.plan.recovering
    if rules.load_s is not None:
        return rules.load_s
    if live:  # a replica that comes back reads its peers' state
        peers = [one.load_s for one in state.plan.tiers if one.name == "peer_memory"]
        if peers:
            return peers[0]
    if tier is None:
        return 0.0
    factor = min(state.storage_factor, default=1.0) if tier.name == "storage" else 1.0
    return tier.load_s / factor


def spend(state: ReplicationState, seconds: float, category: str, *, restoring: bool = False) -> Steps:
    """Let time pass and book it. While restoring, another fault ends it where failures may arrive."""
    if seconds <= 0.0:
        return "ok"
    plan = state.plan
    state.mode = "restore" if restoring else "down"
    until = state.now + seconds
    exposed = restoring and plan.restore_exposed and not plan.on_wall
    while not state.exhausted:
        end = min(until, plan.end_s)
        strikes = state.now + max(0.0, state.next_exposed()) if exposed else inf
        before = state.now
        reached = yield from state.sleep(min(end, strikes))
        state.ledger.add(category, state.now - before)
        if exposed:
            state.exposure += state.now - before
            state.outcome.exposed_s += state.now - before
        if reached and strikes < end:
            state.take_exposed()
        if state.inbox and _interrupted(state, restoring):
            return "fault"
        if reached and not (strikes < end):
            return "horizon" if plan.end_s <= until and state.now >= plan.end_s else "ok"
    return "events"


def _interrupted(state: ReplicationState, restoring: bool) -> bool:
    """Whether what has come in ends a restore; everything else merges into the recovery that is under way."""
    if not restoring:
        _merge(state)
        return False
    while state.inbox:
        fault = state.inbox[0]
        if fault.kind.effect in STOPS and not only_idle(state, fault):
            break
        mark_broken(state, state.inbox.pop(0))
    return bool(state.inbox)


def _merge(state: ReplicationState) -> None:
    """Faults that strike while the job is down: their hosts are swapped too, and that is all."""
    for fault in state.inbox:
        if fault.kind.effect in STOPS:
            mark_broken(state, fault)
        if fault.entry:
            fault.entry.note = "merged"
    state.inbox.clear()
