"""An explained step as tables and as one JSON document: which figures, in which order, written how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ...sim.figures import percent, seconds
from ..validation.grids import Grid
from .explained import Explained, Part
from .ranks import slowest
from .step_record import RankTrace

NONE = "-"
_LONGEST = 48


def grids(found: Explained) -> Iterator[Grid]:
    """The step by parts, its ops by kind, the worst ops, and the ranks where there are several."""
    yield _parts(found)
    yield _counts(found)
    if found.worst:
        yield _worst(found)
    if len(found.ranks) > 1:
        yield _ranks(found)


def sentences(found: Explained) -> Iterator[str]:
    """What people ask first, a line each."""
    ranks = len(found.traces)
    marked = all(one.marked for one in found.traces)
    of = "median step" if marked else "whole trace (no step is marked in it)"
    yield f"{of} of {ranks} rank{'s' if ranks > 1 else ''}: {seconds(found.step_s)}"
    if found.predicted_step_s is not None:
        change = found.step_s / found.predicted_step_s - 1
        way = "longer" if change >= 0 else "shorter"
        yield f"predicted: {seconds(found.predicted_step_s)}; measured is {percent(abs(change))} {way}"
    if found.machines is not None:
        traced, foretold = found.machines
        yield f"not the same machine: the trace is of {traced}, the scenario of {foretold}"
    of_what = "MFU" if found.model_flops else "MFU of the kernels with known shapes"
    if found.mfu is not None:
        yield f"{of_what}: {percent(found.mfu)}"
    elif found.of_peak is not None:
        why = "shapes, times or the GPU's name are wrong"
        yield f"{of_what}: none, since it would be {found.of_peak:,.1f} times the peak: {why}"
    if found.sent_s:
        yield (
            f"communication: {seconds(found.sent_s)}, {percent(found.overlap or 0.0)} of it beside kernels"
        )
    yield f"host-bound: {percent(found.part('host') / found.step_s)} of the step"
    if found.microbatches:
        yield f"microbatches: {found.microbatches}"
    if found.repeats:
        yield f"repeats itself: {found.repeats.times} times a row of {found.repeats.kernels} kernels"
    late = slowest(found.ranks)
    if late is not None:
        yield f"others wait longest for rank {late.rank}: {seconds(late.caused_s)} a step"


def document(found: Explained) -> dict[str, Any]:
    """Every figure as plain values."""
    return {
        "step_s": found.step_s,
        "predicted_step_s": found.predicted_step_s,
        "machines": found.machines,
        "parts": [_part_document(part) for part in found.parts],
        "ops": [
            {"kind": kind, "measured": measured, "predicted": predicted}
            for kind, (measured, predicted) in found.counts.items()
        ],
        "communication_s": found.sent_s,
        "overlap": found.overlap,
        "host_bound": found.part("host") / found.step_s,
        "mfu": found.mfu,
        "microbatches": found.microbatches,
        "repeats": None
        if found.repeats is None
        else {"kernels": found.repeats.kernels, "times": found.repeats.times},
        "worst": [asdict(one) | {"to_win_s": one.to_win_s} for one in found.worst],
        "ranks": [asdict(one) for one in found.ranks],
        "traces": [_trace_document(one) for one in found.traces],
    }


def _part_document(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "measured_s": part.measured_s,
        "predicted_s": part.predicted_s,
        "difference_s": None if part.predicted_s is None else part.difference_s,
    }


def _trace_document(one: RankTrace) -> dict[str, Any]:
    return {
        "file": one.file,
        "rank": one.rank,
        "world": one.world,
        "device": one.device,
        "gpu": one.gpu,
        "predicted": one.predicted,
        "steps": [{"name": step.name, "step_s": step.took_s} for step in one.steps],
        "lost": one.lost,
    }


def _parts(found: Explained) -> Grid:
    rows = []
    for part in found.parts:
        cells = [part.name, seconds(part.measured_s), percent(part.measured_s / found.step_s)]
        if found.predicted_step_s is not None:
            cells += [seconds(part.predicted_s or 0.0), _signed(part.difference_s)]
        rows.append(tuple(cells))
    total = ["step", seconds(found.step_s), percent(1.0)]
    columns = ["part", "measured", "share"]
    if found.predicted_step_s is not None:
        total += [seconds(found.predicted_step_s), _signed(found.step_s - found.predicted_step_s)]
        columns += ["predicted", "difference"]
    return Grid(title="Where the step goes", columns=tuple(columns), rows=(*rows, tuple(total)))


def _counts(found: Explained) -> Grid:
    rows = tuple(
        (kind, f"{measured:,.0f}", NONE if predicted is None else f"{predicted:,.0f}")
        for kind, (measured, predicted) in found.counts.items()
    )
    return Grid(title="Ops of a rank and step", columns=("kind", "measured", "predicted"), rows=rows)


def _worst(found: Explained) -> Grid:
    rows = tuple(
        (
            _short(one.name),
            _short(one.shape) or NONE,
            f"{one.count:,}",
            seconds(one.seconds),
            NONE if one.priced_s is None else seconds(one.priced_s),
            NONE if one.to_win_s is None else seconds(one.to_win_s),
        )
        for one in found.worst
    )
    columns = ("op", "shapes", "calls", "a step", "by its curve", "to win")
    return Grid(title="Longest ops of the first rank", columns=columns, rows=rows, labels=2)


def _ranks(found: Explained) -> Grid:
    rows = tuple(
        (
            str(one.rank),
            seconds(one.step_s),
            seconds(one.busy_s),
            seconds(one.waited_s),
            seconds(one.caused_s),
        )
        for one in found.ranks
    )
    columns = ("rank", "step", "computes", "waits for others", "others wait for it")
    return Grid(title="Ranks", columns=columns, rows=rows)


def _signed(value_s: float) -> str:
    return ("+" if value_s >= 0 else "-") + seconds(abs(value_s))


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
