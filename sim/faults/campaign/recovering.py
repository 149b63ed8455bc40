"""The job while it does not run: booking what was lost, detection, spares, restart, and back to stepping."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import TYPE_CHECKING

from .ledger import Ledger
from .plan import Tier
from .recovering_rules import Copy, choose_copy, close, close_whole, noticed_after, roll_back
from .state import STOPS, Fault, State
from .stepping import Stop

if TYPE_CHECKING:
    import simpy

Steps = Generator["simpy.Event", None, str]
"""Ends with ok, horizon (the run is over), fault (another one struck) or stuck (no progress)."""


def recovering(state: State, stop: Stop) -> Steps:
    """From the stop until the job steps again."""
    state.mode = "down"
    began, fault = state.now, stop.fault
    _count_false(state)
    detect, copy = 0.0, None
    if stop.why in ("fault", "false_positive", "evict", "silent"):
        state.outcome.interruptions += 1
        copy, lost = _lose(state, stop)
        if fault and stop.why == "fault":
            _mark_broken(state, fault)
            if fault.kind.effect in STOPS:
                detect = noticed_after(state.plan.notice, fault, state.streams.get(f"{fault.name}/detection"))
        if fault and stop.why == "silent":
            _mark_broken(state, fault)
            if fault.entry:
                detect_entry(fault, state.now - fault.entry.at_s)
        _log(state, fault, copy, lost)
        if _stuck(state, copy):
            return "stuck"
    else:
        done = yield from _leave(state, stop)
        if done != "ok":
            return done
    if stop.why in ("drain", "evict"):
        _mark_slow(state)
    done = yield from _restart(state, stop, fault, detect, copy)
    if done == "ok":
        state.outcome.recover_s.append(state.now - began)
        if fault and fault.entry:
            fault.entry.resumed_s = state.now
        repeats = fault is not None and fault.kind.name == "software_crash" and _repeats(state)
        state.repeat_at = state.now + state.plan.recovering.repeat_after_s if repeats else inf
    return done


def detect_entry(fault: Fault, seconds: float) -> None:
    """Note in the log when a fault was noticed."""
    if fault.entry:
        fault.entry.detected_s = fault.entry.at_s + seconds


def _lose(state: State, stop: Stop) -> tuple[Copy, float]:
    """Book the time since the last restart and choose the copy to go back to."""
    if stop.why == "silent":
        assert stop.rollback
        step, ledger = stop.rollback
        assert isinstance(ledger, Ledger)
        copy = Copy(step, state.plan.storage, ())
        lost = roll_back(state, step, ledger)
    else:
        fault = stop.fault
        gone = set(fault.nodes) if fault and fault.kind.damage != "none" else set()
        copy = choose_copy(state, gone)
        lost = close(state, copy.step)
    state.outcome.lost_s.append(lost)
    state.step = copy.step
    state.base_tier = copy.tier.name if copy.tier else "storage"
    return copy, lost


def _log(state: State, fault: Fault | None, copy: Copy, lost: float) -> None:
    if fault and fault.entry:
        fault.entry.lost_s, fault.entry.restored_step = lost, copy.step
        fault.entry.tier = copy.tier.name if copy.tier else ""


def _stuck(state: State, copy: Copy) -> bool:
    """Whether the run gets nowhere: so many restarts in a row from the same checkpoint."""
    state.no_progress = state.no_progress + 1 if copy.step <= state.last_restored else 0
    state.last_restored = max(copy.step, state.last_restored)
    return state.no_progress >= state.plan.recovering.max_no_progress


def _count_false(state: State) -> None:
    """Checkpoints that have passed without a false alarm."""
    if state.false_left == inf or not state.plan.storage:
        return
    every = state.plan.storage.every
    passed = state.timeline.current.at(state.now).steps // every - state.timeline.first // every
    state.false_left -= passed
    if state.false_left <= 0:
        state.false_left = state.next_false()


def _mark_broken(state: State, fault: Fault) -> None:
    if fault.kind.damage != "none":
        for node in fault.nodes:
            if node not in state.broken and node not in state.missing:
                state.broken.append(node)
                state.pool.broken(node, fault.repair, fault.kind.name, fixed=fault.kind.damage == "domain")


def _mark_slow(state: State) -> None:
    """The hosts that slow the job leave it."""
    state.drain_step, state.straggler_at = None, inf
    for effect, nodes in list(state.effects.values()):
        if len(nodes) == 1 and effect.slow_factor and nodes.start not in state.broken:
            state.broken.append(nodes.start)
            state.pool.broken(nodes.start, None, effect.kind, fixed=False)


def _repeats(state: State) -> bool:
    chance = state.plan.recovering.repeat
    return bool(chance) and state.streams.get("crash_loop").random() < chance


def _leave(state: State, stop: Stop) -> Steps:
    """A graceful stop: a checkpoint, and the absence that was planned."""
    fault = stop.fault
    place = state.timeline.current.at(state.now)
    close_whole(state)
    state.step = place.steps
    storage = state.plan.storage
    if storage and stop.why in ("planned", "drain"):
        save = storage.lag_s if stop.why == "drain" else storage.save_s
        done = yield from _spend(state, save, "checkpoint")
        if done != "ok":
            return done
        state.storage_step, state.storage_ledger = place.steps, state.ledger.copy()
        state.base_tier = "storage"
    if stop.why == "planned" and fault and fault.duration_s:
        done = yield from _spend(state, fault.duration_s, "maintenance")
        if done != "ok":
            return done
    return "ok"


def _restart(state: State, stop: Stop, fault: Fault | None, detect: float, copy: Copy | None) -> Steps:
    """Detection, hosts, restore; from the start again when another fault strikes meanwhile."""
    bad = list(copy.bad) if copy else []
    while True:
        if fault and detect:
            state.outcome.detect_s.append(detect)
            detect_entry(fault, detect)
        done = yield from _spend(state, detect, "detection")
        if done == "ok":
            done = yield from _reschedule(state, stop, fault)
        while done == "ok" and bad:
            done = yield from _restore(state, fault, bad.pop(0), "failed_restart")
        if done == "ok":
            tier = copy.tier if copy else state.plan.storage
            done = yield from _restore(state, fault, tier, "restart", live=stop.why == "regrow")
        if done != "fault":
            return done
        fault = state.inbox.pop(0)
        state.outcome.interruptions += 1
        _mark_broken(state, fault)
        if copy:
            copy = _still_there(state, fault, copy)
            if _stuck(state, copy):
                return "stuck"
        detect = noticed_after(state.plan.notice, fault, state.streams.get(f"{fault.name}/detection"))


def _still_there(state: State, fault: Fault, copy: Copy) -> Copy:
    """The copy to restore after yet another fault: what it took along may have been part of it."""
    from .recovering_rules import survives

    gone = set(fault.nodes) if fault.kind.damage != "none" else set()
    if copy.tier is None or survives(copy.tier, gone, state.plan.machine.nodes):
        return copy
    wasted = Copy(state.storage_step, state.plan.storage, ())
    if wasted.step < copy.step:
        roll_back_to_storage(state)
    state.step, state.base_tier = wasted.step, "storage"
    return wasted


def roll_back_to_storage(state: State) -> None:
    """What had counted since the checkpoint on storage counts no more."""
    state.ledger.undo(state.storage_ledger)


def _reschedule(state: State, stop: Stop, fault: Fault | None) -> Steps:
    """Diagnosis, the end of the old processes, and a host for every slot."""
    rules = state.plan.recovering
    swapped, cold = bool(state.broken), False
    while state.broken:
        warm = state.swap(state.broken[0])
        if warm is not None:
            cold = cold or not warm
            state.broken.pop(0)
            continue
        if _shrink(state):
            break
        done = yield from _await(state, lambda: state.pool.ready > 0)
        if done != "ok":
            return done
    if stop.why == "regrow":
        _fill(state)
    if rules.fixed:
        return (yield from _spend(state, _diagnosis(state, fault), "reschedule"))
    wait = rules.requeue_s if cold or _requeued(fault) else rules.standby_s
    in_place = rules.policy == "in_process" and not swapped
    seconds = rules.in_process_s if in_place else rules.kill_s + wait
    return (yield from _spend(state, seconds + _diagnosis(state, fault), "reschedule"))


def _diagnosis(state: State, fault: Fault | None) -> float:
    if fault is None or fault.kind.effect == "graceful":
        return 0.0
    return state.plan.notice.diagnosis.draw(state.streams.get(f"{fault.name}/diagnosis"))


def _requeued(fault: Fault | None) -> bool:
    return fault is not None and fault.kind.name == "preemption"


def _shrink(state: State) -> bool:
    """Elastic: go on without the replicas whose hosts cannot be had."""
    plan = state.plan
    if plan.recovering.policy != "elastic_dp" or plan.recovering.batch == "refuse":
        return False
    lost = {plan.machine.replica_of(slot) for slot in (*state.missing, *state.broken)}
    if plan.machine.replicas - len(lost) < plan.recovering.min_replicas:
        return False
    state.missing += state.broken
    state.broken = []
    state.down_replicas = dict.fromkeys(lost, inf)
    return True


def _fill(state: State) -> None:
    """Elastic: hosts are back for what was missing."""
    while state.missing and state.pool.ready:
        state.swap(state.missing.pop(0))
    lost = {state.plan.machine.replica_of(slot) for slot in state.missing}
    state.down_replicas = dict.fromkeys(lost, inf)


def _await(state: State, ready: Callable[[], bool]) -> Steps:
    """Wait until something holds; idle."""
    while not ready():
        before = state.now
        reached = yield from state.sleep(state.plan.horizon_s)
        state.ledger.add("idle", state.now - before)
        if reached:
            return "horizon"
        _merge(state)
    return "ok"


def _restore(
    state: State, fault: Fault | None, tier: Tier | None, category: str, *, live: bool = False
) -> Steps:
    """Processes, communicators, the checkpoint, compilation, warm-up."""
    rules = state.plan.recovering
    if state.storage_down and (tier is None or tier.name == "storage") and not live:
        done = yield from _await(state, lambda: not state.storage_down)
        if done != "ok":
            return done
    if rules.fixed:
        start, load = rules.fixed.draw(state.streams.get("restart")), 0.0
    else:
        ready = rules.policy in ("in_process", "hot_spare")
        start = rules.init_s + (0.0 if ready else rules.compile_s + rules.warmup_s)
        load = _load_s(state, tier, live=live)
    before = state.ledger.seconds.copy()
    done = yield from _spend(state, start + load, category, restoring=True)
    spent = state.ledger.seconds[category] - before[category]
    if done == "fault" and category != "failed_restart":
        state.ledger.add(category, -spent)
        state.ledger.add("failed_restart", spent)
    elif done == "ok" and category == "restart" and load:
        state.ledger.add("restart", -load)
        state.ledger.add("load", load)
    return done


def _load_s(state: State, tier: Tier | None, *, live: bool) -> float:
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


def _spend(state: State, seconds: float, category: str, *, restoring: bool = False) -> Steps:
    """Let time pass and book it. While restoring, another fault ends it where failures may arrive."""
    if seconds <= 0.0:
        return "ok"
    plan = state.plan
    state.mode = "restore" if restoring else "down"
    until = state.now + seconds
    exposed = restoring and plan.restore_exposed and not plan.on_wall
    while True:
        end = min(until, plan.horizon_s)
        strikes = state.now + max(0.0, state.next_exposed()) if exposed else inf
        before = state.now
        reached = yield from state.sleep(min(end, strikes))
        state.ledger.add(category, state.now - before)
        if exposed:
            state.exposure += state.now - before
            state.outcome.exposed_s += state.now - before
        if reached and strikes < end:
            fault = state.pop_exposed()
            if fault.kind.effect in ("slow", "storage"):
                state.begin(fault)
            else:
                state.inbox.append(fault)
        if state.inbox and _interrupted(state, restoring):
            return "fault"
        if reached and not (strikes < end):
            return "horizon" if plan.horizon_s <= until and state.now >= plan.horizon_s else "ok"


def _interrupted(state: State, restoring: bool) -> bool:
    """Whether what has come in ends a restore; everything else merges into the recovery that is under way."""
    if not restoring:
        _merge(state)
        return False
    while state.inbox and state.inbox[0].kind.effect not in STOPS:
        state.inbox.pop(0)
    return bool(state.inbox)


def _merge(state: State) -> None:
    """Faults that strike while the job is down: their hosts are swapped too, and that is all."""
    for fault in state.inbox:
        if fault.kind.effect in STOPS:
            _mark_broken(state, fault)
        if fault.entry:
            fault.entry.note = "merged"
    state.inbox.clear()
