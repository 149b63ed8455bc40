"""What measured steps say of steps that nobody measured: how far a run is from them, and what each difference
adds to the doubt.

Knows measured_steps.yaml, which ``stepsim calibrate residuals`` writes. It has families of runs with measured
steps of high trust, and the standard deviations by which predictions of runs unlike them were off, estimated
on runs whose own source was left out. Does not know what a step is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...hardware.deviations import Deviation
from ...hardware.files.shipped_yaml import load_shipped
from ...hardware.gpus import get_gpu, gpu_names, same_pace
from ..scenario.machine import gpu_as_sold
from .own_steps import SourceSpread, StepSample

if TYPE_CHECKING:
    from ...hardware.step_factors import OwnStep
    from ..lowering.plan import StepPlan
    from ..result.step import IntervalPart
    from ..scenario.models import Scenario

FILE = "measured_steps.yaml"

DIFFERENCES = ("software", "gpu", "precision", "sequence", "gpus")
"""In what a run may differ from a measured one. The last two count in doublings, and only upwards: a run
between measured ones, or smaller than these, needs no extrapolation that its kernels do not already show."""

EXPERTS = ("experts", "experts_across_domains")
"""Doubts about models with routed experts, whatever was measured: imbalance, permutation and grouped
GEMMs, and the exchange of tokens between NVLink domains."""

WAITS = "waits"
"""The doubt about communication that each doubling of the GPUs adds. A collective ends when its slowest rank
has come, and among more ranks the slowest comes later (Lin et al. 2025, Understanding Stragglers in Large
Model Training Using What-if Analysis, OSDI, arXiv:2505.05713). Steps with much communication among many GPUs
are slower than predicted, and not faster. interval_waits.py says which GPUs wait for one another."""

OTHERS = "others"
"""Stands for trainers whose code nobody read, where too few sources have one of their kind."""

POOLED = 10.0
"""Weight of the residual of all GPUs' steps beside that of one GPU's, in families. A GPU's own residual
weighs as much as it has families, since three say little. Of 3, 10, 30 and 100, 10 is the likeliest
(docs/decisions/0073-intervals-from-sources-left-out.md)."""

KINDS = ("kernels", "communication", "host", "clock", "beyond")
"""Causes whose standard deviations come from elsewhere (hardware/deviations.yaml) and are weighed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What kind of step it is. ``sequence`` in tokens; fp16 and bf16 are one precision, and GPUs that differ
    in links alone one GPU, since what a step takes beside its communication is the same."""

    software: str
    gpu: str
    precision: str
    sequence: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedExperts:
    """The share of the layers that route tokens to experts, and whether a group of experts spans NVLink
    domains."""

    share: float = 0.0
    across_domains: bool = False

    @property
    def amounts(self) -> tuple[float, float]:
        """The share of each of the differences EXPERTS that applies to this step, from 0 to 1."""
        return self.share, self.share * self.across_domains


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What is uncertain about one prediction, before measured steps weigh it: the ``causes``, with the errors
    that measurements of each showed; the kind of the step (``regime``); the part that routes tokens to
    ``experts``; and whether somebody ``read`` the trainer's code. ``sample`` has the share of each cause in
    the step time; ``awaited_doublings`` is log2 of the GPUs that communication waits for, as a mean over its
    time; ``own`` are the user's own measured steps. ``kernels`` is the cause that the GPU's kernels were not
    measured, which measured steps on that GPU resolve; None where they were."""

    causes: tuple[IntervalPart, ...]
    regime: Regime
    experts: RoutedExperts
    sample: StepSample
    awaited_doublings: float
    read: bool = True
    own: tuple[OwnStep, ...] = ()
    kernels: IntervalPart | None = None

    @property
    def kernels_sigma(self) -> float:
        """The standard deviation of GEMMs and attention of a GPU that nobody measured; else 0."""
        return self.kernels.sigma if self.kernels else 0.0

    @property
    def communication(self) -> float:
        """Share of the step that communicates, inside an NVLink domain or between domains."""
        return self.sample.shares.get("node", 0.0) + self.sample.shares.get("network", 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """``weights`` by kind of cause, ``terms`` by difference, of EXPERTS and WAITS, each a standard deviation
    of the logarithm with its source; ``unread`` how far reading a trainer's code moves a step, by the generic
    preset that it has until then, and OTHERS. From ``quantile_below`` to ``quantile`` times the sum of the
    whole standard deviation and NOISE (run_noise.py) lie nine in ten of the runs of sources that shaped no
    constant, and no more than one in twenty beyond either: more runs are slower than predicted than are
    faster. ``steps`` is what no curve knows of steps on any GPU, ``families_on`` how many families each GPU
    has measured. ``sources`` says how far one cluster is from others. ``left_out`` is the share of measured
    steps that intervals hold by residuals without their own source, by group."""

    quantile: float
    quantile_below: float
    weights: Mapping[str, float]
    terms: Mapping[str, Deviation]
    unread: Mapping[str, Deviation]
    steps: float
    families_on: Mapping[str, int]
    families: tuple[Regime, ...]
    sources: SourceSpread
    left_out: Mapping[str, float]

    def of_unread(self, preset: str) -> Deviation:
        """How far reading the code of a trainer moves its predicted step, by the generic ``preset`` that it
        has until then."""
        return self.unread.get(preset, self.unread[OTHERS])

    def pooled(self, sigma: float, gpu: str) -> float:
        """The residual of a GPU's steps, pooled with that of all GPUs: its own, ``sigma``, counts by its
        families, the other as POOLED of them."""
        own = self.families_on.get(gpu, 0)
        return math.sqrt((own * sigma**2 + POOLED * self.steps**2) / (own + POOLED))


@cache
def measured_steps() -> MeasuredSteps:
    """What measured steps say of intervals, from the file of the package (FILE)."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return steps_from_document(load_shipped(text))


def steps_from_document(document: Mapping[str, Any]) -> MeasuredSteps:
    """Measured steps read from a document as ``stepsim calibrate residuals`` writes it."""
    return MeasuredSteps(
        quantile=float(document["quantile"]),
        quantile_below=float(document["quantile_below"]),
        weights={kind: float(document["weights"][kind]) for kind in KINDS},
        terms={
            name: Deviation(
                sigma=float(document["terms"][name]["sigma"]), source=document["terms"][name]["source"]
            )
            for name in (*DIFFERENCES, *EXPERTS, WAITS)
        },
        unread={
            kin: Deviation(sigma=float(one["sigma"]), source=one["source"])
            for kin, one in document["unread"].items()
        },
        steps=float(document["steps"]),
        families_on={gpu: int(number) for gpu, number in document["families_on"].items()},
        families=tuple(Regime(**entry) for entry in document["families"]),
        sources=SourceSpread(**{name: float(value) for name, value in document["sources"].items()}),
        left_out={name: float(share) for name, share in document["left_out"].items()},
    )


def regime_of(scenario: Scenario) -> Regime:
    """The regime of a scenario's step."""
    return Regime(
        software=scenario.software.name,
        gpu=same_pace(gpu_as_sold(scenario.cluster).measured_as),
        precision=precision_class(scenario.training.precision),
        sequence=scenario.training.seq_length,
        gpus=scenario.cluster.gpus,
    )


def precision_class(precision: str) -> str:
    """The precision whose rate applies; FP16 runs at that of BF16."""
    return "bf16" if precision == "fp16" else precision


def experts_of_plan(plan: StepPlan) -> RoutedExperts:
    """The experts of a lowered step."""
    model = plan.scenario.model
    if model.moe is None:
        return RoutedExperts()
    share = sum(model.has_experts(layer) for layer in range(model.num_layers)) / model.num_layers
    return RoutedExperts(share=share, across_domains=plan.groups["ep"].domains > 1)


def differences(run: Regime, measured: Regime) -> tuple[float, ...]:
    """How far ``run`` is from ``measured``, in the order of DIFFERENCES.

    >>> one = Regime(software="a", gpu="H100", precision="bf16", sequence=8192, gpus=64)
    >>> two = Regime(software="a", gpu="H100", precision="fp8", sequence=32768, gpus=8)
    >>> differences(two, one)
    (0.0, 0.0, 1.0, 2.0, 0.0)
    """
    return (
        float(run.software != measured.software),
        float(run.gpu != measured.gpu),
        float(run.precision != measured.precision),
        max(0.0, math.log2(run.sequence / measured.sequence)),
        max(0.0, math.log2(run.gpus / measured.gpus)),
    )


@cache
def _architecture(gpu: str) -> str:
    """The architecture of a GPU of the catalogue; of another its name."""
    return get_gpu(gpu).architecture if gpu in gpu_names() else gpu


def nearest(
    run: Regime, families: Iterable[Regime], sigmas: Mapping[str, float]
) -> tuple[Regime, tuple[float, ...]]:
    """The measured run that leaves the least doubt about ``run``, and the differences to it; of equals one on
    a GPU of the same architecture."""
    own = _architecture(run.gpu)
    weights = [sigmas[name] for name in DIFFERENCES]

    def doubt(one: tuple[Regime, tuple[float, ...]]) -> tuple[float, bool, str]:
        variance = sum((weight * far) ** 2 for weight, far in zip(weights, one[1], strict=True))
        return variance, _architecture(one[0].gpu) != own, repr(one[0])  # never the order of the file

    return min(((family, differences(run, family)) for family in families), key=doubt)


def spanning(families: Iterable[Regime]) -> Iterator[Regime]:
    """Regimes that no other covers: same software, GPU and precision, as long a sequence, as many GPUs."""
    every = sorted(set(families), key=repr)
    for one in every:
        if not any(two != one and not any(differences(one, two)) for two in every):
            yield one


MUCH = 0.05
"""Share of the step below which kernels and collectives beyond their measured ranges move no interval."""


def beyond_share(doubt: Doubt) -> float:
    """Share of the step in kernels and communication outside their measured ranges, the largest of any
    cause."""
    return max((part.share for part in doubt.causes if part.kind == "beyond"), default=0.0)


def unlike(doubt: Doubt, families: Iterable[Regime]) -> float:
    """How many differences and doublings lie between a step and the most similar measured one."""
    return min(sum(differences(doubt.regime, one)) for one in families)


def is_outside(doubt: Doubt, families: Iterable[Regime]) -> bool:
    """Whether a prediction lies outside what was measured: every family of measured steps differs from it in
    something, or at least the share MUCH of its time is kernels or collectives beyond what was measured of
    them."""
    return beyond_share(doubt) >= MUCH or unlike(doubt, families) > 0
