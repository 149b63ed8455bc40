"""Documents of small campaigns for tests, and how to run them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from stepsim.sim.reliability.campaign.outcome import Outcome
from stepsim.sim.reliability.campaign.plan import CampaignPlan
from stepsim.sim.reliability.campaign.replicate import replicate
from stepsim.sim.reliability.planning.blocks import blocks_of
from stepsim.sim.reliability.planning.build_plan import build_plan
from stepsim.sim.scenario.faults.kinds import get_kind, kind_names
from stepsim.sim.scenario.load import campaign_from_document

HOUR = 3600.0
DAY = 86400.0


def document(**blocks: Any) -> dict[str, Any]:
    """64 hosts, steps of 10 s, a checkpoint every half hour, 10 days of work; ``blocks`` replace these."""
    whole: dict[str, Any] = {
        "name": "small",
        "step_time": "10 s",
        "cluster": {"gpus": 512, "gpus_per_node": 8},
        "checkpoint": {"storage": {"every": "30 min", "stall": "20 s", "load": "30 s", "keep": 100}},
        "run": {"work": "10 d"},
    }
    return {**whole, **blocks}


def plan_of(doc: dict[str, Any]) -> CampaignPlan:
    return build_plan(blocks_of(campaign_from_document(doc, "test")))


def outcome_of(doc: dict[str, Any], number: int = 0) -> Outcome:
    return replicate(plan_of(doc), number, log=True)


def crashes(mtbf: str = "6 h", **faults: Any) -> dict[str, Any]:
    """Software crashes of the job."""
    return {"processes": [{"kind": "software_crash", "scope": "job", "mtbf": mtbf}], **faults}


PER_UNIT = {
    "job": 8.0,
    "storage": 4.0,
    "rail": 1.0,
    "link": 0.05,
    "nic": 0.01,
    "gpu": 0.01,
    "rank": 0.01,
    "node": 0.08,
    "leaf": 0.5,
    "rack": 0.1,
    "power": 0.5,
    "spine": 0.5,
}


@st.composite
def processes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A few processes of any kind, each at a rate of some a day for the whole job."""
    found = []
    names = sorted(name for name in kind_names() if not get_kind(name).of_a_step)
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)):
        kind = get_kind(name)
        scope = draw(st.sampled_from(kind.scopes))
        one: dict[str, Any] = {"kind": name, "scope": scope, "rate_per_unit_day": PER_UNIT[scope]}
        one["dist"] = draw(
            st.sampled_from(["exponential", "constant", {"weibull": {"shape": 0.7}}, "uniform"])
        )
        if kind.effect == "slow":
            one["slow_factor"] = draw(st.sampled_from([1.0, 1.1, 2.0]))
            one["duration"] = draw(st.sampled_from(["1 h", {"exponential": {"mean": "2 h"}}]))
        if kind.effect in ("graceful", "pause", "storage"):
            one["duration"] = draw(st.sampled_from(["5 s", "10 min"]))
        found.append(one)
    return found


@st.composite
def campaigns(draw: st.DrawFn) -> dict[str, Any]:
    """Any policy, any checkpoints, any spares, either clock."""
    storage = draw(
        st.sampled_from(
            [
                {"every": "30 min", "stall": "20 s"},
                {"every": "50 steps", "mode": "async", "snapshot_stall": "1 s", "persist": "2 min"},
                {
                    "every": "5 min",
                    "mode": "async",
                    "snapshot_stall": "1 s",
                    "persist": "7 min",
                    "on_overlap": "queue",
                },
                {
                    "every": "5 min",
                    "mode": "async",
                    "snapshot_stall": "1 s",
                    "persist": "7 min",
                    "on_overlap": "skip",
                },
            ]
        )
    )
    checkpoint: dict[str, Any] = {"storage": {**storage, "load": "30 s", "keep": 1000}}
    if draw(st.booleans()):
        checkpoint["peer_memory"] = {"every": "3 steps", "stall": "0.04 s", "load": "5 s"}
    if draw(st.booleans()):
        checkpoint["local_disk"] = {"every": "20 steps", "stall": "1 s", "load": "5 s"}
    policies = ["restart", "in_process", "hot_spare", "elastic_dp", "per_step_ft"]
    policy = draw(st.sampled_from(policies))
    recovery: dict[str, Any] = {
        "policy": policy,
        "elastic": {
            "replicas": 8,
            "min_replicas": 0.5,
            "batch": draw(st.sampled_from(["keep_global", "keep_micro"])),
        },
        "p_bad_copy": draw(st.sampled_from([0.0, 0.3])),
        "crash_loop": {"probability": draw(st.sampled_from([0.0, 0.2])), "max_no_progress": 50},
        "repair": {"reboot": "10 min", "replace": "6 h", "exclude_after": draw(st.sampled_from([None, 2]))},
    }
    if policy != "per_step_ft":
        recovery["spares"] = draw(st.sampled_from([{}, {"warm": 1, "cold": 1}, {"warm": 4}]))
    if draw(st.booleans()):
        recovery["restart_cost"] = "8 min"
    detection = draw(
        st.sampled_from(
            [
                {},
                {"fixed": "2 min", "silent": "2 h"},
                {"straggler": {"threshold": 1.05, "action": "drain_at_checkpoint"}, "silent": "1 h"},
                {
                    "straggler": {"threshold": 1.05, "action": "evict"},
                    "watchdog": {"false_positive_per_ckpt": 0.05},
                },
            ]
        )
    )
    faults: dict[str, Any] = {
        "clock": draw(st.sampled_from(["exposure", "wall"])),
        "restore_exposed": draw(st.booleans()),
        "processes": draw(processes()),
        "seed": draw(st.integers(0, 50)),
    }
    if draw(st.booleans()):
        faults["heterogeneity"] = {"node_frailty": {"gamma_cv": 1.0}}
    run = draw(st.sampled_from([{"work": "2 d", "horizon": "8 d"}, {"horizon": "3 d"}]))
    return document(faults=faults, detection=detection, recovery=recovery, checkpoint=checkpoint, run=run)
