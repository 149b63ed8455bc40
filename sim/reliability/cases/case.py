"""One row of the page of published cases: what was expected, what the campaign gave, and the verdict. And how
cases are run."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from ....hardware.catalogue import Table
from ..planning.blocks import blocks_of
from ..planning.build_plan import build_plan
from ..study.statistics import Estimate
from ..study.study import Study, study

Verdict = Literal["ok", "missed", "explained", "not run"]
"""explained: it must not match, and the note says why. not run: what is missing stands in the note."""

JOBS: Table[dict[str, Any]] = Table("job of a case", __package__, "documents.yaml", dict)

MIN = 60.0


@dataclass(frozen=True, kw_only=True)
class CaseVerdict:
    """``number`` is that of the case in the reference, ``source`` the publication or derivation."""

    number: str
    title: str
    expected: str
    found: str
    tolerance: str
    verdict: Verdict
    source: str
    note: str = ""

    def document(self) -> dict[str, Any]:
        """The verdict as one JSON object, field by field."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def job(name: str) -> dict[str, Any]:
    """A fresh copy of a document of documents.yaml."""
    return deepcopy(JOBS.get(name))


def run_case(document: Mapping[str, Any], replications: int) -> Study:
    """Simulate a document."""
    from ...scenario.load import campaign_from_document

    blocks = blocks_of(campaign_from_document(document, str(document.get("name", "case"))))
    return study(build_plan(blocks), blocks.run, replications=replications)


def deviations(value: Estimate, expected: float) -> float:
    """Standard errors between a figure and what was expected."""
    if value.error:
        return (value.mean - expected) / value.error
    return 0.0 if abs(value.mean - expected) < 1e-9 else float("inf")


def renewal(
    *,
    m: float,
    c: float,
    d: float,
    r: float,
    tau: float,
    exposed: bool,
    segments: int,
    step: float = 10.0,
    persist: float | None = None,
    gaps: object = "exponential",
) -> dict[str, Any]:
    """The renewal model of the closed forms, times in minutes and ``step`` in seconds.

    One process of job crashes with mean ``m``, ``d`` to notice, ``r`` to restore, a checkpoint of ``c`` every
    ``tau``; with ``persist`` asynchronous, ``c`` its stall.
    """
    storage: dict[str, Any] = {"every": f"{tau!r} min", "load": "0 s"}
    if persist is None:
        storage |= {"mode": "blocking", "stall": f"{c!r} min"}
    else:
        storage |= {"mode": "async", "snapshot_stall": f"{c!r} min", "persist": f"{persist!r} min"}
    return {
        "name": "renewal",
        "step_time": f"{step!r} s",
        "faults": {
            "clock": "exposure",
            "restore_exposed": exposed,
            "processes": [{"kind": "software_crash", "scope": "job", "mtbf": f"{m!r} min", "dist": gaps}],
        },
        "detection": f"{d!r} min",
        "recovery": {"restart_cost": f"{r!r} min", "crash_loop": {"max_no_progress": 10000}},
        "checkpoint": {"storage": storage},
        "run": {"steps": segments * max(1, round(tau * MIN / step))},
    }


def verdict(good: bool) -> Verdict:
    """ok or missed."""
    return "ok" if good else "missed"
