"""What a trace says of a step, and beside it what was predicted: the figures, without words or pictures.

Knows that parts of both sum up to their steps, so that the differences of the parts sum up to that of the
steps. Does not know how a step is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...hardware.gpus import get_gpu, gpu_names
from ...sim.lowering.process_groups import ProcessGroups
from ...sim.result.result import Result
from .axes import GroupAxes, with_axes
from .breakdown import Breakdown, breakdown
from .from_result import traces_of
from .ranks import RankShare, first_of_each, same_step, shares, with_late_peers
from .repeats import RepeatedKernels, microbatches_of, repeats_of
from .step_record import RankStep, RankTrace
from .worst_ops import WorstOp, worst_ops

KERNELS = ("compute", "GEMM", "attention", "pointwise", "other")
"""Parts that one part named ``kernels`` stands for where a trace does not tell them apart."""
TOGETHER = "kernels"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Seconds of one part of the step, averaged over ranks; ``predicted_s`` None without a scenario."""

    name: str
    measured_s: float
    predicted_s: float | None

    @property
    def difference_s(self) -> float:
        """Measured beyond predicted."""
        return self.measured_s - (self.predicted_s or 0.0)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The median step, averaged over the traced ranks. ``parts`` sum up to ``step_s``, their predictions to
    ``predicted_step_s``. ``machines`` are the GPUs of the traces and of the scenario, where they
    differ.

    ``flops`` are those of the kernels whose shapes a curve knows, a rank and step; ``model_flops`` those of
    the scenario's model. ``counts`` are (measured, predicted) numbers of ops by kind. ``overlap`` is the
    share of communication beside kernels, None without any.
    """

    traces: tuple[RankTrace, ...]
    step_s: float
    predicted_step_s: float | None
    machines: tuple[str, str] | None
    parts: tuple[Part, ...]
    counts: Mapping[str, tuple[float, float | None]]
    sent_s: float
    hidden_s: float
    flops: float
    model_flops: float | None
    peak_flops_per_s: float | None
    worst: tuple[WorstOp, ...]
    ranks: tuple[RankShare, ...]
    repeats: RepeatedKernels | None
    microbatches: int | None

    @property
    def overlap(self) -> float | None:
        return self.hidden_s / self.sent_s if self.sent_s else None

    @property
    def of_peak(self) -> float | None:
        """Share of the GPU's peak that the scenario's model asks for in a step; without one, what the kernels
        with known shapes ask for. Above 1 where shapes, times or the GPU's name are wrong.
        """
        flops = self.model_flops or self.flops or None
        if flops is None or not self.peak_flops_per_s or not self.step_s:
            return None
        return flops / self.step_s / self.peak_flops_per_s

    @property
    def mfu(self) -> float | None:
        """``of_peak`` where it can be; a GPU does not exceed its peak."""
        return self.of_peak if self.of_peak is None or self.of_peak <= 1 else None

    def part(self, name: str) -> float:
        """Measured seconds of one part."""
        return next((part.measured_s for part in self.parts if part.name == name), 0.0)


def explained(
    traces: Sequence[RankTrace], result: Result | None = None, groups: ProcessGroups | None = None
) -> Explained:
    """The figures of traces of one job, beside the ``result`` of its scenario with its ``groups``.

    Raises ValueError where two traces are of one rank, or a rank is none of the scenario's.
    """
    by_rank = first_of_each(traces)
    axes = GroupAxes(groups=groups)
    steps = same_step(dict(sorted(by_rank.items())))
    steps = {rank: replace(step, ops=with_axes(step.ops, rank, axes)) for rank, step in steps.items()}
    steps, waits = with_late_peers(steps)
    measured = {rank: breakdown(step) for rank, step in steps.items()}
    predicted = {} if result is None else _predicted(result, tuple(by_rank), groups)
    first = next(iter(steps))
    gpu = next((one.gpu for one in by_rank.values() if one.gpu), None)
    ops = steps[first].ops
    return Explained(
        traces=tuple(by_rank[rank] for rank in steps),
        step_s=_mean([one.took_s for one in measured.values()]),
        predicted_step_s=None if result is None else result.step_time_s,
        machines=None
        if result is None
        else _machines(result, gpu, max(one.world for one in by_rank.values())),
        parts=_parts(list(measured.values()), [predicted[rank] for rank in steps] if result else []),
        counts=_counts(list(measured.values()), [predicted[rank] for rank in steps] if result else []),
        sent_s=_mean([one.sent_s for one in measured.values()]),
        hidden_s=_mean([one.hidden_s for one in measured.values()]),
        flops=_flops(steps[first]),
        model_flops=None if result is None else result.model_flops / result.gpus,
        peak_flops_per_s=_peak(result, gpu),
        worst=worst_ops(ops, gpu),
        ranks=shares(steps, waits),
        repeats=repeats_of(steps[first]),
        microbatches=microbatches_of(steps[first]),
    )


def _machines(result: Result, gpu: str | None, world: int) -> tuple[str, str] | None:
    """What was traced and what is predicted, as ``8 x A100-SXM4-80GB``; None where they are the same.

    A trace of one rank of one may lack what the profiler says of the job, and a GPU may have no name here.
    """
    own = result.scenario.cluster.gpu_name if result.scenario else None
    traced, predicted = gpu or own, own or gpu
    ranks = result.gpus if world == 1 else world
    if (traced, ranks) == (predicted, result.gpus):
        return None
    return f"{ranks:,} x {traced}", f"{result.gpus:,} x {predicted}"


def _predicted(result: Result, ranks: Sequence[int], groups: ProcessGroups | None) -> dict[int, Breakdown]:
    """The predicted parts of each traced rank: those of its own class, or of the class of its pipeline
    rank."""
    classes = traces_of(result)
    parts = [breakdown(one.steps[0]) for one in classes]
    found = {}
    for rank in ranks:
        if rank >= result.gpus:
            raise ValueError(f"rank {rank} is traced, and the scenario has {result.gpus:,} ranks")
        own = next((n for n, one in enumerate(result.ranks) if one.first_rank == rank), None)
        if own is None:
            stage = 0 if groups is None else int(groups.pipeline_rank[rank])
            own = next((n for n, one in enumerate(result.ranks) if one.pp == stage), 0)
        found[rank] = parts[own]
    return found


def _parts(measured: Sequence[Breakdown], predicted: Sequence[Breakdown]) -> tuple[Part, ...]:
    """The parts in the order of the first that has them; kernels as one where the trace does not tell."""
    together = any("compute" in one.parts for one in measured)
    told = [_joined(one.parts) if together else one.parts for one in measured]
    foretold = [_joined(one.parts) if together else one.parts for one in predicted]
    names = dict.fromkeys(name for parts in (*told, *foretold) for name in parts)
    return tuple(
        Part(
            name=name,
            measured_s=_mean([parts.get(name, 0.0) for parts in told]),
            predicted_s=_mean([parts.get(name, 0.0) for parts in foretold]) if foretold else None,
        )
        for name in names
    )


def _joined(parts: Mapping[str, float]) -> dict[str, float]:
    whole = {name: seconds for name, seconds in parts.items() if name not in KERNELS}
    return {TOGETHER: sum(parts.get(name, 0.0) for name in KERNELS)} | whole


def _counts(
    measured: Sequence[Breakdown], predicted: Sequence[Breakdown]
) -> dict[str, tuple[float, float | None]]:
    kinds = [kind for kind in measured[0].counts if any(one.counts[kind] for one in (*measured, *predicted))]
    return {
        kind: (
            _mean([one.counts[kind] for one in measured]),
            _mean([one.counts[kind] for one in predicted]) if predicted else None,
        )
        for kind in kinds
    }


def _flops(step: RankStep) -> float:
    """FLOPs of the operators whose shapes say how many they do, each call once."""
    seen: set[int] = set()
    total = 0.0
    for op in step.ops:
        if op.priced is not None and op.call is not None and op.call not in seen:
            seen.add(op.call)
            total += op.priced.flops
    return total


def _peak(result: Result | None, gpu: str | None) -> float | None:
    if result is not None:
        return result.peak_flops_per_gpu
    if gpu is None or gpu not in gpu_names():
        return None
    return get_gpu(gpu).peak_flops.get("bf16")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
