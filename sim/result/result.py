"""One predicted step: the few figures that people ask for, and all of them as one JSON object.

Knows no clock and no scenario language; the tables, timelines and traces of ``sim/report`` read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from ..figures import chance
from .cost import StepCost, step_cost
from .document import (
    cost_document,
    interval_document,
    known,
    loss_scaling_document,
    memory_document,
    published_document,
    training_document,
)
from .energy import StepEnergy, activity_of, energy_document, step_energy
from .outlook import Outlook, outlook
from .step import (
    AXES,
    PEERS,
    ActionSpan,
    Assumption,
    Bound,
    Interval,
    PathSegment,
    RankClass,
    Span,
    StageMemory,
    fullest_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..scenario.models import Scenario
    from .gpu_kinds import GpuKinds
    from .loss_scaling import LossScaling
    from .neighbours import StepNeighbours
    from .step_bounds import StepBounds
    from .step_faults import StepFaults
    from .variation import StepVariation

SPAN_FIELDS = tuple(column.name for column in fields(Span))

CAUSAL_HEADLINE = 1.2
"""MFU with full over MFU with causal scores, above which people are shown the causal one first.

Full scores are then more than a third of all FLOPs that they count, half of which no kernel computes:
at a million tokens the full count passes 100 %. Below, the full count stays first: so are most
published figures of short sequences (torchtitan, torchtitan/models/utils.py: "we follow the convention
and do not account for sparsity in causal attention"; PaLM, arXiv:2204.02311 appendix B; nanotron).
Figures of long contexts count the causal half (FlashAttention-2, arXiv:2307.08691 section 4.1; NVIDIA's
tables of Megatron since 2025).
"""


SURE_TO_FIT = 0.9
"""The probability from which on a job is said to fit and no more. Of measured runs that were predicted to fit
with as much, one in a hundred ran out of memory (docs/accuracy.md)."""


def fit_words(probability: float | None) -> str:
    """Words for a job whose peak is predicted to fit: whether it is as sure to fit as a plan asks for.

    >>> fit_words(0.97), fit_words(0.899), fit_words(None)
    ('fits', 'fits with a probability of 0.89', 'fits')
    """
    if probability is None or probability >= SURE_TO_FIT:
        return "fits"
    return f"fits with a probability of {chance(probability)}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """One predicted step.

    ``step_time_s`` is the time from one step to the next, ``makespan_s`` until every rank has ended;
    they differ where ranks need not meet at the end of a step. ``mfu`` counts the full score matrix of
    attention, ``mfu_causal`` half of it; ``hfu`` counts recomputation too (full scores).
    ``bubble_per_stage`` and ``bubble_fraction`` are idle time waiting for other pipeline ranks over busy
    time (Narayanan 2021, section 2.2.1); zero without a pipeline. ``waiting_s`` is the time during which the
    compute stream waited for late ranks of its own pipeline stage (PEERS), averaged over ranks.
    ``exposed_communication_s`` is, by axis, the time during which the compute stream stood still
    for it, averaged over ranks. ``spans_source`` yields every Span; it is called lazily.

    A replayed program may come without a ``scenario``: what only that can tell (tokens, FLOPs and all
    that follows from them) is nan then. ``memory`` is empty where programs are replayed from a file,
    which say nothing of it; ``bubble_fraction`` is nan where no op belongs to a pipeline action.
    ``faults`` compares a step with faults to the healthy one. ``loss_scaling`` is what steps that overflow
    in FP16 cost, where the scenario asks for it.
    ``step_bounds`` are those of a step of which few replicas were replayed; None: all of it was.
    ``variation`` is what GPUs that differ cost, where the cluster has such; ``neighbours`` what jobs on one
    fabric cost one another, where there are others; ``gpu_kinds`` how stages on GPUs of
    different kinds would end together.
    ``stream_s`` is the mean rank's step by what its compute stream ran or awaited.
    ``interval`` is that of the step time; None where nothing says what the times of a program rest on.
    ``fit_probability`` is that the job has memory enough, by how far measured peaks were from predicted ones.
    """

    scenario: Scenario | None
    step_time_s: float
    makespan_s: float
    tokens_per_step: float
    model_flops: float
    model_flops_causal: float
    hardware_flops: float
    peak_flops_per_gpu: float
    ranks: tuple[RankClass, ...]
    actions: Sequence[ActionSpan]
    bubble_per_stage: tuple[float, ...]
    bubble_fraction: float
    exposed_communication_s: Mapping[str, float]
    memory: tuple[StageMemory, ...]
    critical_path: tuple[PathSegment, ...]
    assumptions: tuple[Assumption, ...]
    timing: Mapping[str, float]
    events: int
    spans_source: Any = field(repr=False)  # Callable[[], Iterator[Span]]
    interval: Interval | None = None
    fit_probability: float | None = None
    bounds: tuple[Bound, ...] = ()
    loads_source: Any = field(default=None, repr=False)  # Callable[[], Mapping[str, float]], by link
    waiting_s: Mapping[str, float] = field(default_factory=dict)
    faults: StepFaults | None = None
    loss_scaling: LossScaling | None = None
    step_bounds: StepBounds | None = None
    variation: StepVariation | None = None
    neighbours: StepNeighbours | None = None
    gpu_kinds: GpuKinds | None = None
    stream_s: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The figures that people ask for first, on one line; ``to_dict`` has all of them."""
        name = f"{self.scenario.name:.60}: " if self.scenario else ""
        figures = [f"step {self.step_time_s:.4g} s"]
        if self.scenario:
            figures.append(f"MFU {self.mfu:.1%}")
        if self.memory:
            verdict = fit_words(self.fit_probability) if self.fits else "does not fit"
            figures.append(f"peak memory {self.peak_memory_bytes / 1e9:.1f} GB, {verdict}")
        if self.faults:
            figures.append("with faults")
        return f"<Result {name}{', '.join(figures)}; {self.gpus:,} GPUs>"

    def _repr_html_(self) -> str:
        """The same figures as a table, for notebooks."""
        rows = {
            "step time": f"{self.step_time_s:.4g} s",
            "90 % interval": f"{self.interval.low_s:.4g} to {self.interval.high_s:.4g} s"
            if self.interval
            else "",
            "MFU": f"{self.mfu:.1%}" if self.scenario else "",
            "tokens/s per GPU": f"{self.tokens_per_second_per_gpu:,.0f}" if self.scenario else "",
            "pipeline bubble": f"{self.bubble_fraction:.1%}" if self.pipelined else "",
            "peak memory": f"{self.peak_memory_bytes / 1e9:.1f} GB" if self.memory else "",
            "fits": self._fits_cell if self.memory else "",
            "GPUs": f"{self.gpus:,}",
        }
        title = escape(self.scenario.name[:60]) if self.scenario else "replayed program"
        cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items() if value)
        return f"<table><caption>{title}</caption>{cells}</table>"

    @property
    def _fits_cell(self) -> str:
        sure = fit_words(self.fit_probability).removeprefix("fits ")
        return "no" if not self.fits else "yes" if sure == "fits" else sure

    def to_frame(self) -> pd.DataFrame:
        """One row of the figures of ``to_dict`` that are single numbers or words."""
        import pandas as pd

        plain = {
            name: value for name, value in self.to_dict().items() if isinstance(value, str | float | int)
        }
        return pd.DataFrame([plain])

    def to_dict(self) -> dict[str, Any]:
        """Every figure as plain Python values: the document that ``stepsim run --json`` prints.

        ``memory_bytes_per_stage`` is the peak by pipeline rank. A replayed program has None where only a
        scenario or a memory bill could tell.
        """
        from .gpu_kinds import gpu_kinds_document
        from .neighbours import neighbours_document
        from .step_bounds import bounds_document
        from .step_faults import step_faults_document
        from .variation import variation_document

        interval = self.interval
        return {
            "scenario": self.scenario.name if self.scenario else None,
            "step_time_s": float(self.step_time_s),
            **bounds_document(self.step_time_s, self.step_bounds),
            "step_time_interval_s": None if interval is None else [interval.low_s, interval.high_s],
            "makespan_s": float(self.makespan_s),
            "published": published_document(self.scenario, self.step_time_s),
            "tokens_per_step": known(self.tokens_per_step),
            "tokens_per_second_per_gpu": known(self.tokens_per_second_per_gpu),
            "mfu": known(self.mfu),
            "mfu_causal": known(self.mfu_causal),
            "headline_mfu": None if math.isnan(self.mfu) else self.headline_mfu,
            "hfu": known(self.hfu),
            "bubble_fraction": known(self.bubble_fraction),
            "bubble_per_stage": [known(share) for share in self.bubble_per_stage],
            "exposed_communication_s": {
                axis: float(self.exposed_communication_s.get(axis, 0.0)) for axis in AXES
            },
            "waiting_for_peers_s": {name: float(self.waiting_s.get(name, 0.0)) for name in PEERS},
            "bound_by": [{"axis": b.axis, "link": b.link, "seconds": float(b.seconds)} for b in self.bounds],
            "critical_path": [{"name": s.name, "seconds": float(s.seconds)} for s in self.critical_path],
            "fits": bool(self.fits) if self.memory else None,
            "fit_probability": self.fit_probability,
            "peak_memory_bytes": known(self.peak_memory_bytes),
            "memory_bytes_per_stage": [float(stage.peak_bytes) for stage in self.memory],
            "memory": [memory_document(stage) for stage in self.memory],
            "training": training_document(self.outlook),
            "cost": cost_document(self.cost),
            "energy": energy_document(self.energy),
            "ranks": int(self.gpus),
            "classes": len(self.ranks),
            "rank_classes": [
                {"name": r.name, "pp": int(r.pp), "count": int(r.count), "first_rank": int(r.first_rank)}
                for r in self.ranks
            ],
            "events": int(self.events),
            "timing": {name: float(taken_s) for name, taken_s in self.timing.items()},
            "interval": None if interval is None else interval_document(interval),
            "assumptions": [
                {"text": a.text, "source": a.source, "in_range": a.in_range, "note": a.note}
                for a in self.assumptions
            ],
            "faults": step_faults_document(self.faults) if self.faults else None,
            "variation": variation_document(self.variation),
            "gpu_kinds": gpu_kinds_document(self.gpu_kinds),
            "neighbours": neighbours_document(self.neighbours),
            "loss_scaling": loss_scaling_document(self.loss_scaling),
        }

    @property
    def gpus(self) -> int:
        return sum(ranks.count for ranks in self.ranks)

    @property
    def pipelined(self) -> bool:
        """Whether there are several pipeline stages, which alone can wait for one another."""
        return len({ranks.pp for ranks in self.ranks}) > 1

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_step / self.step_time_s / self.gpus

    @property
    def mfu(self) -> float:
        return self.model_flops / self.step_time_s / self.gpus / self.peak_flops_per_gpu

    @property
    def mfu_causal(self) -> float:
        return self.model_flops_causal / self.step_time_s / self.gpus / self.peak_flops_per_gpu

    @property
    def headline_mfu(self) -> Literal["mfu", "mfu_causal"]:
        """Which of both people should read first (CAUSAL_HEADLINE): never the full one beyond 100 %."""
        long = self.model_flops > CAUSAL_HEADLINE * self.model_flops_causal
        return "mfu_causal" if long or self.mfu > 1 else "mfu"

    @property
    def hfu(self) -> float:
        return self.hardware_flops / self.step_time_s / self.gpus / self.peak_flops_per_gpu

    @property
    def peak_memory_bytes(self) -> float:
        """Peak memory of the fullest pipeline rank; nan where the program does not say what is held."""
        return self.fullest.peak_bytes if self.memory else math.nan

    @property
    def fullest(self) -> StageMemory:
        """The pipeline rank that holds most of what its GPUs have. ValueError where ``memory`` is empty."""
        return fullest_of(self.memory)

    @property
    def fits(self) -> bool:
        """Whether no rank is known to run out of memory."""
        return all(stage.fits for stage in self.memory)

    @property
    def outlook(self) -> Outlook | None:
        """What the scenario's token budget takes at this pace; None where it names none."""
        return outlook(self.scenario, self.tokens_per_step, self.step_time_s, self.gpus)

    @property
    def cost(self) -> StepCost | None:
        """What a step costs in money; None where the scenario has no price of a GPU-hour."""
        return step_cost(self.scenario, self.tokens_per_step, self.step_time_s, self.gpus)

    @property
    def energy(self) -> StepEnergy | None:
        """What a step draws; None where no scenario says what machines and how many."""
        flops_per_gpu = self.hardware_flops / self.gpus if self.gpus else 0.0
        return step_energy(self.scenario, self.step_time_s, activity_of(self.stream_s), flops_per_gpu)

    def iter_spans(self) -> Iterator[Span]:
        """Every span of every rank class, in no particular order."""
        iterator: Iterator[Span] = self.spans_source()
        return iterator

    @property
    def spans(self) -> pd.DataFrame:
        """All spans as a table, one row each, columns named as the fields of Span."""
        import pandas as pd

        return pd.DataFrame(map(attrgetter(*SPAN_FIELDS), self.iter_spans()), columns=list(SPAN_FIELDS))
