"""One replication from its first step to its end."""

from __future__ import annotations

from .outcome import Outcome
from .plan import Plan
from .pool import Events
from .recovering import recovering
from .recovering_rules import close_whole
from .state import State
from .stepping import stepping


def replicate(plan: Plan, number: int, *, log: bool = False) -> Outcome:
    """Run one replication. The same plan and number give the same outcome, whatever ran before."""
    state = State(plan, number, log=log)
    state.start()
    state.job = state.env.process(_job(state))
    state.env.run(until=state.job)
    return _outcome(state)


def _job(state: State) -> Events:
    while True:
        stop = yield from stepping(state)
        if stop.why in ("goal", "horizon"):
            close_whole(state)
            state.outcome.ended = stop.why
            break
        done = yield from recovering(state, stop)
        if done != "ok":
            state.outcome.ended = "no_progress" if done == "stuck" else done
            break
    state.mode = "done"


def _outcome(state: State) -> Outcome:
    out = state.outcome
    out.wall_s = state.now
    out.seconds = state.ledger.seconds
    out.steps = out.seconds["useful"] / state.plan.step_s
    out.mean_repair, out.most_repair = state.pool.mean_out(), state.pool.most_out
    if state.logging:
        out.repairs = state.pool.series
    out.excluded = state.pool.excluded
    gap = abs(state.ledger.total_s - state.now)
    assert gap <= 1e-9 * max(1.0, state.now), f"the ledger does not close: {gap} s of {state.now} s"
    return out
