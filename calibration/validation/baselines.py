"""What a guess without a simulator would say: the two trivial baselines.

Both predict a step time from a constant MFU: the median of the other families' measured MFU, either
of all that ran on the same GPU type in the same precision, or of the same regime. The case's own
family never counts, so its outcome does not either. A family counts once, with its mean. Only
families with cases of the same trust are asked: rows of low trust would make both baselines worse
than they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median

from ...sim.lowering.sizes import model_flops
from ...sim.read_record import PEAK_OF
from ...sim.scenario.model.model import Model
from ..cases.case import Case
from ..cases.to_scenario import model_document
from .run import ValidatedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Step times that the constant MFUs give; None where no other family is there to ask."""

    gpu_and_precision_s: float | None = None
    regime_s: float | None = None


def baselines(rows: Sequence[ValidatedCase]) -> tuple[Baseline, ...]:
    """The baselines of every row, in their order."""
    ideals = [ideal_s(row.case) for row in rows]
    mfu = [
        ideal / row.case.measured.step_time_s if ideal and row.case.measured.step_time_s else None
        for row, ideal in zip(rows, ideals, strict=True)
    ]
    by_gpu = _leave_family_out(
        rows, mfu, lambda row: (row.case.trust, row.case.hardware.gpu, row.case.layout.precision)
    )
    by_regime = _leave_family_out(rows, mfu, lambda row: (row.case.trust, row.regime))
    return tuple(
        Baseline(gpu_and_precision_s=_step_s(ideal, one), regime_s=_step_s(ideal, other))
        for ideal, one, other in zip(ideals, by_gpu, by_regime, strict=True)
    )


def _leave_family_out(
    rows: Sequence[ValidatedCase], mfu: Sequence[float | None], group_of: Callable[[ValidatedCase], Hashable]
) -> list[float | None]:
    """For each row, the median over the other families of its group of their mean MFU."""
    grouped: dict[Hashable, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, value in zip(rows, mfu, strict=True):
        if value is not None:
            grouped[group_of(row)][row.case.family].append(value)
    means: dict[Hashable, Mapping[str, float]] = {
        group: {family: fmean(values) for family, values in families.items()}
        for group, families in grouped.items()
    }

    @cache
    def of_others(group: Hashable, family: str) -> float | None:
        others = [mean for name, mean in means.get(group, {}).items() if name != family]
        return median(others) if others else None

    return [of_others(group_of(row), row.case.family) for row in rows]


def ideal_s(case: Case) -> float | None:
    """Step time at an MFU of 1; None where the model or the GPU's peak is unknown."""
    from ...hardware.gpus import get_gpu

    try:
        model = Model.model_validate(model_document(case.model))
        peak_flops = get_gpu(case.hardware.gpu).peak_flops
        peak = peak_flops[PEAK_OF.get(case.layout.precision, case.layout.precision)]
        flops = model_flops(model, case.layout.global_batch, case.model.seq_length)
    except (ValueError, KeyError):
        return None
    return flops / (case.hardware.gpus * peak)


def _step_s(ideal_s: float | None, mfu: float | None) -> float | None:
    return None if ideal_s is None or mfu is None else ideal_s / mfu
