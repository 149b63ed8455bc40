"""One replication from its first step to its end."""

from __future__ import annotations

from .outcome import Outcome
from .plan import MOST_EVENTS, CampaignPlan
from .pool import Events
from .recovering import recovering
from .recovering_rules import close_whole
from .state import ReplicationState
from .stepping import stepping

LONG_WAIT = 0.1
"""Share of a run that it waits at its end, from which on it counts as stuck."""


def replicate(plan: CampaignPlan, number: int, *, log: bool = False) -> Outcome:
    """Run one replication. The same plan and number give the same outcome, whatever ran before."""
    state = ReplicationState(plan, number, log=log)
    state.start()
    state.job = state.env.process(_job(state))
    state.env.run(until=state.job)
    return _outcome(state)


def _job(state: ReplicationState) -> Events:
    while True:
        stop = yield from stepping(state)
        if stop.why in ("goal", "horizon", "events"):
            close_whole(state)
            done = stop.why
            break
        done = yield from recovering(state, stop)
        if done != "ok":
            break
    _end(state, done)
    state.mode = "done"


def _end(state: ReplicationState, done: str) -> None:
    """How it ended; where it got no further, since when and why."""
    out, plan = state.outcome, state.plan
    what, since = state.waits
    if done == "horizon" and plan.end_s < plan.horizon_s:
        done = "gave_up"
    out.ended = {"stuck": "no_progress"}.get(done, done)
    if what and (out.ended == "gave_up" or state.now - since > LONG_WAIT * state.now):
        out.stuck_s, out.stuck_why = since, f"waits for {what}"
    elif out.ended == "no_progress":
        out.stuck_s = state.progress_s
        out.stuck_why = f"{state.no_progress} restarts in a row without a new checkpoint"
    elif out.ended == "gave_up":
        out.stuck_s, out.stuck_why = state.now, "the work is not done after all that time"
    elif out.ended == "events":
        out.stuck_s, out.stuck_why = state.now, f"more than {MOST_EVENTS:,} events"


def _outcome(state: ReplicationState) -> Outcome:
    out = state.outcome
    out.wall_s = state.now
    out.seconds = state.ledger.seconds
    out.steps = out.seconds["useful"] / state.plan.step_s
    out.mean_repair, out.most_repair = state.pool.mean_out(), state.pool.most_out
    if state.log:
        out.repairs = state.pool.series
    out.excluded = state.pool.excluded
    gap = abs(state.ledger.total_s - state.now)
    assert gap <= 1e-9 * max(1.0, state.now), f"the ledger does not close: {gap} s of {state.now} s"
    return out
