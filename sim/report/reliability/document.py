"""Answers as one JSON object: the interface that programs read.

Keys are only ever added. ``replications``, ``ettr``, ``wall_s``, ``waterfall`` and ``failures`` are fixed.
Shares are fractions, times seconds; what nobody knows is null.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean
from typing import Any

from ...figures import finite
from ...reliability.answers import Answers, rests_on
from ...reliability.campaign.ledger import BADPUT
from ...reliability.study.money import Money
from ...reliability.study.optimum import Optimum
from ...reliability.study.statistics import Estimate, quantile
from ...reliability.study.variants import Worth


def answers_document(answers: Answers) -> dict[str, Any]:
    """Every figure of a study."""
    study, plan = answers.study, answers.study.plan
    walls = study.walls
    return {
        "scenario": answers.blocks.name,
        "replications": len(study.outcomes),
        "confidence": study.confidence,
        "ettr": estimate(study.ettr),
        "ettr_sliding_1h": {name: finite(value) for name, value in study.sliding.items()},
        "wall_s": {
            **estimate(study.wall),
            "p10": quantile(walls, 0.1),
            "p50": quantile(walls, 0.5),
            "p90": quantile(walls, 0.9),
        },
        "finish_s": _finish(answers),
        "ended": study.ended,
        "waterfall": study.waterfall,
        "waterfall_intervals": {name: estimate(study.share(name)) for name in study.waterfall},
        "badput": study.badput,
        "badput_of": dict(BADPUT),
        "failures": study.counts("failures"),
        "failures_intervals": {name: estimate(study.count(name)) for name in study.counts("failures")},
        "failures_by_source": study.counts("sources"),
        "interruptions": estimate(study.mean("interruptions")),
        "mtbf_s": finite(study.mtbf_s),
        "detection_s": _times(study.pooled("detect_s")),
        "recovery_s": _times(study.pooled("recover_s")),
        "lost_work_s": _times(study.pooled("lost_s")),
        "hosts_in_repair": {
            "mean": finite(fmean(one.mean_repair for one in study.outcomes)),
            "most": max(one.most_repair for one in study.outcomes),
            "excluded": fmean(one.excluded for one in study.outcomes),
            "waiting_share": study.waterfall["idle"],
        },
        "stuck": _stuck(answers),
        "gpus_held": study.gpus_held,
        "ettr_held": estimate(study.ettr_held) if study.ettr_held else None,
        "money": _money(answers.money),
        "goodput_tokens_per_s": finite(answers.tokens_per_s),
        "step_time_s": plan.step_s,
        "gpus": plan.machine.gpus,
        "checkpoints": [
            {
                "tier": tier.name,
                "every_steps": tier.every,
                "every_s": tier.every * plan.step_s,
                "stall_s": tier.stall_s,
                "durable_after_s": tier.lag_s,
                "load_s": tier.load_s,
                "slow_factor": tier.slow_factor,
                "on_overlap": tier.overlap or None,
            }
            for tier in plan.tiers
        ],
        "what_if": [_worth(one) for one in answers.worths],
        "optimal_interval": _optimum(answers.optimum),
        "assumptions": [{"text": text, "source": source} for text, source in rests_on(answers)],
    }


def _money(found: Money | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "currency": found.currency,
        "price_per_gpu_hour": found.price_per_gpu_hour,
        "source": found.source,
        "total": found.total,
        "parts": dict(found.parts),
        "per_useful_gpu_hour": found.per_useful_gpu_hour,
    }


def estimate(value: Estimate) -> dict[str, float | None]:
    """A mean with its interval, null of a single replication."""
    low, high = (value.low, value.high) if value.bounded else (None, None)
    return {"mean": finite(value.mean), "low": low, "high": high}


def _stuck(answers: Answers) -> dict[str, Any]:
    """Which share of replications got no further, since when (median), and why."""
    stuck = answers.study.stuck
    return {
        "share": len(stuck) / len(answers.study.outcomes),
        "since_s": finite(quantile([one.stuck_s for one in stuck], 0.5)),
        "why": dict(Counter(one.stuck_why for one in stuck).most_common()),
    }


def _times(values: list[float]) -> dict[str, float | None]:
    """The mean and the median may be far apart: both."""
    return {
        "mean": fmean(values) if values else None,
        "p50": finite(quantile(values, 0.5)),
        "p90": finite(quantile(values, 0.9)),
        "max": max(values, default=None),
    }


def _finish(answers: Answers) -> dict[str, float | None] | None:
    """When the work is done, of the replications that got there; null where only a horizon ends the run."""
    study = answers.study
    if study.plan.goal_steps == math.inf:
        return None
    done = study.finished
    found: dict[str, float | None] = {
        f"p{share}": finite(quantile(done, share / 100)) for share in (10, 50, 90)
    }
    return {**found, "share_finished": len(done) / len(study.outcomes)}


def _worth(one: Worth) -> dict[str, Any]:
    return {"name": one.name, "about": one.about, "ettr_gain": estimate(one.gain), "hours": one.hours}


def _optimum(found: Optimum | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "formula_s": found.formula_s,
        "simulated_s": found.simulated_s,
        "at_edge": found.at_edge,
        "mtbf_s": found.mtbf_s,
        "stall_s": found.stall_s,
        "points": [{"every_s": every_s, "ettr": estimate(value)} for every_s, value in found.points],
    }
