"""Cases that cannot be expressed, and those whose measurement contradicts itself or a twin: id and reason.

All of them are counted in every figure; this only says which they are. Twins are two runs of one source
that differ in nothing but the ZeRO stage and the state of the fabric; where one takes ``CONTRADICTS`` times
as long as the other, no model of layout and hardware can be right on both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ....sim.figures import seconds
from ..grids import Grid
from ..run import ValidatedCase

CONTRADICTS = 1.5

KNOWN = {
    "hf-3.57G-dp64-tp4-pp1-acc64-mbs1-z0": "one timed iteration; three times its like of other batches",
    "hf-1.34G-dp2-tp2-pp2-acc64-mbs2-z1": "one timed iteration; 1.6 times its like of other batches",
    "aa-llama65B-seq2048-64g-tp8-pp8-mbs4-noac-fa2+rms-sp0": "a quarter faster than with half the "
    "microbatch, in memory that does not hold it; with sequence parallelism both would be as predicted",
}
"""What was seen by hand and has no twin to show it."""

OUT_OF_MEMORY = (
    "hf-1.34G-dp8-tp4-pp2-acc1-mbs32-z0", "hf-3.57G-dp2-tp1-pp16-acc32-mbs4-z1",
    "hf-3.57G-dp2-tp4-pp8-acc8-mbs16-z1", "hf-3.57G-dp4-tp2-pp4-acc8-mbs8-z1",
    "hf-80G-dp2-tp4-pp8-acc128-mbs1-z1", "hf-8.86G-dp2-tp4-pp8-acc16-mbs8-z1",
    "hf-8.86G-dp4-tp1-pp2-acc64-mbs1-z1", "hf-8.86G-dp4-tp4-pp2-acc8-mbs8-z1",
    "hf-8.86G-dp8-tp1-pp4-acc16-mbs2-z1",
)  # fmt: skip
"""They count as having run, and their logs also report an out-of-memory error (notes of the cases)."""

SWEEPS = {
    "aa-llama30B-seq2048-256g-tp1-pp2-": "all rows of tp 1 and pp 2 on 32 hosts miss 6 to 9 s a step "
    "whatever their kernels; the same model and software on 8 and 16 hosts miss none of it",
}
"""Beginnings of ids that name a group of rows."""


def doubtful_grid(rows: Sequence[ValidatedCase]) -> Grid:
    """Rows of any trust but low; refused ones of any trust."""
    shown = [*_refused(rows), *_by_hand(rows), *_twins(rows)]
    return Grid(
        title="Cases that cannot be expressed, or that contradict another",
        columns=("id", "trust", "why"),
        rows=tuple(dict.fromkeys(shown)),
        labels=3,
    )


def _refused(rows: Sequence[ValidatedCase]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        if row.prediction.refused is not None:
            yield row.case.id, row.case.trust, f"refused: {_short(row.prediction.refused)}"


def _short(reason: str) -> str:
    return reason.split("; known:")[0]


def _by_hand(rows: Sequence[ValidatedCase]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        for start, reason in SWEEPS.items():
            if row.case.id.startswith(start) and row.case.trust != "low" and row.error is not None:
                yield row.case.id, row.case.trust, reason
        if row.case.id in OUT_OF_MEMORY:
            yield row.case.id, row.case.trust, "ran, and its log also reports an out-of-memory error"
        if row.case.id in KNOWN:
            yield row.case.id, row.case.trust, KNOWN[row.case.id]


def _twins(rows: Sequence[ValidatedCase]) -> Iterator[tuple[str, str, str]]:
    groups: dict[str, list[ValidatedCase]] = defaultdict(list)
    for row in rows:
        if row.case.trust != "low" and row.case.measured.step_time_s is not None:
            groups[_but_stage(row)].append(row)
    for members in groups.values():
        fastest = min(members, key=_measured_s)
        for row in members:
            ratio = _measured_s(row) / _measured_s(fastest)
            if ratio > CONTRADICTS:
                twin = f"{fastest.case.id} ({seconds(_measured_s(fastest))})"
                yield row.case.id, row.case.trust, f"{ratio:.1f} times as long as its twin {twin}"


def _measured_s(row: ValidatedCase) -> float:
    assert row.case.measured.step_time_s is not None
    return row.case.measured.step_time_s


def _but_stage(row: ValidatedCase) -> str:
    """A key that is equal for cases which differ in nothing but the ZeRO stage."""
    case = row.case
    layout = asdict(case.layout) | {"zero": None}
    return repr((row.source, case.hardware, case.model, layout, case.software))
