"""Cases that cannot be expressed, and those whose measurement is doubtful or contradicts a twin.

All of them are counted in every figure; this only says which they are. What was found by hand is in
doubtful.yaml. Twins are two runs of one source that differ in nothing but the ZeRO stage and the state of the
fabric; where one takes ``CONTRADICTS`` times as long as the other, no model of layout and hardware can be
right on both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ....hardware.catalogue import Table
from ....sim.figures import seconds
from ..grids import Grid
from ..run import ValidatedCase

CONTRADICTS = 1.5
"""Ratio of two measured twins above which they contradict one another: far above what repeated runs of
one configuration differ by (sim/evidence/run_noise.py)."""


@dataclass(frozen=True, kw_only=True)
class DoubtfulRun:
    """``why`` the run of case ``name`` is doubtful, or with ``begins`` all whose ids begin so."""

    name: str
    why: str
    begins: bool = False


DOUBTFUL: Table[DoubtfulRun] = Table("doubtful run", __package__, "doubtful.yaml", DoubtfulRun)
"""What was seen by hand, and has no twin to show it."""


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
    groups = [one for one in DOUBTFUL.records().values() if one.begins]
    for row in rows:
        for group in groups:
            if row.case.id.startswith(group.name) and row.case.trust != "low" and row.error is not None:
                yield row.case.id, row.case.trust, group.why
        one = DOUBTFUL.records().get(row.case.id)
        if one is not None and not one.begins:
            yield row.case.id, row.case.trust, one.why


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
