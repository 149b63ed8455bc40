"""Files of faults: CSV of ours, which the event log writes too, and the injector's format of Greyhound.

Knows both formats and who is to blame for a line that does not fit. Greyhound (arXiv:2410.12588, ATC'25;
class FailSlowInjector of its artifact): ``start;end;[ranks];delay`` delays these ranks by that many seconds
in every iteration; ``comm;start;end;[src,dst]`` floods the NICs of two ranks. Times are seconds since the
start.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from ....hardware.explain import lines
from ....hardware.files import FileError, read_text
from ....hardware.quantities import parse_quantity
from ...scenario.faults.faults import Event
from ...scenario.faults.kinds import get_kind

COLUMNS = ("time", "kind", "target", "duration", "magnitude")
FLOODED = 0.5
"""Share of a NIC that is left beside a flow that floods it: two flows share it evenly."""

_LIST = re.compile(r"\[\s*[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*\s*\]")


def read_trace(path: str | Path, step_s: float) -> tuple[Event, ...]:
    """The events of a file, in its order, which must be that of time.

    Raises:
        ValueError: a file that cannot be read; a line that does not fit, with its number; times out of order.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise ValueError(f"faults.events: trace: {error}") from None
    rows = _greyhound(text, str(path), step_s) if ";" in text.split("\n", 1)[0] else _csv(text, str(path))
    events: list[Event] = []
    last = -math.inf
    for where, fields in rows:
        try:
            event = Event.model_validate(fields)
        except ValidationError as failure:
            raise ValueError(lines(where, failure, Event)[0]) from None
        at = event.at or 0.0
        if at < last:
            raise ValueError(f"{where}: {at:g} s comes after {last:g} s; a trace is in the order of time")
        last = at
        events.append(event)
    if not events:
        raise ValueError(f"{path}: holds no faults")
    return tuple(events)


def _seconds(text: str, where: str, column: str) -> float:
    """A bare number is seconds, as the event log writes them."""
    try:
        value = float(text)
    except ValueError:
        try:
            return parse_quantity(text, "seconds")
        except ValueError as error:
            raise ValueError(f"{where}: {column}: {error}") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{where}: {column}: {text} must be finite and not negative")
    return value


def _csv(text: str, path: str) -> Iterator[tuple[str, dict[str, object]]]:
    reader = csv.DictReader(text.splitlines())
    try:
        yield from _rows(reader, path)
    except csv.Error as error:  # a field beyond csv's own limit
        raise ValueError(f"{path}:{reader.line_num}: not a table: {error}") from None


def _rows(reader: csv.DictReader[str], path: str) -> Iterator[tuple[str, dict[str, object]]]:
    header = tuple(reader.fieldnames or ())
    missing = [name for name in COLUMNS[:3] if name not in header]
    if missing:
        raise ValueError(f"{path}:1: no column {missing[0]}; a trace has {','.join(COLUMNS)}")
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if any(row[name] is None for name in COLUMNS[:3]):
            raise ValueError(f"{where}: too few columns")
        fields: dict[str, object] = {"at": _seconds(row["time"], where, "time"), "kind": row["kind"].strip()}
        if row["target"].strip():
            fields["target"] = row["target"].strip()
        if row.get("duration"):
            fields["duration"] = {"constant": _seconds(row["duration"], where, "duration")}
        if row.get("magnitude"):
            fields |= _magnitude(str(fields["kind"]), row["magnitude"], where)
        yield where, fields


def _magnitude(name: str, text: str, where: str) -> dict[str, object]:
    """The one number of a kind: its slow factor, or the share of bandwidth that is left."""
    try:
        kind = get_kind(name)
        value = float(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for key in ("slow_factor", "bandwidth_factor"):
        if key in kind.keys and (key == "slow_factor") == (value >= 1.0):
            return {key: value}
    for key in ("slow_factor", "bandwidth_factor"):
        if key in kind.keys:
            return {key: value}
    raise ValueError(f"{where}: {name} takes no magnitude")


def _greyhound(text: str, path: str, step_s: float) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(text.splitlines(), 1):
        where, parts = f"{path}:{number}", line.strip().split(";")
        if parts == [""]:
            continue
        comm = parts[0].strip() == "comm"
        if len(parts) != 4:
            raise ValueError(f"{where}: write start;end;[ranks];delay or comm;start;end;[src,dst]")
        start = _seconds(parts[1 if comm else 0], where, "start")
        end = _seconds(parts[2 if comm else 1], where, "end")
        if end < start:
            raise ValueError(f"{where}: ends at {end:g} s, before it starts at {start:g} s")
        ranks = parts[3 if comm else 2]
        if not _LIST.fullmatch(ranks.strip()):
            raise ValueError(f"{where}: {ranks!r} is not a list of ranks, such as [0,3]")
        common: dict[str, object] = {"at": start, "duration": {"constant": end - start}}
        for rank in ranks.strip("[] ").split(","):
            if comm:
                yield (
                    where,
                    {
                        **common,
                        "kind": "link_degraded",
                        "target": f"nic/{int(rank)}",
                        "bandwidth_factor": FLOODED,
                    },
                )
            else:
                factor = 1.0 + _seconds(parts[3], where, "delay") / step_s
                yield (
                    where,
                    {**common, "kind": "gpu_throttle", "target": f"rank/{int(rank)}", "slow_factor": factor},
                )
