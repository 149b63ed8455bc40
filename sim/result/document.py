"""A Result as one JSON object: the interface that programs read.

Keys are only ever added. Numbers are plain floats in SI units, shares are fractions, and the order
of keys and lists is the same every time. Knows no files.
"""

from __future__ import annotations

import math
from typing import Any

from .outlook import outlook
from .step import AXES, PEERS, Interval, Result, StageMemory
from .step_faults import step_faults_document


def result_document(result: Result) -> dict[str, Any]:
    """Every figure of the step; ``memory_bytes_per_stage`` is the peak by pipeline rank.

    A replayed program has None where only a scenario or a memory bill could tell.
    """
    interval = result.interval
    return {
        "scenario": result.scenario.name if result.scenario else None,
        "step_time_s": float(result.step_time_s),
        "step_time_interval_s": None if interval is None else [interval.low_s, interval.high_s],
        "makespan_s": float(result.makespan_s),
        "published": _published(result),
        "tokens_per_step": _known(result.tokens_per_step),
        "tokens_per_second_per_gpu": _known(result.tokens_per_second_per_gpu),
        "mfu": _known(result.mfu),
        "mfu_causal": _known(result.mfu_causal),
        "headline_mfu": None if math.isnan(result.mfu) else result.headline_mfu,
        "hfu": _known(result.hfu),
        "bubble_fraction": _known(result.bubble_fraction),
        "bubble_per_stage": [_known(share) for share in result.bubble_per_stage],
        "exposed_communication_s": {
            axis: float(result.exposed_communication_s.get(axis, 0.0)) for axis in AXES
        },
        "waiting_for_peers_s": {name: float(result.waiting_s.get(name, 0.0)) for name in PEERS},
        "bound_by": [{"axis": b.axis, "link": b.link, "seconds": float(b.seconds)} for b in result.bounds],
        "critical_path": [{"name": s.name, "seconds": float(s.seconds)} for s in result.critical_path],
        "fits": bool(result.fits) if result.memory else None,
        "peak_memory_bytes": _known(result.peak_memory_bytes),
        "memory_bytes_per_stage": [float(stage.peak_bytes) for stage in result.memory],
        "memory": [_memory(stage) for stage in result.memory],
        "training": _training(result),
        "ranks": int(result.gpus),
        "classes": len(result.ranks),
        "rank_classes": [
            {"name": r.name, "pp": int(r.pp), "count": int(r.count), "first_rank": int(r.first_rank)}
            for r in result.ranks
        ],
        "events": int(result.events),
        "timing": {name: float(taken_s) for name, taken_s in result.timing.items()},
        "interval": None if interval is None else _interval(interval),
        "assumptions": [
            {"text": a.text, "source": a.source, "in_range": a.in_range, "note": a.note}
            for a in result.assumptions
        ],
        "faults": step_faults_document(result.faults) if result.faults else None,
        "loss_scaling": _loss_scaling(result),
    }


def _interval(interval: Interval) -> dict[str, Any]:
    """What the interval is made of: each part's share of the step, its sigma, and where that is from."""
    return {
        "level": interval.level,
        "quantile": interval.quantile,
        "low_s": interval.low_s,
        "high_s": interval.high_s,
        "parts": [
            {
                "name": part.name,
                "share": part.share,
                "sigma": part.sigma,
                "source": part.source,
                "kind": part.kind,
                "distance": part.distance,
            }
            for part in interval.parts
        ],
    }


def _loss_scaling(result: Result) -> dict[str, Any] | None:
    found = result.loss_scaling
    if found is None:
        return None
    return {
        "skipped_share": found.skipped_share,
        "skipped_step_s": found.skipped_step_s,
        "effective_step_s": found.effective_step_s,
        "goodput": found.goodput,
        "first_skipped_steps": found.first_steps,
    }


def _known(figure: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(figure) else float(figure)


def _published(result: Result) -> dict[str, Any] | None:
    published = result.scenario.published if result.scenario else None
    if published is None:
        return None
    measured_s = published.step_time_s
    return {
        "step_time_s": None if measured_s is None else float(measured_s),
        "error": None if measured_s is None else float(result.step_time_s / measured_s - 1),
        "mfu": None if published.mfu is None else float(published.mfu),
        "source": published.source,
        "note": published.note,
    }


def _memory(stage: StageMemory) -> dict[str, Any]:
    return {
        "pp": int(stage.pp),
        "peak_bytes": float(stage.peak_bytes),
        "capacity_bytes": float(stage.capacity_bytes),
        "fits": bool(stage.fits),
        "peak_s": float(stage.peak_s),
        "peak_action": stage.peak_action,
        "static_bytes": float(stage.static_bytes),
        "terms": {name: float(size_bytes) for name, size_bytes in stage.terms.items()},
    }


def _training(result: Result) -> dict[str, Any] | None:
    ahead = outlook(result)
    if ahead is None:
        return None
    return {
        "tokens": ahead.tokens,
        "steps": ahead.steps,
        "days": ahead.days,
        "gpu_hours": ahead.gpu_hours,
        "price": ahead.price,
    }
