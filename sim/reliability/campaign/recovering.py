"""The job while it does not run: booking what was lost, detection, spares, restart, and back to stepping."""

from __future__ import annotations

from math import inf

from .fault import STOPS, Fault
from .ledger import Ledger
from .recovering_rules import (
    RestoredCopy,
    back_to_storage,
    choose_copy,
    close,
    close_whole,
    noticed_after,
    roll_back,
    save_s,
)
from .restarting import Steps, reschedule, restore, spend
from .state import ReplicationState
from .stepping import Stop, mark_broken


def recovering(state: ReplicationState, stop: Stop) -> Steps:
    """Recover from a stop: all that happens until the job steps again."""
    state.mode = "down"
    began, fault = state.now, stop.fault
    state.handled = [fault] if fault else []
    _count_false(state)
    detect, copy = 0.0, None
    if stop.why in ("fault", "false_positive", "evict", "silent"):
        state.outcome.interruptions += 1
        copy, lost = _lose(state, stop)
        if fault and stop.why == "fault":
            mark_broken(state, fault)
            if fault.kind.effect in STOPS:
                detect = noticed_after(state.plan.notice, fault, state.streams.get(f"{fault.name}/detection"))
        if fault and stop.why == "silent":
            mark_broken(state, fault)
            if fault.entry:
                detect_entry(fault, state.now - fault.entry.at_s)
        _log(fault, copy, lost)
        if _stuck(state):
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
        for handled in state.handled:
            if handled.entry:
                handled.entry.resumed_s = state.now
        repeats = fault is not None and fault.kind.repeats and _repeats(state)
        state.repeat_at = state.now + state.plan.recovering.repeat_after_s if repeats else inf
    return done


def detect_entry(fault: Fault, seconds: float) -> None:
    """Note in the log when a fault was noticed."""
    if fault.entry:
        fault.entry.detected_s = fault.entry.at_s + seconds


def _lose(state: ReplicationState, stop: Stop) -> tuple[RestoredCopy, float]:
    """Book the time since the last restart and choose the copy to go back to."""
    if stop.why == "silent":
        assert stop.rollback
        step, ledger = stop.rollback
        assert isinstance(ledger, Ledger)
        copy = RestoredCopy(step, state.plan.storage, ())
        lost = roll_back(state, step, ledger)
    else:
        fault = stop.fault
        gone = set(fault.nodes) if fault and fault.kind.swapped != "none" else set()
        copy = choose_copy(state, gone)
        lost = close(state, copy.step)
    state.outcome.lost_s.append(lost)
    state.step = copy.step
    state.base_tier = copy.tier.name if copy.tier else "storage"
    return copy, lost


def _log(fault: Fault | None, copy: RestoredCopy, lost: float) -> None:
    if fault and fault.entry:
        fault.entry.lost_s, fault.entry.restored_step = lost, copy.step
        fault.entry.tier = copy.tier.name if copy.tier else ""


def _stuck(state: ReplicationState) -> bool:
    """Whether the run makes no progress: too many restarts in a row from the same checkpoint."""
    if state.step > state.last_restored:
        state.no_progress, state.progress_s = 0, state.now
    else:
        state.no_progress += 1
    state.last_restored = state.step
    return state.no_progress >= state.plan.recovering.max_no_progress


def _count_false(state: ReplicationState) -> None:
    """Checkpoints that have passed without a false alarm."""
    if state.false_left == inf or not state.plan.storage:
        return
    every = state.plan.storage.every
    passed = state.timeline.current.at(state.now).steps // every - state.timeline.first // every
    state.false_left -= passed
    if state.false_left <= 0:
        state.false_left = state.next_false()


def _mark_slow(state: ReplicationState) -> None:
    """The hosts that slow the job leave it."""
    state.drain_step, state.straggler_at = None, inf
    for effect, nodes in list(state.effects.values()):
        if len(nodes) == 1 and effect.slow_factor and not state.absent(nodes.start):
            state.empty.append(nodes.start)
            state.pool.broken(nodes.start, None, effect.kind, fixed=False)


def _repeats(state: ReplicationState) -> bool:
    chance = state.plan.recovering.repeat
    return bool(chance) and state.streams.get("crash_loop").random() < chance


def _leave(state: ReplicationState, stop: Stop) -> Steps:
    """A graceful stop: a checkpoint, and the absence that was planned."""
    fault = stop.fault
    place = state.timeline.current.at(state.now)
    close_whole(state)
    state.step = place.steps
    storage = state.plan.storage
    if storage and stop.why in ("planned", "drain"):
        taken = stop.why == "drain" and not storage.overlap
        save = storage.lag_s if taken else save_s(state)
        done = yield from spend(state, save, "checkpoint")
        if done != "ok":
            return done
        state.storage_step, state.storage_ledger = place.steps, state.ledger.copy()
        state.base_tier = "storage"
    if stop.why == "planned" and fault and fault.duration_s:
        done = yield from spend(state, fault.duration_s, "maintenance")
        if done != "ok":
            return done
    return "ok"


def _restart(
    state: ReplicationState, stop: Stop, fault: Fault | None, detect: float, copy: RestoredCopy | None
) -> Steps:
    """Detection, hosts, restore; from the start again when another fault strikes meanwhile."""
    bad = list(copy.bad) if copy else []
    while True:
        if fault and detect:
            state.outcome.detect_s.append(detect)
            detect_entry(fault, detect)
        done = yield from spend(state, detect, "detection")
        if done == "ok":
            done = yield from reschedule(state, stop, fault)
        while done == "ok" and bad:
            done = yield from restore(state, bad.pop(0), "failed_restart")
        if done == "ok":
            tier = copy.tier if copy else state.plan.storage
            done = yield from restore(state, tier, "restart", live=stop.why == "regrow")
        if done != "fault":
            return done
        fault = state.inbox.pop(0)
        state.handled.append(fault)
        state.outcome.interruptions += 1
        mark_broken(state, fault)
        if copy:
            copy = _still_there(state, fault, copy)
        if _stuck(state):
            return "stuck"
        detect = noticed_after(state.plan.notice, fault, state.streams.get(f"{fault.name}/detection"))


def _still_there(state: ReplicationState, fault: Fault, copy: RestoredCopy) -> RestoredCopy:
    """The copy to restore after yet another fault: what it took along may have been part of it."""
    from .recovering_rules import survives

    gone = set(fault.nodes) if fault.kind.swapped != "none" else set()
    if copy.tier is None or survives(copy.tier, gone, state.plan.machine.nodes):
        return copy
    wasted = RestoredCopy(state.storage_step, state.plan.storage, ())
    if wasted.step < copy.step:
        back_to_storage(state)
    state.step, state.base_tier = wasted.step, "storage"
    return wasted
