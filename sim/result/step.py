"""What a simulated step is: its spans, and the few figures that people ask for.

Knows no clock and no scenario language; the tables, timelines and traces beside this file read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

    from ..network.nccl.buffers import CommunicatorBuffers
    from ..scenario.models import Scenario
    from .loss_scaling import LossScaling
    from .step_faults import StepFaults

AXES = ("tp", "cp", "ep", "pp", "dp")
"""Axes of parallelism, in the order in which tables show them."""

IN_LAYER = ("tp", "cp", "ep")
"""Those whose communication is part of a pipeline action, and so of its duration."""

PEERS = ("tp peers", "cp peers", "ep peers", "dp peers", "step end")
"""What a rank waits for that is no other pipeline stage: members of its groups that are late, and, when it
has done its part, ranks of its own stage that have not. Waiting for other stages is the pipeline bubble."""


@dataclass(frozen=True, slots=True)
class Span:
    """One op of one rank class: what ran, on which stream, from when to when.

    ``category`` is ``compute``, an axis of parallelism (``tp`` ... ``dp``), or ``optimizer``.
    ``action`` is the pipeline action that it belongs to (``2F0``), empty outside the pipeline.
    """

    rank: int  # index into Result.ranks
    stream: str
    name: str
    category: str
    action: str
    start_s: float
    end_s: float
    bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class ActionSpan:
    """One pipeline action of one rank class, first kernel to last."""

    rank: int
    kind: str  # F, B, I or W
    stage: int  # global virtual stage
    microbatch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class RankClass:
    """Ranks that do the same at the same time; one of them was replayed."""

    name: str  # "pp 3"
    pp: int
    count: int
    first_rank: int


MOVING = ("activations", "logits", "gradients", "gathered")
"""Terms of memory that come and go within a step, in the order of ``StageMemory.moving``."""


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Memory of the ranks of one pipeline rank.

    ``terms`` are bytes by name (weights, gradients, optimizer, activations, logits, ...) at the
    peak; their sum is ``peak_bytes``. ``peak_s`` is when, ``peak_action`` what was running then.
    ``static_bytes`` is what is held all through the step. ``timeline`` is (seconds, bytes) at
    every change of what comes and goes, ``moving`` the same by term (MOVING). ``parameters`` are those of
    the rank's stages, sharded or not; ``layers_in_flight`` the most layers times microbatches between
    their forward and their backward; ``communicators`` what the term ``communication`` is made of.
    """

    pp: int
    terms: Mapping[str, float]
    peak_bytes: float
    peak_s: float
    peak_action: str
    static_bytes: float
    capacity_bytes: float
    timeline: tuple[tuple[float, float], ...] = ()
    moving: tuple[tuple[float, tuple[float, ...]], ...] = ()
    parameters: float = 0.0
    layers_in_flight: int = 0
    communicators: tuple[CommunicatorBuffers, ...] = ()

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes

    @property
    def beside_bytes(self) -> float:
        """What the bill has beside the terms that are held and that come and go: what allocators add."""
        return self.peak_bytes - self.static_bytes - max((size for _, size in self.timeline), default=0.0)


@dataclass(frozen=True, kw_only=True)
class PathSegment:
    """A part of the critical path: ``seconds`` of the step that were spent on ``name``."""

    name: str  # "GEMM", "attention", "memory-bound kernels", "tp", "pp", "dp", "bubble", "host", ...
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Seconds of a step, averaged over ranks, in which ``link`` bound the communication of ``axis``."""

    axis: str
    link: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A fact that the prediction rests on. ``in_range`` is None where no range applies.

    A ``note`` is what the scenario says and what it does not do here, such as a field without effect.
    """

    text: str
    source: str
    in_range: bool | None = None
    note: bool = False


@dataclass(frozen=True, kw_only=True)
class IntervalPart:
    """One cause of uncertainty: ``sigma`` (of the logarithm) of the part of the step that ``share`` is.

    ``kind`` says what sort of cause; ``distance`` how far it lies outside what was measured, in doublings (1
    where there is nothing between measured and not), 0 inside.
    """

    name: str
    share: float
    sigma: float
    source: str
    kind: str = ""
    distance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Interval:
    """From ``low_s`` to ``high_s`` with probability ``level``; ``parts`` are independent of one another.

    ``quantile`` standard deviations of all parts together reach from the prediction to either end, in the
    logarithm.
    """

    level: float
    low_s: float
    high_s: float
    parts: tuple[IntervalPart, ...]
    quantile: float = 1.6449  # of a normal distribution


CAUSAL_HEADLINE = 1.2
"""MFU with full over MFU with causal scores, above which people are shown the causal one first.

Full scores are then more than a third of all FLOPs that they count, half of which no kernel computes:
at a million tokens the full count passes 100 %. Below, the full count stays first: so are most
published figures of short sequences (torchtitan, torchtitan/models/utils.py: "we follow the convention
and do not account for sparsity in causal attention"; PaLM, arXiv:2204.02311 appendix B; nanotron).
Figures of long contexts count the causal half (FlashAttention-2, arXiv:2307.08691 section 4.1; NVIDIA's
tables of Megatron since 2025).
"""


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
    ``interval`` is that of the step time; None where nothing says what the times of a program rest on.
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
    bounds: tuple[Bound, ...] = ()
    loads_source: Any = field(default=None, repr=False)  # Callable[[], Mapping[str, float]], by link
    waiting_s: Mapping[str, float] = field(default_factory=dict)
    faults: StepFaults | None = None
    loss_scaling: LossScaling | None = None

    def __repr__(self) -> str:
        """The figures that people ask for first, on one line; ``to_dict`` has all of them."""
        name = f"{self.scenario.name:.60}: " if self.scenario else ""
        figures = [f"step {self.step_time_s:.4g} s"]
        if self.scenario:
            figures.append(f"MFU {self.mfu:.1%}")
        if self.memory:
            verdict = "fits" if self.fits else "does not fit"
            figures.append(f"peak memory {self.peak_memory_bytes / 1e9:.1f} GB, {verdict}")
        if self.faults:
            figures.append("with faults")
        return f"<Result {name}{', '.join(figures)}; {self.gpus:,} GPUs>"

    def to_dict(self) -> dict[str, Any]:
        """Every figure as plain Python values: the document that ``stepsim run --json`` prints."""
        from .document import result_document

        return result_document(self)

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
        return max((stage.peak_bytes for stage in self.memory), default=math.nan)

    @property
    def fits(self) -> bool:
        """Whether no rank is known to run out of memory."""
        return all(stage.fits for stage in self.memory)

    def iter_spans(self) -> Iterator[Span]:
        """Every span of every rank class, in no particular order."""
        iterator: Iterator[Span] = self.spans_source()
        return iterator

    @property
    def spans(self) -> pd.DataFrame:
        """All spans as a table, one row each, columns named as the fields of Span."""
        import pandas as pd

        return pd.DataFrame(
            [
                (s.rank, s.stream, s.name, s.category, s.action, s.start_s, s.end_s, s.bytes, s.flops)
                for s in self.iter_spans()
            ],
            columns=["rank", "stream", "name", "category", "action", "start_s", "end_s", "bytes", "flops"],
        )
