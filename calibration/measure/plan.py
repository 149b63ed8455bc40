"""What each GPU's profile is made of: what is fitted on it, what is carried from where.

Knows the documents and donors behind each profile. Does no fitting. A new GPU is one entry here
and one in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

# Framework pointwise kernels: SimuMax measured 1,456 GB/s on A100-PCIe (0.75 of 1,935) and 0.67 of
# 8 TB/s on B200 (configs/system files at 4dcaae5). Fused kernels of Apex and Transformer Engine lie
# between that and the stream figure, so the midpoint is taken.


@dataclass(frozen=True, kw_only=True)
class MemorySweep:
    """HBM efficiencies and where they were read."""

    stream: float
    pointwise: float
    source: str
    note: str = "pointwise: midpoint of stream and what a framework's elementwise kernels reach (SimuMax)"


@dataclass(frozen=True, kw_only=True)
class Donor:
    """An attention curve taken from another GPU, implementation, or both."""

    gpu: str
    implementation: str
    factor: float = 1.0
    note: str


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """Parts of one profile.

    ``sweep_dtype``: dtype of this GPU's own sweep. Without ``shape_from`` the sweep gives the shape
    constants; with it they are the mean of those GPUs' and the sweep gives the rate alone.
    ``two_states``: part of the sweep's short kernels ran before the power limit acted.
    ``overlapped``: outputs leave tensor memory while the next tile is computed.
    ``wide_tiles``: its libraries have tiles of 128 x 192 too (cuBLAS's nvjet kernels name them).
    ``best``: dtype -> GPU whose best measured shape sets the rate. ``power``: factor on all rates
    of a part whose power limit lowers its clock. ``attention``: implementation -> donor, or None
    for a fit on this GPU's points.
    """

    gpu: str
    memory: MemorySweep
    shape_from: tuple[str, ...] = ()
    sweep_dtype: str | None = None
    sweep_note: str = ""
    two_states: bool = False
    overlapped: bool = False
    wide_tiles: bool = False
    best: tuple[tuple[str, str], ...] = ()
    power: float = 1.0
    power_note: str = ""
    attention: tuple[tuple[str, Donor | None], ...]


_AMPERE = MemorySweep(
    stream=0.88,
    pointwise=0.81,
    source="1.75-1.8 of 2.04 TB/s (unverified)",
)
_HOPPER = MemorySweep(
    stream=0.91,
    pointwise=0.83,
    source=(
        "GH200 OpenCL-Benchmark 3,615-3,705 of 4,000 GB/s (mredenti/PowerCapping); "
        "H100 3.0-3.1 of 3.35 TB/s (unverified)"
    ),
)
_BLACKWELL = MemorySweep(
    stream=0.86,
    pointwise=0.77,
    source="GB300 device copy 83 % (OCI nvbandwidth page); B200 90 % (unverified); their midpoint",
)
_CDNA = MemorySweep(stream=0.81, pointwise=0.75, source="4.3 of 5.3 TB/s (unverified)")

# FlashAttention-2 is 1.7-3.0x faster than its predecessor on A100, forward and backward (Dao 2023,
# arXiv:2307.08691, section 4.1); the end of that range where heads fill the GPU is taken.
_FA1_OVER_FA2 = 1 / 1.8
_FA1_NOTE = "FlashAttention-2 is 1.7-3.0x faster (arXiv:2307.08691 section 4.1, secondary); 1.8 taken"
# FlashAttention-2 on Blackwell runs the older warp-level instructions: H100's rate by SMs x clock,
# (148 x 1.965) / (132 x 1.83) x 989.4 / 2250 of the peak. Unmeasured.
_FA2_ON_BLACKWELL = 0.53
_FA2_BLACKWELL_NOTE = "H100's rate scaled by SMs and clock; unmeasured"


def _hopper_attention(factor: float, note: str) -> tuple[tuple[str, Donor | None], ...]:
    kept = tuple((name, _from_h100(name, factor, note)) for name in ("fa2", "fa3", "cudnn"))
    return (*kept, ("fa1", _from_h100("fa2", factor * _FA1_OVER_FA2, _FA1_NOTE)))


def _from_h100(implementation: str, factor: float, note: str) -> Donor:
    return Donor(gpu="H100-SXM5-80GB", implementation=implementation, factor=factor, note=note)


def _ampere_attention(donor: str, own: bool) -> tuple[tuple[str, Donor | None], ...]:
    same = "same chip"
    cudnn = "cuDNN's fused attention taken as fast as FlashAttention-2 on Ampere; unmeasured"
    return (
        ("fa2", None if own else Donor(gpu=donor, implementation="fa2", note=same)),
        ("fa1", Donor(gpu=donor, implementation="fa2", factor=_FA1_OVER_FA2, note=_FA1_NOTE)),
        ("cudnn", Donor(gpu=donor, implementation="fa2", note=cudnn)),
    )


def _blackwell_attention(own: bool) -> tuple[tuple[str, Donor | None], ...]:
    b200 = Donor(gpu="B200-SXM-180GB", implementation="cudnn", note="same generation")
    return (
        ("cudnn", None if own else b200),
        ("fa2", _from_h100("fa2", _FA2_ON_BLACKWELL, _FA2_BLACKWELL_NOTE)),
        ("fa1", _from_h100("fa2", _FA2_ON_BLACKWELL * _FA1_OVER_FA2, _FA1_NOTE)),
    )


# No 16-bit sweep of Hopper is public; its SMs, tiles and pipelining lie between Ampere's and Blackwell's.
# DeepGEMM's FP8 shapes on H800 check what is carried.
_HOPPER_SHAPE = ("A100-PCIe-80GB", "B200-SXM-180GB")

_PCIE_CLOCK, _PCIE_NOTE = 1395 / 1755, "1,755 MHz drops to 1,395 MHz under load (Chips and Cheese)"
_CAPPED_CLOCK = (500 / 700) ** (1 / 3)
_CAPPED_NOTE = "500 W against 700 W: clock by the cube root of power (derived)"

# In the order of fitting: a donor stands before those that it gives to.
PLANS = (
    MeasurementPlan(
        gpu="A100-PCIe-80GB",
        memory=_AMPERE,
        sweep_dtype="bf16",
        sweep_note="worst (+15 %): under one wave, where idle SMs leave power for a higher clock",
        best=(("bf16", "A100-PCIe-80GB"),),
        attention=_ampere_attention("A100-PCIe-80GB", own=True),
    ),
    MeasurementPlan(
        gpu="A100-SXM4-80GB",
        memory=_AMPERE,
        shape_from=("A100-PCIe-80GB",),
        best=(("bf16", "A100-SXM4-80GB"),),
        attention=_ampere_attention("A100-SXM4-80GB", own=True),
    ),
    MeasurementPlan(
        gpu="A100-SXM4-40GB",
        memory=_AMPERE,
        shape_from=("A100-PCIe-80GB",),
        best=(("bf16", "A100-SXM4-80GB"),),
        attention=_ampere_attention("A100-SXM4-80GB", own=False),
    ),
    MeasurementPlan(
        gpu="B200-SXM-180GB",
        memory=_BLACKWELL,
        sweep_dtype="bf16",
        two_states=True,
        overlapped=True,
        sweep_note=(
            "50 of the points, none longer than 0.85 ms, ran 1.15-1.5x faster than the curve, shapes alike: "
            "bursts before the power limit acts; measured_boost lies between both states"
        ),
        best=(("bf16", "B200-SXM-180GB"), ("fp8", "B200-SXM-180GB")),
        attention=_blackwell_attention(own=True),
    ),
    MeasurementPlan(
        gpu="H800-SXM5-80GB",
        memory=_HOPPER,
        shape_from=_HOPPER_SHAPE,
        wide_tiles=True,
        sweep_dtype="fp8",
        best=(("bf16", "H100-SXM5-80GB"),),
        attention=_hopper_attention(1.0, "same chip"),
    ),
    MeasurementPlan(
        gpu="H100-SXM5-80GB",
        memory=_HOPPER,
        shape_from=_HOPPER_SHAPE,
        wide_tiles=True,
        best=(("bf16", "H100-SXM5-80GB"), ("fp8", "H100-SXM5-80GB")),
        attention=(
            ("fa2", None),
            ("fa3", None),
            ("cudnn", None),
            ("fa1", _from_h100("fa2", _FA1_OVER_FA2, _FA1_NOTE)),
        ),
    ),
    MeasurementPlan(
        gpu="H200-SXM-141GB",
        memory=_HOPPER,
        shape_from=_HOPPER_SHAPE,
        wide_tiles=True,
        best=(("bf16", "H100-SXM5-80GB"), ("fp8", "H100-SXM5-80GB")),
        attention=_hopper_attention(1.0, "same chip"),
    ),
    MeasurementPlan(
        gpu="H100-SXM-HBM2e-96GB-500W",
        memory=_HOPPER,
        shape_from=_HOPPER_SHAPE,
        wide_tiles=True,
        best=(("bf16", "H100-SXM5-80GB"), ("fp8", "H100-SXM5-80GB")),
        power=_CAPPED_CLOCK,
        power_note=_CAPPED_NOTE,
        attention=_hopper_attention(_CAPPED_CLOCK, _CAPPED_NOTE),
    ),
    MeasurementPlan(
        gpu="H100-PCIe-80GB",
        memory=_HOPPER,
        shape_from=_HOPPER_SHAPE,
        wide_tiles=True,
        best=(("bf16", "H100-SXM5-80GB"), ("fp8", "H100-SXM5-80GB")),
        power=_PCIE_CLOCK,
        power_note=_PCIE_NOTE,
        attention=_hopper_attention(_PCIE_CLOCK, _PCIE_NOTE),
    ),
    MeasurementPlan(
        gpu="B300-SXM",
        memory=_BLACKWELL,
        shape_from=("B200-SXM-180GB",),
        best=(("bf16", "B300-SXM"), ("fp8", "B300-SXM")),
        attention=_blackwell_attention(own=False),
    ),
    MeasurementPlan(
        gpu="GB200-NVL72",
        memory=_BLACKWELL,
        shape_from=("B200-SXM-180GB",),
        best=(("bf16", "GB200-NVL72"), ("fp8", "GB200-NVL72")),
        attention=_blackwell_attention(own=False),
    ),
    MeasurementPlan(
        gpu="GB300-NVL72",
        memory=_BLACKWELL,
        shape_from=("B200-SXM-180GB",),
        best=(("bf16", "GB200-NVL72"), ("fp8", "GB200-NVL72")),
        attention=_blackwell_attention(own=False),
    ),
    MeasurementPlan(
        gpu="MI300X",
        memory=_CDNA,
        shape_from=("A100-PCIe-80GB",),
        best=(("bf16", "MI300X"),),
        attention=(("fa2", _from_h100("fa2", 1.0, "fractions of H100; unmeasured")),),
    ),
)
