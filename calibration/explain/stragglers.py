"""What stragglers cost a logged job: the what-if figures of its log, and those of every worker by itself.

Knows logs and what-if replays; the tables of these figures are here, too. Does not know why a worker is slow.

Source: Lin et al. 2025, OSDI'25, arXiv:2505.05713 (S, S_t, S_w, M_W, M_S).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...sim.figures import percent, seconds
from ...sim.what_if.figures import StragglerFigures, usual, what_if
from ..readers.operation_log import OperationLog
from ..validation.grids import Grid
from .waiting_order import WaitingOrder, waiting_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slowdowns = NDArray[np.float64]

MOST_WORKERS = 4096
NOTABLE = 1.03
"""Slowdown from which the authors look for its causes."""


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """The figures of a log. ``measured_s`` is the mean step as it was, with launch delays that no replay has.

    ``by_worker[replica, stage]`` is the slowdown with that worker's durations as they were and all others as
    usual; ``ranks`` the global rank of each worker.
    """

    file: str
    steps: int
    measured_s: float
    figures: StragglerFigures
    by_worker: Slowdowns
    ranks: dict[tuple[int, int], int]

    @property
    def worst(self) -> tuple[int, int]:
        """(replica, stage) of the worker that costs most by itself."""
        replica, stage = np.unravel_index(int(np.argmax(self.by_worker)), self.by_worker.shape)
        return int(replica), int(stage)


def stragglers(log: OperationLog) -> Stragglers:
    """The figures of a log. ValueError as ``waiting_order``, or for more than 4,096 workers."""
    order = waiting_order(log)
    replicas = order.own_s.shape[1]
    stages = 1 + max(name[2] for name in order.names)
    if replicas * stages > MOST_WORKERS:
        raise ValueError(f"{log.file}: {replicas * stages:,} workers; at most {MOST_WORKERS:,} are compared")
    figures = what_if(order.operations, order.own_s)
    spans = [log.by_step(np.arange(len(log.kind)))]
    took = [_took(log, rows) for _, rows in spans[0]]
    return Stragglers(
        file=log.file,
        steps=len(order.steps),
        measured_s=float(np.mean(took)),
        figures=figures,
        by_worker=_by_worker(order, figures.ideal_s, (replicas, stages)),
        ranks=dict(order.ranks),
    )


def _took(log: OperationLog, rows: NDArray[np.int64]) -> float:
    return float((log.start_s[rows] + log.duration_s[rows]).max() - log.start_s[rows].min())


def _by_worker(order: WaitingOrder, ideal_s: float, shape: tuple[int, int]) -> Slowdowns:
    usual_s = usual(order.operations, order.own_s)
    stage_of = np.array([name[2] for name in order.names])
    found = np.empty(shape)
    for replica in range(shape[0]):
        for stage in range(shape[1]):
            own_s = usual_s.copy()
            own_s[stage_of == stage, replica] = order.own_s[stage_of == stage, replica]
            found[replica, stage] = order.operations.step_times_s(own_s).mean() / ideal_s
    return found


def document(found: Stragglers) -> dict[str, Any]:
    """Every figure as plain values."""
    figures = found.figures
    replica, stage = found.worst
    return {
        "file": found.file,
        "steps": found.steps,
        "measured_s": found.measured_s,
        "replayed_s": figures.step_s,
        "ideal_s": figures.ideal_s,
        "slowdown": figures.slowdown,
        "waste": figures.waste,
        "worst_workers_share": figures.worst_workers_share,
        "last_stage_share": figures.last_stage_share,
        "by_kind": dict(figures.by_kind),
        "by_stage": {str(stage): value for stage, value in figures.by_stage.items()},
        "by_replica": list(figures.by_replica),
        "by_worker": found.by_worker.tolist(),
        "worst_worker": {
            "replica": replica,
            "stage": stage,
            "rank": found.ranks.get((replica, stage)),
            "slowdown": float(found.by_worker[replica, stage]),
        },
    }


def sentences(found: Stragglers) -> Iterator[str]:
    """What people ask first, a line each."""
    figures = found.figures
    yield f"{found.steps} steps of {seconds(found.measured_s)}; replayed {seconds(figures.step_s)}"
    yield (
        f"without stragglers {seconds(figures.ideal_s)}: S = {figures.slowdown:.3f}, "
        f"{percent(figures.waste)} of the GPU-hours"
    )
    if figures.worst_workers_share is not None and figures.last_stage_share is not None:
        yield f"the worst 3 % of workers: M_W = {percent(figures.worst_workers_share)} of the slowdown"
        yield f"the last stage: M_S = {percent(figures.last_stage_share)} of it"
    replica, stage = found.worst
    if found.by_worker[replica, stage] >= NOTABLE:
        rank = found.ranks.get((replica, stage))
        yield f"slowest worker: rank {rank} (dp {replica}, stage {stage})"


def grids(found: Stragglers) -> Iterator[Grid]:
    """Slowdowns by kind of operation, stage and replica, the worst first."""
    figures = found.figures
    for title, values in (
        ("By operation (S_t)", figures.by_kind),
        ("By stage", {f"stage {stage}": value for stage, value in figures.by_stage.items()}),
        ("By replica", {f"dp {number}": value for number, value in enumerate(figures.by_replica)}),
    ):
        ordered = sorted(values.items(), key=lambda one: -one[1])[:10]
        rows = tuple((name, f"{value:.3f}") for name, value in ordered)
        yield Grid(title=title, columns=("as it was, all else as usual", "slowdown"), rows=rows)
