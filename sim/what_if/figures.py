"""S, M_W and M_S of a job: how much stragglers cost it, and how much of that is a few workers or a stage.

Knows operations with their durations (operations.py); knows no files.

References:
    Lin et al. 2025, OSDI'25, arXiv:2505.05713: S, equation 1 (section 3); attribution to workers and to the
    last stage, sections 5.1 and 5.2. The usual duration of a kind is the mean of computation and the median
    of communication, over all ranks and steps; the worst workers are 3 % of all, by the smaller of what
    their replica and their stage alone would cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .operations import Operations

    Seconds = NDArray[np.float64]
    Mask = NDArray[np.bool_]

WORST_SHARE = 0.03
"""Share of all workers whose repair M_W is about (arXiv:2505.05713, section 5.1)."""


@dataclass(frozen=True, kw_only=True)
class StragglerFigures:
    """Means over steps, in seconds, and what follows.

    ``step_s`` is the replayed step, ``ideal_s`` that with usual durations alone. ``by_replica``, ``by_stage``
    and ``by_kind`` are the slowdowns with the durations of one of them as they were and all others as usual.
    ``worst`` are the (replica, stage) that ``without_worst_s`` has as usual, ``without_last_stage_s`` the
    last stage of every replica.
    """

    step_s: float
    ideal_s: float
    by_replica: tuple[float, ...]
    by_stage: Mapping[int, float]
    by_kind: Mapping[str, float]
    worst: tuple[tuple[int, int], ...]
    without_worst_s: float
    without_last_stage_s: float

    @property
    def slowdown(self) -> float:
        """S: the step over the ideal one."""
        return self.step_s / self.ideal_s

    @property
    def waste(self) -> float:
        """The share of GPU-hours that stragglers cost: 1 - 1/S."""
        return 1 - self.ideal_s / self.step_s

    @property
    def worst_workers_share(self) -> float | None:
        """M_W: the share of the slowdown that goes with the worst workers; None without any slowdown."""
        return self._share(self.without_worst_s)

    @property
    def last_stage_share(self) -> float | None:
        """M_S: the share that goes with the last stage; above 1 where its repair does more than all usual."""
        return self._share(self.without_last_stage_s)

    def _share(self, without_s: float) -> float | None:
        lost_s = self.step_s - self.ideal_s
        return (self.step_s - without_s) / lost_s if lost_s else None


def what_if(operations: Operations, own_s: Seconds) -> StragglerFigures:
    """The figures of a job from ``own_s[operation, replica, step]`` (operations.py says of which seconds).

    A row of an operation that some replicas or steps do not have is an error of whoever reads the log.

    Raises:
        ValueError: durations of another shape, negative ones, or ones that are no numbers.
    """
    operations.check(own_s)
    if not np.isfinite(own_s).all() or (own_s < 0).any():
        raise ValueError("durations: every one has to be a number of seconds, 0 or more")
    usual_s = usual(operations, own_s)
    stage = np.array([operation.stage for operation in operations.all])
    kind = np.array([operation.kind for operation in operations.all])

    def mean_s(keep: Mask) -> float:
        """The step with the durations of ``keep[operation, replica]`` as they were."""
        return float(operations.step_times_s(np.where(keep[:, :, None], own_s, usual_s)).mean())

    shape = own_s.shape[:2]
    ideal_s = mean_s(np.zeros(shape, dtype=bool))
    replicas, stages = range(shape[1]), np.unique(stage).tolist()
    by_replica = [mean_s(np.broadcast_to(np.arange(shape[1]) == r, shape)) / ideal_s for r in replicas]
    by_stage = {s: mean_s(np.broadcast_to((stage == s)[:, None], shape)) / ideal_s for s in stages}
    kinds = dict.fromkeys(kind.tolist())
    by_kind = {k: mean_s(np.broadcast_to((kind == k)[:, None], shape)) / ideal_s for k in kinds}
    worst = _worst(by_replica, by_stage)
    mended = np.zeros(shape, dtype=bool)
    for replica, at in worst:
        mended[stage == at, replica] = True
    return StragglerFigures(
        step_s=mean_s(np.ones(shape, dtype=bool)),
        ideal_s=ideal_s,
        by_replica=tuple(by_replica),
        by_stage=by_stage,
        by_kind=by_kind,
        worst=worst,
        without_worst_s=mean_s(~mended),
        without_last_stage_s=mean_s(np.broadcast_to((stage != max(stages))[:, None], shape)),
    )


def usual(operations: Operations, own_s: Seconds) -> Seconds:
    """The durations that all operations of a kind have without stragglers, in the shape of ``own_s``."""
    found = np.empty_like(own_s)
    numbers: dict[tuple[str, bool], list[int]] = {}
    for v, operation in enumerate(operations.all):
        numbers.setdefault((operation.kind, operation.communicates), []).append(v)
    for (_, communicates), rows in numbers.items():
        found[rows] = np.median(own_s[rows]) if communicates else own_s[rows].mean()
    return found


def _worst(by_replica: list[float], by_stage: Mapping[int, float]) -> tuple[tuple[int, int], ...]:
    """3 % of the workers, rounded up; of equal ones those of the first stages and replicas."""
    scores = {
        (replica, stage): min(of_replica, of_stage)
        for stage, of_stage in by_stage.items()
        for replica, of_replica in enumerate(by_replica)
    }
    count = math.ceil(WORST_SHARE * len(scores) - 1e-9)
    return tuple(sorted(scores, key=lambda worker: -scores[worker])[:count])
