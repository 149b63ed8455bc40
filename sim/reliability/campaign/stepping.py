"""The job while it runs: stretches of equal steps from one change to the next.

A stretch ends with whatever comes first: a failure, the end of an effect, the goal, the horizon, a drain.
Between them nothing is simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING

from .fault import STOPS, Fault
from .plan import Effect
from .recovering_rules import save_s, silent_rollback
from .replicas import grows
from .state import ReplicationState
from .timeline import CampaignTimeline, Due, StepPosition, StepStretch
from .writer import Writer

if TYPE_CHECKING:
    import simpy


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why the job stopped stepping.

    fault, silent, false_positive: work since a checkpoint is lost. evict: the same, on purpose. drain,
    planned, regrow: nothing is lost. goal, horizon, events: it is over.
    """

    why: str
    fault: Fault | None = None
    rollback: tuple[int, object] | None = None


@dataclass(slots=True)
class Leaving:
    """A graceful stop after ``step``, at the latest at ``deadline_s``."""

    step: int
    deadline_s: float
    why: str
    fault: Fault | None


@dataclass(slots=True)
class Standpoint:
    """Where the job is between two stretches: ``place``, the account of its pauses, and a stop that is
    planned."""

    place: StepPosition
    pause_as: str = "slow"
    leaving: Leaving | None = None


def stepping(state: ReplicationState) -> Generator[simpy.Event, None, Stop]:
    """Step until something stops the job. The ledger is not touched; whoever handles the stop books the
    time.
    """
    state.mode = "run"
    state.timeline = CampaignTimeline(state.now, state.step)
    storage = state.plan.storage
    state.writer = Writer(storage, state.step) if storage and storage.overlap else None
    here = Standpoint(StepPosition(state.step))
    while True:
        begun = state.now
        stretch = _open(state, here.place, here.pause_as)
        state.timeline.follow(stretch)
        here.leaving = here.leaving or _regrow(state, here.place)
        until, what = _next(state, stretch, here.leaving)
        reached = yield from state.sleep(until)
        if not state.plan.on_wall:
            state.exposure += state.now - begun
        state.outcome.exposed_s += state.now - begun
        here.place, here.pause_as = stretch.at(state.now), stretch.pause_as
        if state.exhausted:
            return Stop(why="events")
        if reached:
            stop = _arrived(state, here.place, what, here.leaving)
            if stop:
                return stop
            if what == "due":
                here.place = _snapshot(state)
        while state.inbox:
            stop = _struck(state, stretch, here, state.inbox.pop(0))
            if stop:
                return stop


def _struck(state: ReplicationState, stretch: StepStretch, here: Standpoint, fault: Fault) -> Stop | None:
    """What a fault that has come in does to the job at once; None: it goes on from ``here``."""
    effect = fault.kind.effect
    if only_idle(state, fault):
        mark_broken(state, fault)
    elif effect in STOPS and state.plan.recovering.policy == "per_step_ft":
        here.place, here.pause_as = _lose_step(state, stretch, here.place, fault)
    elif effect in STOPS:
        return Stop(why="fault", fault=fault)
    elif effect == "pause":
        place, pause_s = here.place, fault.duration_s or 0.0
        here.place, here.pause_as = replace(place, pause_s=place.pause_s + pause_s), "slow"
        if state.writer and place.stall_s:
            state.writer.pause(state.now, pause_s)
    elif effect == "silent":
        _corrupt(state, fault)
    elif effect == "graceful":
        here.leaving = here.leaving or _told_to_leave(state, here.place, fault)
    return None


def _told_to_leave(state: ReplicationState, place: StepPosition, fault: Fault) -> Leaving:
    """The planned stop after the step in progress, before the notice that the fault gives has passed."""
    deadline = state.now + fault.notice if "notice" in fault.kind.keys else inf
    return Leaving(place.steps + (place.part > 0), deadline, "planned", fault)


def _open(state: ReplicationState, place: StepPosition, pause_as: str) -> StepStretch:
    """The stretch of steps from now on: how long a step takes, and how much of it is useful."""
    plan, rules = state.plan, state.plan.recovering
    slowed = plan.step_s
    if state.effects:
        slowed = plan.step_time(_at_once(state))
    replicas, live = plan.machine.replicas, state.live
    step, useful = slowed, plan.step_s
    if live < replicas and rules.batch == "keep_global" and rules.policy == "elastic_dp":
        step = slowed * replicas / live
    elif live < replicas:
        useful = plan.step_s * live / replicas
    slowdown_s = 0.0
    if state.writer and state.writer.busy(state.now):
        slowdown_s = step * (state.writer.tier.slow_factor - 1.0)
    if rules.policy == "per_step_ft" and live < rules.min_replicas and not place.pause_s:
        back = min(state.down_replicas.values())
        place, pause_as = replace(place, pause_s=max(0.0, back - state.now)), "idle"
    _watch(state, slowed / plan.step_s)
    return StepStretch(
        start_s=state.now,
        place=place,
        step_s=step + slowdown_s,
        useful_s=useful,
        slow_s=slowed - plan.step_s,
        due=_due(state),
        pause_as=pause_as,
        write_slowdown_s=slowdown_s,
    )


def _at_once(state: ReplicationState) -> frozenset[Effect]:
    """What is wrong now; the same twice over, such as two floods of a NIC, counts twice."""
    counted = Counter(
        effect
        for effect, nodes in state.effects.values()
        if not nodes or not all(state.absent(slot) for slot in nodes)
    )
    return frozenset(
        effect if times == 1 else replace(effect, times=times) for effect, times in counted.items()
    )


def _due(state: ReplicationState) -> Due:
    tiers = [tier for tier in state.plan.tiers if not tier.overlap]
    if not state.storage_down and not state.storage_factor:
        return tuple((tier.every, tier.stall_s) for tier in tiers)
    factor = min(state.storage_factor, default=1.0)
    found = []
    for tier in tiers:
        if tier.name != "storage":
            found.append((tier.every, tier.stall_s))
        elif not state.storage_down:
            blocking = tier.lag_s == 0.0
            found.append((tier.every, tier.stall_s / factor if blocking else tier.stall_s))
    return tuple(found)


def _watch(state: ReplicationState, slowdown: float) -> None:
    """Start or stop the straggler detector's clock."""
    notice = state.plan.notice
    if notice.action == "tolerate" or slowdown < notice.threshold:
        state.straggler_at = inf
    elif state.straggler_at == inf and state.drain_step is None:
        state.straggler_at = state.now + notice.window * slowdown * state.plan.step_s


def _next(state: ReplicationState, stretch: StepStretch, leaving: Leaving | None) -> tuple[float, str]:
    """When and why this stretch ends, unless a fault comes in before."""
    at, why = min(_endings(state, stretch, leaving))
    return max(at, state.now), why


def _endings(
    state: ReplicationState, stretch: StepStretch, leaving: Leaving | None
) -> Iterator[tuple[float, str]]:
    """Everything that may end this stretch, with its time. Of equal times the first name by the alphabet
    counts: "due" before "goal", since the checkpoint after the last step belongs to the run.
    """
    plan = state.plan
    yield plan.end_s, "horizon"
    if (exposed := state.next_exposed()) < inf:
        yield state.now + max(0.0, exposed), "failure"
    if plan.goal_steps < inf:
        yield stretch.time_of(_goal(state, stretch)), "goal"
    if state.writer:
        yield stretch.time_of(state.writer.next_due), "due"
        if stretch.write_slowdown_s:
            yield state.writer.until_s, "written"
    if state.straggler_at < inf:
        yield state.straggler_at, "straggler"
    if state.drain_step is not None:
        yield stretch.time_of(state.drain_step), "drain"
    if state.repeat_at < inf:
        yield state.repeat_at, "repeat"
    if state.silent:
        yield state.silent[0][0], "silent"
    if state.by_step:
        yield stretch.done_by(state.by_step[0].at_step or 0), "by_step"
    if state.false_left < inf and plan.storage:
        every = plan.storage.every
        number = (state.timeline.first // every + int(state.false_left)) * every
        yield stretch.done_by(number), "false_positive"
    if leaving:
        yield _leave(state, stretch, leaving)
    if plan.recovering.policy == "per_step_ft" and state.down_replicas:
        yield min(state.down_replicas.values()), "rejoin"


def _leave(state: ReplicationState, stretch: StepStretch, leaving: Leaving) -> tuple[float, str]:
    """When the job lets hosts go or takes some back: after its step, or at the deadline if that is too
    late."""
    after_checkpoint = leaving.why == "regrow" and state.plan.recovering.regrow_at == "checkpoint"
    done = stretch.time_of(leaving.step) if after_checkpoint else stretch.done_by(leaving.step)
    save = save_s(state) if leaving.why == "planned" else 0.0
    late = done + save > leaving.deadline_s
    return (leaving.deadline_s, "deadline") if late else (done, "leave")


def _goal(state: ReplicationState, stretch: StepStretch) -> int:
    """The step after which the run is done; smaller steps take more of them."""
    plan = state.plan
    if not plan.shrinks:
        return int(plan.goal_steps)
    done = state.ledger.seconds["useful"] + sum(
        part.whole(part.end_s)["useful"] for part in state.timeline.stretches[:-1]
    )
    left = plan.goal_steps * plan.step_s - done
    return stretch.place.steps + max(0, ceil(left / stretch.useful_s + stretch.place.part - 1e-9))


def _arrived(state: ReplicationState, place: StepPosition, what: str, leaving: Leaving | None) -> Stop | None:
    """What the end of a stretch means; None: go on."""
    match what:
        case "goal" | "horizon" | "false_positive":
            return Stop(why=what)
        case "failure":
            state.take_exposed()
        case "straggler":
            state.straggler_at = inf
            if state.plan.notice.action == "evict" or not state.plan.storage:
                return Stop(why="evict")
            every = state.plan.storage.every
            state.drain_step = (place.steps // every + 1) * every
        case "drain":
            return Stop(why="drain")
        case "repeat":
            state.repeat_at = inf
            state.inbox.append(state.again())
        case "silent":
            _, step, ledger, fault = state.silent[0]
            state.silent = silent_rollback(state.silent, step)
            return Stop(why="silent", fault=fault, rollback=(step, ledger))
        case "by_step":
            state.deliver(state.fault_at(state.by_step.pop(0)))
        case "rejoin":
            back = state.down_replicas
            for replica in [r for r, at in back.items() if at <= state.now]:
                del back[replica]
        case "leave":
            assert leaving
            return Stop(why=leaving.why, fault=leaving.fault)
        case "deadline":
            assert leaving
            return Stop(why="fault", fault=leaving.fault)
    return None


def _lose_step(
    state: ReplicationState, stretch: StepStretch, place: StepPosition, fault: Fault
) -> tuple[StepPosition, str]:
    """Per-step fault tolerance: the step in flight ends and does not count; its replica is away for a
    while.
    """
    machine, rules = state.plan.machine, state.plan.recovering
    stream = state.streams.get(f"{fault.name}/replica")
    live = [replica for replica in range(machine.replicas) if replica not in state.down_replicas]
    drawn = live[int(stream.random() * len(live))] if live else None
    struck = sorted({replica for slot in fault.nodes for replica in machine.replicas_of(slot)})
    if not fault.nodes and drawn is not None:
        struck = [drawn]
    assert rules.rejoin
    for replica in struck:
        if replica not in state.down_replicas:
            back = state.now + rules.rejoin.draw(state.streams.get(f"{fault.name}/rejoin"))
            state.down_replicas[replica] = back
    state.outcome.interruptions += 1
    if place.pause_s or place.stall_s or not place.part:
        return place, stretch.pause_as
    stretch.wasted_part = place.part
    rest = (1.0 - place.part) * stretch.step_s
    return StepPosition(place.steps, 0.0, 0.0, rest), "recompute"


def _corrupt(state: ReplicationState, fault: Fault) -> None:
    """Steps from now on are wrong; the last checkpoint on storage before now is clean."""
    from .recovering_rules import ledger_at_storage

    step, ledger = ledger_at_storage(state)
    noticed = state.now + state.plan.notice.silent.draw(state.streams.get(f"{fault.name}/silent"))
    state.silent.append((noticed, step, ledger, fault))
    state.silent.sort(key=lambda one: one[0])


def _snapshot(state: ReplicationState) -> StepPosition:
    """A snapshot is due, and may outlast the interval: for how long steps stall."""
    writer = state.writer
    assert writer
    step = writer.next_due
    if state.storage_down:
        writer.pass_by()
        return StepPosition(step)
    return StepPosition(step, stall_s=writer.snapshot(state.now, min(state.storage_factor, default=1.0)))


def only_idle(state: ReplicationState, fault: Fault) -> bool:
    """Whether a fault strikes hosts alone that no step needs: it stops nothing."""
    return bool(fault.nodes) and all(state.absent(slot) for slot in fault.nodes)


def mark_broken(state: ReplicationState, fault: Fault) -> None:
    """Hosts that leave for repair; those that are out already do not leave again."""
    if fault.kind.swapped != "none" and fault.kind.effect in (*STOPS, "silent"):
        for slot in fault.nodes:
            if slot not in state.empty:
                state.empty.append(slot)
                state.pool.broken(slot, fault.repair, fault.kind.name, fixed=fault.kind.swapped == "domain")


def _regrow(state: ReplicationState, place: StepPosition) -> Leaving | None:
    """Elastic: hosts are back for at least one replica more."""
    plan, rules = state.plan, state.plan.recovering
    if rules.policy != "elastic_dp" or not grows(
        plan.machine, state.empty, state.pool.ready, state.standing.live, regroup=rules.regroup
    ):
        return None
    step = place.steps + (place.part > 0)
    if plan.recovering.regrow_at == "checkpoint" and plan.storage:
        step = (place.steps // plan.storage.every + 1) * plan.storage.every
    return Leaving(step, inf, "regrow", None)
