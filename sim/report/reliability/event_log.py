"""The event log of the first replication as CSV. Its first columns are a trace: ``faults.events: [{trace:
FILE}]``.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from ....hardware.files import written
from ...reliability.campaign.outcome import Outcome
from ...reliability.planning.traces import COLUMNS

MORE = ("source", "effect", "detected", "resumed", "lost", "restored_step", "tier", "note")


def write_events(outcome: Outcome, path: Path) -> None:
    """Every fault in the order of time, in seconds; empty where it does not apply."""
    with written(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, *MORE))
        for one in sorted(outcome.log, key=lambda entry: entry.at_s):
            writer.writerow(
                (
                    repr(one.at_s),
                    one.kind,
                    one.target,
                    _number(one.duration_s),
                    _number(one.magnitude),
                    one.source,
                    one.effect,
                    _number(one.detected_s),
                    _number(one.resumed_s),
                    _number(one.lost_s),
                    one.restored_step if one.restored_step >= 0 else "",
                    one.tier,
                    one.note,
                )
            )


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
