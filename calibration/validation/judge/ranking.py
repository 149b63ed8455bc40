"""Whether layouts are ranked as they were measured: Spearman's rank correlation inside every sweep.

A sweep is one model in one precision on one number of GPUs of one kind, in one source, with at least
``FEWEST_LAYOUTS`` different layouts. What is ranked is the time for one sequence of the batch, since some
sweeps vary the batch too, and anyone tells long steps from short ones; step times are ranked beside it.

Two runs that measured within ``SAME`` of each other are no pair: which of them is faster is noise. A rank is,
but for a constant, the number of runs that are faster less that of slower ones; only pairs that count are
counted, in measured and predicted ranks alike, and Spearman's coefficient is the correlation of both.

Source: Kendall 1948, Rank Correlation Methods, section 2 (ranks as sums of signs over pairs).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ....sim.reliability.study.statistics import quantile
from ..run import ValidatedCase

FEWEST_ROWS = 10
"""Runs of a sweep from which on its rank correlation is counted."""
FEWEST_LAYOUTS = 3
"""Different layouts of a sweep from which on there is something to rank."""
SAME = 0.03
"""Share by which two measured times may differ and count as the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSweep:
    """Layouts of one model on one machine: the correlation of measured and predicted ranks.

    ``spearman`` is of the time for a sequence, ``of_steps`` of the step times. ``best_lost`` is how much
    longer than the fastest measured run the one that was predicted fastest takes.
    """

    name: str
    source: str
    rows: int
    spearman: float
    of_steps: float
    best_lost: float
    worst_pair: tuple[str, str]  # ids: the pair whose predicted order is most wrong


def sweeps(rows: Iterable[ValidatedCase], trusts: Sequence[str]) -> list[LayoutSweep]:
    """Every sweep of ``FEWEST_ROWS`` rows or more of these trusts, lowest correlation first."""
    groups: dict[tuple[object, ...], list[ValidatedCase]] = defaultdict(list)
    for row in rows:
        if row.error is not None and row.case.trust in trusts:
            hardware = row.case.hardware
            precision = row.case.layout.precision
            groups[row.source, row.case.model, precision, hardware.gpu, hardware.gpus].append(row)
    found = [_sweep(members) for members in groups.values() if _is_sweep(members)]
    return sorted((one for one in found if one is not None), key=lambda one: one.spearman)


def spearman_of_pairs(
    measured: Sequence[float], predicted: Sequence[float], same: float = SAME
) -> float | None:
    """Spearman's coefficient over pairs whose measured values differ by more than ``same``; None without any.

    >>> spearman_of_pairs([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    1.0
    >>> spearman_of_pairs([1.0, 1.01, 3.0], [2.0, 1.0, 3.0])
    1.0
    """
    first, second = [0] * len(measured), [0] * len(measured)
    for i, j in _pairs(measured, same):
        for scores, values in ((first, measured), (second, predicted)):
            sign = (values[i] > values[j]) - (values[i] < values[j])
            scores[i] += sign
            scores[j] -= sign
    left, right = sum(a * a for a in first), sum(b * b for b in second)
    both = sum(a * b for a, b in zip(first, second, strict=True))
    return both / math.sqrt(left * right) if left and right else None


def median_and_ninth_decile(found: Sequence[LayoutSweep]) -> tuple[float, float]:
    """Median of the correlations, and what nine in ten of them reach; nan without any."""
    values = sorted(one.spearman for one in found)
    return (median(values), quantile(values, 0.1)) if values else (math.nan, math.nan)


def _pairs(measured: Sequence[float], same: float) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i in range(len(measured))
        for j in range(i)
        if max(measured[i], measured[j]) > (1 + same) * min(measured[i], measured[j])
    ]


def _is_sweep(rows: Sequence[ValidatedCase]) -> bool:
    layouts = {repr(replace(row.case.layout, global_batch=1)) for row in rows}
    return len(rows) >= FEWEST_ROWS and len(layouts) >= FEWEST_LAYOUTS


def _sweep(rows: Sequence[ValidatedCase]) -> LayoutSweep | None:
    measured, predicted, batches = [], [], []
    for row in rows:
        batch = row.case.layout.global_batch
        batches.append(batch)
        assert row.case.measured.step_time_s is not None
        assert row.prediction.step_time_s is not None
        measured.append(row.case.measured.step_time_s / batch)
        predicted.append(row.prediction.step_time_s / batch)
    found = spearman_of_pairs(measured, predicted)
    steps = [[t * b for t, b in zip(times, batches, strict=True)] for times in (measured, predicted)]
    of_steps = spearman_of_pairs(steps[0], steps[1])
    if found is None or of_steps is None:
        return None

    def wrong(pair: tuple[int, int]) -> float:
        """How far the predicted ratio of two runs is from the measured one."""
        i, j = pair
        return abs(math.log(predicted[i] / predicted[j]) - math.log(measured[i] / measured[j]))

    i, j = max(_pairs(measured, SAME), key=wrong)
    hardware = rows[0].case.hardware
    chosen = measured[min(range(len(rows)), key=lambda k: predicted[k])]
    return LayoutSweep(
        name=f"{_model(rows)}, {hardware.gpus} {hardware.gpu}",
        source=rows[0].source,
        rows=len(rows),
        spearman=found,
        of_steps=of_steps,
        best_lost=chosen / min(measured) - 1,
        worst_pair=(rows[i].case.id, rows[j].case.id),
    )


def _model(rows: Sequence[ValidatedCase]) -> str:
    model = rows[0].case.model
    return f"{model.num_layers} layers of {model.hidden_size:,}, sequences of {model.seq_length:,}"
