"""The fields of a profile file, shipped or a user's own: what may stand in it, its unit, its bounds.

Knows every field and its physics (no efficiency above 1, every time and rate with its unit), and which
curves of ``hardware/profile.py`` they state. Which GPU the profile will be used for is in ``overlay``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..collective_curve import CollectiveCurve
from ..collective_kinds import KINDS
from ..fields import NO_BOOL, Flag, number, whole
from ..limits import MOST_GPUS
from ..profile import AttentionCurve, GemmShape, Harness, Tile, TimedKernel
from ..provenance import Provenance
from ..quantities import Dimension, parse_quantity
from ..step_factors import CAUSES, OwnStep, StepFactors, StepKind
from .values import (
    PLAIN,
    Blend,
    Bytes,
    Correction,
    Count,
    Ends,
    Factor,
    Intervals,
    Part,
    Rate,
    Residual,
    Seconds,
    Share,
    Size,
    StepTime,
    Tail,
    kind_of,
)

FORMAT = 1
CPU = "cpu"
"""In place of a GPU: collectives between processes without one, as gloo runs them."""

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "mxfp8", "fp4", "nvfp4")
IMPLEMENTATIONS = ("fa1", "fa2", "fa3", "cudnn", "aiter", "aiter_fp32")
REFERENCE_BYTES = 1e6
"""Payload at which a file states the part of a collective's time that grows with the square root."""

_RANGES: dict[str, Dimension | None] = {
    "narrow": None, "k": None, "seq": None, "head_dim": None, "flops": "flops", "bytes": "bytes",
}  # fmt: skip


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ProvenanceBlock(_Block):
    """Where a block's constants come from. Residuals are |predicted / measured - 1|."""

    source: str = Field(description="files and tools that the constants were fitted on")
    points: Annotated[int, *whole(0), PLAIN] = 0
    median_residual: Residual | None = None
    p90_residual: Residual | None = None
    held_out_median: Residual | None = None
    held_out_p90: Residual | None = None
    ranges: dict[Literal["narrow", "k", "seq", "head_dim", "flops", "bytes"], Ends] = {}
    carried: Flag = False
    note: str = ""

    @model_validator(mode="after")
    def _in_units(self) -> ProvenanceBlock:
        self._flat_ranges()
        return self

    @property
    def record(self) -> Provenance:
        """The provenance as the curves keep it: ranges flat, by their keys."""
        return Provenance(**{**self.model_dump(exclude={"ranges"}), "ranges": self._flat_ranges()})

    def _flat_ranges(self) -> tuple[tuple[str, float, float], ...]:
        """(quantity, lowest, highest) as numbers."""
        found = []
        for name, ends in self.ranges.items():
            dimension = _RANGES[name]
            low, high = (
                float(end) if dimension is None else parse_quantity(str(end), dimension) for end in ends
            )
            if low > high:
                raise ValueError(
                    f"ranges.{name}: the lowest ({ends[0]}) stands before the highest ({ends[1]})"
                )
            found.append((name, low, high))
        return tuple(found)


class MemoryBlock(_Block):
    """Traffic at HBM; of a user's own file, a field that is left out stays as shipped."""

    stream_efficiency: Share | None = None
    pointwise_efficiency: Share | None = None
    ramp_s: Seconds | None = Field(default=None, alias="ramp")
    intervals: Intervals = {}
    provenance: ProvenanceBlock


class ShapeBlock(_Block):
    """How the time of one type's GEMMs depends on their shape, where its library is another."""

    tiles: tuple[tuple[Count, Count, Share], ...] = Field(min_length=1)
    tile_overhead_s: Seconds = Field(alias="tile_overhead")
    store_exposed: Part
    wave_quantisation: Part
    epilogue_s: Seconds = Field(default=0.0, alias="epilogue")
    deep_slowdown: Part = 0.0
    split_s: Seconds = Field(default=0.0, alias="split")

    @property
    def record(self) -> GemmShape:
        """The constants as the curves keep them."""
        tiles = tuple(Tile(m=m, n=n, efficiency=share) for m, n, share in self.tiles)
        return GemmShape(**{**self.model_dump(), "tiles": tiles})


class TimedKernelBlock(_Block):
    """The GEMMs that a table timed, where training runs those of another library."""

    fraction: Share
    shape: ShapeBlock

    @property
    def record(self) -> TimedKernel:
        """The same constants as the record that GEMM curves are computed from."""
        return TimedKernel(fraction=self.fraction, shape=self.shape.record)


class HarnessBlock(_Block):
    """What measured times of kernels contain besides these: other kernels, host calls, slower paths."""

    beside_s: Seconds = Field(default=0.0, alias="beside")
    beside_efficiency: Correction = 1.0
    row_s: Seconds = Field(default=0.0, alias="row")
    call_s: Seconds = Field(default=0.0, alias="call")
    slowdown: Correction = 1.0
    unaligned_s: Seconds = Field(default=0.0, alias="unaligned")
    unaligned_slowdown: Correction = 1.0
    unaligned_call_s: Seconds = Field(default=0.0, alias="unaligned_call")
    burst_s: Seconds = Field(default=5e-3, alias="burst")
    burst_order: Correction = 1.0
    blank_draw: Share = 1.0

    @property
    def record(self) -> Harness:
        """The harness as the curves keep it."""
        return Harness(**self.model_dump())


class RateBlock(_Block):
    """Fraction of a data type's peak that a GEMM reaches whose tiles and waves are all full."""

    fraction: Share
    shape: ShapeBlock | None = None
    harness: HarnessBlock | None = None
    timed: TimedKernelBlock | None = None
    provenance: ProvenanceBlock | None = None


class GemmBlock(_Block):
    """GEMMs; of a user's own file, a field that is left out stays as shipped."""

    rates: dict[Literal[DTYPES], RateBlock] = {}  # type: ignore[valid-type]  # names, which typing spells out
    tiles: tuple[tuple[Count, Count, Share], ...] | None = Field(default=None, min_length=1)
    tile_overhead_s: Seconds | None = Field(default=None, alias="tile_overhead")
    store_exposed: Part | None = None
    wave_quantisation: Part | None = None
    epilogue_s: Seconds | None = Field(default=None, alias="epilogue")
    deep_slowdown: Part | None = None
    split_s: Seconds | None = Field(default=None, alias="split")
    intervals: Intervals = {}
    provenance: ProvenanceBlock


class AttentionBlock(_Block):
    """One fused-attention kernel. ``forward`` and ``backward``: fraction of peak by head dimension."""

    forward: dict[Count, Share] = Field(min_length=1)
    backward: dict[Count, Share] = Field(min_length=1)
    forward_blend: Blend
    backward_blend: Blend
    diagonal_keys: Tail
    causal_tail: Tail
    wave_quantisation: Part
    harness: HarnessBlock | None = None
    intervals: Intervals = {}
    provenance: ProvenanceBlock

    def curve(self, implementation: str) -> AttentionCurve:
        """The curve of the block, named by the implementation of attention that it is of."""
        stated = self.model_dump(exclude={"intervals"})
        rates = {way: tuple(sorted(stated[way].items())) for way in ("forward", "backward")}
        own = {"implementation": implementation, "provenance": self.provenance.record}
        return AttentionCurve(
            **{**stated, **rates, **own, "harness": self.harness.record if self.harness else None}
        )


class CollectiveBlock(_Block):
    """One collective of one group: ``latency + sqrt_term + bytes / rate``, times the correction of its size.

    ``sqrt_term_at_1MB`` is what the part that grows with the square root of the size takes at 1 MB.
    ``corrections`` are measured times over that form, where the library changes its algorithm.
    """

    kind: Annotated[
        Literal[KINDS],  # type: ignore[valid-type]  # a tuple of names, which typing lists
        BeforeValidator(kind_of),
    ]
    ranks: Annotated[int, *whole(2, MOST_GPUS), PLAIN]
    domains: Count = Field(description="NVLink domains that the group spans: its hosts, on most systems")
    latency: Seconds
    sqrt_term_at_1MB: Seconds  # noqa: N815 - the unit's own capitals
    rate: Rate
    sizes: tuple[Bytes, Bytes] = Field(description="smallest and largest measured size")
    corrections: tuple[tuple[Bytes, Correction], ...] = Field(
        default=(), description="measured time over the form by size, ascending"
    )
    intervals: Intervals = {}
    provenance: ProvenanceBlock

    @model_validator(mode="after")
    def _fits(self) -> CollectiveBlock:
        if self.ranks % self.domains:
            raise ValueError(f"ranks {self.ranks} do not divide over domains {self.domains} equally")
        if self.sizes[0] > self.sizes[1]:
            raise ValueError("sizes: the smallest stands first")
        steps = [size for size, _ in self.corrections]
        if any(a >= b for a, b in pairwise(steps)):
            raise ValueError("corrections: each size stands once, the smallest first")
        return self

    @property
    def curve(self) -> CollectiveCurve:
        """The curve of the block, in seconds, bytes and bytes per second."""
        return CollectiveCurve(
            kind=self.kind,
            ranks=self.ranks,
            domains=self.domains,
            alpha_s=self.latency,
            gamma_s=self.sqrt_term_at_1MB / REFERENCE_BYTES**0.5,
            bytes_per_s=self.rate,
            low_bytes=self.sizes[0],
            high_bytes=self.sizes[1],
            provenance=self.provenance.record,
            corrections=self.corrections,
        )


class OwnStepBlock(_Block):
    """A measured step, beside what it was predicted to take before and with the factors.

    ``shares`` are of the critical path, by cause; ``sizes`` and ``kinds`` say what kind of step it is. Steps
    of exactly this kind take exp(``pull``) times as long as the factors alone say.
    """

    name: str
    measured: StepTime
    predicted: StepTime
    calibrated: StepTime
    shares: dict[Literal[CAUSES], Part]  # type: ignore[valid-type]  # names, which typing spells out
    sizes: dict[str, Size]
    kinds: dict[str, str]
    pull: Annotated[float, PLAIN, number(ge=-3, le=3)] = 0.0

    @property
    def record(self) -> OwnStep:
        """The step as predictions keep it."""
        return OwnStep(
            name=self.name,
            measured_s=self.measured,
            predicted_s=self.predicted,
            calibrated_s=self.calibrated,
            shares=dict(self.shares),
            kind=StepKind(sizes=self.sizes, kinds=self.kinds),
            pull=self.pull,
        )


class StepsBlock(_Block):
    """Factors on the shipped durations, one for each cause, as measured steps have shown them.

    ``fixed`` is added to the fixed time of every step. The further factor of a measured run (``pull``) fades
    with the distance from it, in doublings of sizes and in kinds that differ, to 1/e at ``reach``.
    """

    matrix: Factor = 1.0
    memory: Factor = 1.0
    host: Factor = 1.0
    checks: Factor = 1.0
    node: Factor = 1.0
    network: Factor = 1.0
    fixed: Seconds = 0.0
    reach: Annotated[float, PLAIN, number(ge=0.01, le=1000)] = 1.0
    runs: tuple[OwnStepBlock, ...] = Field(min_length=1)
    provenance: ProvenanceBlock

    @property
    def record(self) -> StepFactors:
        """The factors as predictions keep them."""
        factors = {name: getattr(self, name) for name in CAUSES}
        runs = tuple(run.record for run in self.runs)
        return StepFactors(**factors, fixed_s=self.fixed, reach=self.reach, runs=runs)


class ProfileFile(_Block):
    """A profile. Shipped ones state everything; of a user's own, what is left out stays as shipped."""

    profile: Annotated[Literal[1], NO_BOOL] = Field(description="version of this format")
    gpu: str = Field(
        min_length=1,
        description="catalogue key of the GPU, the name of one that scenarios describe, or cpu",
        examples=["H100-SXM5-80GB"],
    )
    made: dict[str, str] = Field(default={}, description="command, date, device, versions: for people")
    clock_fraction: Share | None = Field(
        default=None, description="sustained clock under training over the clock of the measured kernels"
    )
    corun_slowdown: Part | None = Field(
        default=None, description="by how much kernels slow down beside a running collective"
    )
    step_time_fit: str | None = Field(default=None, description="how these two came about")
    clock_from_steps: Flag | None = Field(
        default=None,
        description="whether a step has shown that clock, here or on a GPU of its pace; default true",
    )
    step_time_residual: Residual | None = Field(
        default=None, description="mean absolute error of steps that their fit did not see"
    )
    measured_clock_fraction: Share | None = Field(
        default=None, description="clock of this GPU's own sweeps, over that of its best measured shape"
    )
    measured_power_limited: Part | None = Field(
        default=None, description="how far the power limit acted while these kernels were measured"
    )
    measured_boost: Residual | None = Field(
        default=None,
        description="how much faster short kernels ran in the sweeps, before the power limit",
    )
    measured_call_s: Seconds | None = Field(
        default=None, alias="measured_call", description="least that a call of the host took in the sweeps"
    )
    kernel_latency_s: Seconds | None = Field(default=None, alias="kernel_latency")
    memory: MemoryBlock | None = None
    gemm: GemmBlock | None = None
    attention: dict[Literal[IMPLEMENTATIONS], AttentionBlock] = {}  # type: ignore[valid-type]
    collectives: tuple[CollectiveBlock, ...] = ()
    steps: StepsBlock | None = None

    @model_validator(mode="after")
    def _once(self) -> ProfileFile:
        seen = set()
        for curve in self.collectives:
            key = curve.kind, curve.ranks, curve.domains
            if key in seen:
                raise ValueError(
                    f"collectives: two curves of {curve.kind}, ranks {curve.ranks}, domains {curve.domains}"
                )
            seen.add(key)
        return self
