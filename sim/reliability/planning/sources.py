"""Processes, presets and events of a document as sources of faults and faults at known times."""

from __future__ import annotations

import math

from ...scenario.faults.faults import Event, Faults, Process
from ...scenario.faults.kinds import get_kind
from ...scenario.faults.presets import get_preset
from ..campaign.chance import Law, gap_law, law_of
from ..campaign.plan import Known
from ..campaign.sources import Source
from .blocks import CampaignBlocks
from .traces import read_trace


def _processes(faults: Faults) -> list[Process]:
    try:
        given = [process for name in faults.presets for process in get_preset(name)]
    except ValueError as error:
        raise ValueError(f"faults.presets: {error}") from None
    return [*given, *faults.processes]


def sources_of(blocks: CampaignBlocks) -> list[Source]:
    faults, machine = blocks.faults, blocks.machine
    taken: dict[str, int] = {}
    found = []
    for process in _processes(faults):
        kind = get_kind(process.kind)
        taken[process.title] = taken.get(process.title, 0) + 1
        number = taken[process.title]
        rate = process.rate_per_unit_s * faults.scale
        per_node = {
            "gpu": machine.gpus_per_node,
            "rank": machine.gpus_per_node,
            "node": 1,
            "nic": machine.nics_per_node,
        }
        slow, band = process.slow_factor, process.bandwidth_factor
        found.append(
            Source(
                name=process.title if number == 1 else f"{process.title} {number}",
                kind=kind.name,
                scope=process.unit,
                units=machine.units(process.unit),
                gap=_gap(process, rate),
                memoryless=process.dist.memoryless,
                keep_age=process.on_repair == "keep",
                prevalence=process.prevalence or 0.0,
                duration=law_of(process.duration) if process.duration else None,
                repair=law_of(process.repair) if process.repair else None,
                slow_factor=kind.keys.get("slow_factor") if slow is None else slow,
                bandwidth_factor=kind.keys.get("bandwidth_factor") if band is None else band,
                latency_add=process.latency_add or kind.keys.get("latency_add") or 0.0,
                notice=(process.notice if process.notice is not None else kind.keys.get("notice")) or 0.0,
                units_per_node=per_node.get(process.unit, 0),
            )
        )
    return found


def _gap(process: Process, rate_per_s: float) -> Law | None:
    """The law of one unit; none for a state, and never for a rate of zero."""
    if process.prevalence is not None:
        return None
    return gap_law(process.dist, 1 / rate_per_s) if rate_per_s else Law("exponential", math.inf)


def known_events(blocks: CampaignBlocks, step_s: float) -> list[Known]:
    counts = blocks.machine.counts
    events: list[Event] = []
    for event in blocks.faults.events:
        if event.trace is None:
            events.append(event)
            continue
        for traced in read_trace(event.trace, step_s):
            try:
                counts.check(traced.where)
            except ValueError as error:
                raise ValueError(f"{event.trace}: at {traced.at or 0.0:g} s: {error}") from None
            events.append(traced)
    return [_event(event, order) for order, event in enumerate(events)]


def _event(event: Event, order: int) -> Known:
    assert event.kind is not None
    kind = get_kind(event.kind)
    slow, band = event.slow_factor, event.bandwidth_factor
    return Known(
        kind=kind,
        target=event.where,
        at_s=event.at if event.at_step is None else None,
        at_step=event.at_step,
        duration=law_of(event.duration) if event.duration else None,
        slow_factor=kind.keys.get("slow_factor") if slow is None else slow,
        bandwidth_factor=kind.keys.get("bandwidth_factor") if band is None else band,
        latency_add=event.latency_add or kind.keys.get("latency_add") or 0.0,
        notice=(event.notice if event.notice is not None else kind.keys.get("notice")) or 0.0,
        order=order,
    )
