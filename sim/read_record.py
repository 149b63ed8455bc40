"""The figures of a replayed step, whether its programs were lowered just now or read from a file.

Knows records and, where there is one, the scenario: tokens and FLOPs are counted from that, times
from the record alone. Memory and assumptions are added by whoever knows how the programs came about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .result.result import Result
from .result.step import AXES, PEERS, Assumption, PathSegment, RankClass

if TYPE_CHECKING:
    from .engine.accounting import RankTime
    from .engine.record import Record
    from .scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """What one step computes, and the peak that it is held against, as the mean of its GPUs; nan where nobody
    knows.
    """

    tokens_per_step: float = math.nan
    model_flops: float = math.nan
    model_flops_causal: float = math.nan
    hardware_flops: float = math.nan
    peak_flops_per_gpu: float = math.nan


PEAK_OF = {"fp32": "tf32", "mxfp8": "fp8", "nvfp4": "fp4"}
"""Precisions of which the catalogue lists the peak under another name."""


def step_counts(scenario: Scenario) -> StepCounts:
    """Tokens and FLOPs of a step of ``scenario``, all GPUs together."""
    from .lowering.sizes import model_flops
    from .scenario.machine import gpus_of_kinds

    model, training = scenario.model, scenario.training
    batch, length = training.global_batch, training.seq_length
    needed = model_flops(model, batch, length, attended=training.document_length)
    kinds = gpus_of_kinds(scenario.cluster)
    others = [len(one.hosts) * scenario.cluster.gpus_per_node for one in scenario.cluster.other_gpus or ()]
    counts = [scenario.cluster.gpus - sum(others), *others]
    listed = PEAK_OF.get(training.precision, training.precision)
    # Volta, CDNA 2 and CDNA 4 have no TF32: their FP32 GEMMs run at the FP32 rate.
    peaks = [gpu.peak_flops.get(listed) or gpu.peak_flops[training.precision] for gpu in kinds]
    return StepCounts(
        tokens_per_step=float(batch * length),
        model_flops=needed,
        model_flops_causal=model_flops(model, batch, length, attended=training.document_length, causal=True),
        hardware_flops=needed + _again(scenario),
        peak_flops_per_gpu=sum(count * peak for count, peak in zip(counts, peaks, strict=True)) / sum(counts),
    )


def _again(scenario: Scenario) -> float:
    """FLOPs of what runs again in the backward passes of a step."""
    from .lowering.layers.kinds import layer_kinds
    from .lowering.layers.recompute import kept_operators
    from .lowering.layers.stages import build_stages
    from .lowering.layers.weighted_rows import weights_rows
    from .lowering.recomputed_flops import recomputed_layer_flops

    model, training = scenario.model, scenario.training
    tokens = float(training.tokens_per_step)
    first = {kind: i for i, kind in reversed(tuple(enumerate(layer_kinds(model))))}
    return sum(
        run.count
        * recomputed_layer_flops(
            model,
            tokens,
            training.attended_length,
            model.num_layers - 1 if run.kind.prediction else first[run.kind],
            modules=run.recompute,
            keep=kept_operators(run.recompute, scenario.software.kernels.attention),
            prediction=run.kind.prediction,
            stops_early=scenario.software.kernels.recompute_stops_early,
            rows_read=weights_rows(scenario.software),
        )
        for stage in build_stages(scenario)
        for run in stage.runs
    )


def read_record(
    record: Record,
    *,
    scenario: Scenario | None,
    ranks: tuple[RankClass, ...],
    timing: Mapping[str, float],
    assumptions: tuple[Assumption, ...],
) -> Result:
    """The result of a replay; ``ranks`` says what each class stands for."""
    from .engine.accounting import Actions, iter_spans, rank_time
    from .engine.bounds import bounds

    work = step_counts(scenario) if scenario else StepCounts()
    stages = [one.pp for one in ranks]
    times = [rank_time(record, r, stages) for r in range(len(record.programs.classes))]
    counts = [one.count for one in ranks]
    share = [one.count / sum(counts) for one in ranks]
    busy_s = _mean(share, (t.busy_s for t in times))
    # A class without layers idles all along: over the others' mean busy time.
    over = [t.busy_s or busy_s for t in times]
    return Result(
        scenario=scenario,
        step_time_s=record.step_s,
        makespan_s=record.makespan_s,
        tokens_per_step=work.tokens_per_step,
        model_flops=work.model_flops,
        model_flops_causal=work.model_flops_causal,
        hardware_flops=work.hardware_flops,
        peak_flops_per_gpu=work.peak_flops_per_gpu,
        ranks=ranks,
        actions=Actions(record),
        bubble_per_stage=tuple(
            t.bubble_s / own if own else math.nan for t, own in zip(times, over, strict=True)
        ),
        bubble_fraction=_mean(share, (t.bubble_s for t in times)) / busy_s if busy_s else math.nan,
        exposed_communication_s={
            axis: _mean(share, (t.exposed.get(axis, 0.0) for t in times)) for axis in AXES
        },
        waiting_s={name: _mean(share, (t.late.get(name, 0.0) for t in times)) for name in PEERS},
        memory=(),
        critical_path=path_of(record),
        assumptions=assumptions,
        timing=timing,
        events=record.events,
        spans_source=partial(iter_spans, record),
        bounds=bounds(record, counts),
        stream_s=_stream_s(share, times),
    )


def _stream_s(share: Sequence[float], times: Sequence[RankTime]) -> dict[str, float]:
    """Seconds of the mean rank's compute stream by the kernels that it ran and by what it waited for."""
    found: dict[str, float] = {}
    for part, one in zip(share, times, strict=True):
        for name, seconds in (*one.parts.items(), *one.exposed.items(), *one.late.items()):
            found[name] = found.get(name, 0.0) + part * seconds
        found["bubble"] = found.get("bubble", 0.0) + part * one.bubble_s
    return found


def _mean(share: Iterable[float], values: Iterable[float]) -> float:
    """Over ranks: each class counts for its share of them."""
    return sum(part * value for part, value in zip(share, values, strict=True))


def path_of(record: Record, between: tuple[float, float] | None = None) -> tuple[PathSegment, ...]:
    """The critical path; its sum is the step time, also where the next step begins before this one ends.

    ``between`` two times of the step: what lies there.
    """
    from .engine.critical_path import critical_path

    path = [
        PathSegment(name=name, seconds=seconds) for name, seconds in critical_path(record, between).items()
    ]
    if record.programs.ends != "together" and between is None:
        path.append(PathSegment(name="shared with the next step", seconds=record.step_s - record.makespan_s))
    ended_s = max(record.last_s, default=0.0)
    if record.makespan_s > ended_s and between is None:
        path.append(PathSegment(name="waiting for other replicas", seconds=record.makespan_s - ended_s))
    return tuple(path)
