"""Records of real faults: which host failed when, for how long, and why; and how they become faults of a job.

Knows the format that StepFun published (InfiniteHBD-Trace: a list of events in JSON, ``event_time`` in days).
Hosts that never failed are not in it: how many there were must be given. Does not know what faults cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ....hardware.files import TRACES, FileError, load_json, read_bytes
from ....hardware.quantities import DAY_S

_START, _END = "fault_start", "fault_end"
_LATEST_DAYS = 1e5
_KINDS = {"GPU": "gpu_fatal", "NIC": "nic_down", "Parameter Plane Cable": "nic_down"}
"""Kinds of faults by the class that the record has; all others take the host."""


@dataclass(frozen=True, kw_only=True)
class RecordedFault:
    """One fault of ``host`` (a number in order of first faults); ``repair_s`` None where it has no end."""

    host: int
    at_s: float
    repair_s: float | None
    level: str
    of: str
    what: str

    @property
    def kind(self) -> str:
        """What the simulator calls it."""
        return _KINDS.get(self.of, "node_down")


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """The faults of ``hosts`` hosts in the order of time; the record is ``length_s`` long."""

    file: str
    hosts: int
    length_s: float
    faults: tuple[RecordedFault, ...]

    def away_s(self, fault: RecordedFault) -> float:
        """Seconds until the fault's host is repaired, or until the record ends."""
        return self.length_s - fault.at_s if fault.repair_s is None else fault.repair_s


def read_fault_record(path: Path, hosts: int | None = None) -> FaultRecord:
    """The record in ``path``, of ``hosts`` hosts (None: those that failed).

    Raises:
        ValueError: naming file and event: the file is not such a record, times are out of order, a fault ends
            that never began, or more hosts failed than there are.
    """
    document = load_json(read_bytes(path), path, TRACES)
    if not isinstance(document, list) or not document:
        raise FileError(path, "no record of faults: expected a list of events, as StepFun publishes them")
    numbers: dict[str, int] = {}
    open_: dict[int, list[int]] = {}
    faults: list[dict[str, Any]] = []
    last = 0.0
    for index, one in enumerate(document):
        where = f"{path}: [{index}]"
        at, node, kind = _event(where, one)
        if at < last:
            raise ValueError(f"{where}: event_time: {at:g} d comes after {last:g} d; a record is in order")
        last = at
        host = numbers.setdefault(node, len(numbers))
        if kind == _START:
            open_.setdefault(host, []).append(len(faults))
            faults.append({"host": host, "at_s": at * DAY_S, "repair_s": None, **_described(where, one)})
        else:
            if not open_.get(host):
                raise ValueError(f"{where}: the end of a fault of {node[:60]!r} that has not begun")
            begun = faults[open_[host].pop(0)]
            begun["repair_s"] = at * DAY_S - begun["at_s"]
    if hosts is not None and hosts < len(numbers):
        raise ValueError(f"--hosts {hosts}: {len(numbers)} hosts failed in {path}")
    if not faults or not last:
        raise FileError(path, "no record of faults: nothing begins in it, or no time passes")
    return FaultRecord(
        file=str(path),
        hosts=hosts or len(numbers),
        length_s=last * DAY_S,
        faults=tuple(RecordedFault(**one) for one in faults),
    )


def _event(where: str, one: Any) -> tuple[float, str, str]:
    if not isinstance(one, dict):
        raise ValueError(f"{where}: expected an event")
    at, node, kind = one.get("event_time"), one.get("node_id"), one.get("event_type")
    if not isinstance(at, int | float) or not (math.isfinite(at) and 0 <= at <= _LATEST_DAYS):
        raise ValueError(
            f"{where}: event_time: expected days from 0 to {_LATEST_DAYS:g}, got {str(at)[:40]!r}"
        )
    if not isinstance(node, str) or not node:
        raise ValueError(f"{where}: node_id: expected the name of a host")
    if kind not in (_START, _END):
        raise ValueError(f"{where}: event_type: {str(kind)[:40]!r} is not known; known: {_START}, {_END}")
    return float(at), node, str(kind)


def _described(where: str, one: Mapping[str, Any]) -> dict[str, str]:
    said = one.get("fault_type") or {}
    if not isinstance(said, dict):
        raise ValueError(f"{where}: fault_type: expected an object")
    names = {"level": "Level", "of": "Class", "what": "Desc"}
    return {name: str(said.get(key, "unknown"))[:120] for name, key in names.items()}


def fault_lines(record: FaultRecord, hosts: int, seed: int) -> Sequence[str]:
    """The record as faults of a job on ``hosts`` of its hosts, which a ``seed`` chooses.

    Each is out for as long as its repair took; one without an end to the end of the record. Faults of the
    other hosts strike what the job does not use. ValueError for a job on more hosts than the record is of.
    """
    if hosts > record.hosts:
        raise ValueError(
            f"{record.file}: is of {record.hosts:,} hosts, and the job runs on {hosts:,}; take fewer GPUs "
            "(--set cluster.gpus=...), or say of how many hosts the record is (--hosts)"
        )
    places = Random(seed).sample(range(record.hosts), record.hosts)
    lines = []
    for fault in record.faults:
        place = places[fault.host]
        if place < hosts:
            away_s = record.away_s(fault)
            lines.append(f"{fault.kind} node/{place} at={fault.at_s:.3f}s duration={max(away_s, 1.0):.3f}s")
    return lines
