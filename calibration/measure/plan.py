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
    """HBM efficiencies, what a kernel takes besides its bytes and a launch, and where they were read."""

    stream: float
    pointwise: float
    ramp_s: float = 0.5e-6
    """10 MB at 0.75 of peak, 100 MB at 0.90 (size ramp of Calculon's system files): 0.5 us at 2 TB/s."""

    source: str
    note: str = "pointwise: midpoint of stream and what a framework's elementwise kernels reach (SimuMax)"


@dataclass(frozen=True, kw_only=True)
class Donor:
    """An attention curve taken from another GPU, implementation, or both."""

    gpu: str
    implementation: str
    factor: float = 1.0
    backward: float | None = None
    """Of the backward's rates, where it is another than ``factor``."""

    note: str


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan:
    """Parts of one profile.

    ``table``: its GEMMs were measured in a table of many shapes, which gives shape constants and rates;
    ``slows``: its long calls run slower than its short ones, so that it shows when the power limit acts;
    ``twin``: the GPU of the same chip, limit and harness whose table shows better how suddenly, and of 8 bit
    the kernels that training runs.
    Without a table, ``shape_from`` is the GPU whose they are, as fractions of its own peak. ``best``: dtype
    -> GPU whose best measured shape sets the rate instead.
    ``library``: the GPU whose GEMMs of 4 bit by the library of training were measured, where the table's
    are of another library.
    ``sweep_dtype``: dtype of a sweep of this GPU besides, which shows the state that the swept GPU was in.
    ``two_states``: part of the sweep's short kernels ran before the power limit acted.
    ``overlapped``: outputs leave tensor memory while the next tile is computed.
    ``attention``: implementation -> donor, or None for a fit on this GPU's points; ``attention_table`` names
    the implementation whose shape this GPU's table gives, or against which that table is held.
    """

    gpu: str
    memory: MemorySweep
    table: bool = False
    slows: bool = False
    twin: str = ""
    shape_from: str = ""
    sweep_dtype: str | None = None
    two_states: bool = False
    overlapped: bool = False
    best: tuple[tuple[str, str], ...] = ()
    library: str = ""
    attention: tuple[tuple[str, Donor | None], ...]
    attention_table: str = ""


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
    pointwise=0.83,
    ramp_s=3.0e-6,
    source="GB300 device copy 83 % (OCI nvbandwidth page); B200 90 % (unverified); their midpoint",
    note=(
        "pointwise and ramp: a B200's RMSNorm of 1, 2,048 and 8,192 x 4,096 6.4, 14.3 and 29.0 us"
        " (linkedin/Liger-Kernel pull request 1462: 6.9 TB/s, 3.0 us); a GB200's copies of 117 and 235 MB"
        " 24.6 and 42.8 (pytorch/ao 4247: 6.4)"
    ),
)
_CDNA = MemorySweep(
    stream=0.78,
    pointwise=0.735,
    source=(
        "MI300X copy, mul, add, triad 4.09 to 4.26, mean 4.15 of 5.3 TB/s"
        " (samuel-bohman/AI-benchmarking-guide Azure_Results/ND_MI300X_v5_results.md at 3de0c294)"
    ),
)
_GDDR = MemorySweep(
    stream=0.92, pointwise=0.87, source="L40 845 of 864 GB/s (gpu-benches), less what a copy loses (derived)"
)

# FlashAttention-2 is 1.7-3.0x faster than its predecessor on A100, forward and backward (Dao 2023,
# arXiv:2307.08691, section 4.1); the end of that range where heads fill the GPU is taken.
_FA1_OVER_FA2 = 1 / 1.8
_FA1_NOTE = "FlashAttention-2 is 1.7-3.0x faster (arXiv:2307.08691 section 4.1, secondary); 1.8 taken"
# FlashAttention-2 on Blackwell runs the older warp-level instructions: H100's rate by SMs x clock,
# (148 x 1.965) / (132 x 1.83) x 989.4 / 2250 of the peak. Unmeasured.
_FA2_ON_BLACKWELL = 0.53
_FA2_BLACKWELL_NOTE = "H100's rate scaled by SMs and clock; unmeasured"
# Composable Kernel, flash-attn's default on ROCm, on MI300X: 310 to 356 TFLOP/s forward and 194 to 207
# backward with batches of 1 to 8 (ROCm/flash-attention issue 142, ROCm 6.3.2: 16,384 tokens, heads of 128, no
# mask), where the same benchmark shows 370 and 322 on H100 (figures of flash-attention and
# flash-attention-3). As fractions of the peaks.
_CK_FORWARD = ((353.22 + 355.51 + 339.62 + 309.60) / 4 / 1307.4) / (370 / 989.4)
_CK_BACKWARD = ((194.43 + 202.12 + 205.43 + 206.66) / 4 / 1307.4) / (322 / 989.4)
_CK_NOTE = "shape of H100's; rates of Composable Kernel by ROCm/flash-attention issue 142"
# Backward of AITER's assembly that adds gradients of queries up in FP32, over that which does in 16 bits: the
# median from 4,096 tokens on (ROCm/aiter op_tests/cpp/mha/README.md at 0403bcdf, BWD-a32 and BWD-a16).
_FP32_ON_CDNA3, _FP32_ON_CDNA4 = 0.898, 0.709
_FP32_NOTE = "backward in FP32 over that in 16 bits: ROCm/aiter op_tests/cpp/mha/README.md"
# Composable Kernel's forward on an MI350X over that on an MI355X, 8,192 tokens, single and grouped heads,
# with and without a mask, as fractions of their peaks (HazyResearch/HipKittens-Dev-Open
# analysis/attn/fwd/plot.py at 5e1fff6f).
_CK_AT_1000_W = (663 / 834 + 654 / 861.79 + 700 / 896 + 702 / 904) / 4 * (2516.6 / 2306.9)
_CK_AT_1000_W_NOTE = "same chip at 1,000 W: forwards of both (HipKittens' analysis); backward unmeasured"


def _hopper_attention(note: str) -> tuple[tuple[str, Donor | None], ...]:
    kept = tuple((name, _from_h100(name, 1.0, note)) for name in ("fa2", "fa3", "cudnn"))
    return (*kept, ("fa1", _from_h100("fa2", _FA1_OVER_FA2, _FA1_NOTE)))


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


_INSTINCT = {"MI300X": ("bf16", "fp8"), "MI325X": ("bf16",), "MI355X": ("bf16", "fp8"), "MI350X": ("bf16",)}
"""AMD's GPUs whose best GEMM somebody measured, with its types."""


def _instinct_attention(gpu: str) -> tuple[tuple[str, Donor | None], ...]:
    """Composable Kernel's attention (fa2), and AITER's, with gradients of queries in 16 bits and in FP32."""
    if gpu in ("MI355X", "MI350X"):
        ck = Donor(gpu="MI355X", implementation="fa2", factor=_CK_AT_1000_W, note=_CK_AT_1000_W_NOTE)
        wide = Donor(gpu=gpu, implementation="aiter", backward=_FP32_ON_CDNA4, note=_FP32_NOTE)
        return (("fa2", None if gpu == "MI355X" else ck), ("aiter", None), ("aiter_fp32", wide))
    ck = Donor(
        gpu="H100-SXM5-80GB", implementation="fa2", factor=_CK_FORWARD, backward=_CK_BACKWARD, note=_CK_NOTE
    )
    wide = Donor(gpu="MI300X", implementation="aiter", backward=_FP32_ON_CDNA3, note=_FP32_NOTE)
    narrow = None if gpu == "MI300X" else Donor(gpu="MI300X", implementation="aiter", note="same chip")
    return (("fa2", ck), ("aiter", narrow), ("aiter_fp32", wide))


_BLACKWELL_ATTENTION: tuple[tuple[str, Donor | None], ...] = (
    ("cudnn", None),
    ("fa2", _from_h100("fa2", _FA2_ON_BLACKWELL, _FA2_BLACKWELL_NOTE)),
    ("fa1", _from_h100("fa2", _FA2_ON_BLACKWELL * _FA1_OVER_FA2, _FA1_NOTE)),
)


def _workstation_attention(gpu: str) -> tuple[tuple[str, Donor | None], ...]:
    return (
        ("fa2", None),
        ("fa1", Donor(gpu=gpu, implementation="fa2", factor=_FA1_OVER_FA2, note=_FA1_NOTE)),
    )


def _blackwell(gpu: str) -> MeasurementPlan:
    sweep = gpu == "B200-SXM-180GB"
    ultra = Donor(gpu="GB300-NVL72", implementation="cudnn", note="same chip")
    own = _BLACKWELL_ATTENTION[1:]
    return MeasurementPlan(
        gpu=gpu,
        memory=_BLACKWELL,
        table=True,
        slows=True,
        sweep_dtype="bf16" if sweep else None,
        two_states=sweep,
        overlapped=True,
        library="B200-SXM-180GB",
        attention=(("cudnn", ultra), *own) if gpu == "B300-SXM" else _BLACKWELL_ATTENTION,
        attention_table="cudnn",
    )


def _of_h100(gpu: str, note: str, sweep_dtype: str | None = None) -> MeasurementPlan:
    return MeasurementPlan(
        gpu=gpu,
        memory=_HOPPER,
        shape_from="H100-SXM5-80GB",
        sweep_dtype=sweep_dtype,
        attention=_hopper_attention(note),
    )


# In the order of fitting: a donor stands before those that it gives to. Parts of one chip under lower power
# limits differ by what kernels/power.py makes of the limit.
PLANS = (
    MeasurementPlan(
        gpu="A100-SXM4-80GB",
        memory=_AMPERE,
        table=True,
        attention=_ampere_attention("A100-SXM4-80GB", own=True),
        attention_table="fa2",
    ),
    MeasurementPlan(
        gpu="A100-PCIe-80GB",
        memory=_AMPERE,
        shape_from="A100-SXM4-80GB",
        sweep_dtype="bf16",
        attention=_ampere_attention("A100-PCIe-80GB", own=True),
    ),
    MeasurementPlan(
        gpu="A100-SXM4-40GB",
        memory=_AMPERE,
        shape_from="A100-SXM4-80GB",
        attention=_ampere_attention("A100-SXM4-80GB", own=False),
    ),
    *map(_blackwell, ("B200-SXM-180GB", "GB200-NVL72", "GB300-NVL72", "B300-SXM")),
    MeasurementPlan(
        gpu="H200-SXM-141GB",
        memory=_HOPPER,
        table=True,
        slows=True,
        attention=_hopper_attention("same chip"),
        attention_table="fa3",
    ),
    MeasurementPlan(
        gpu="H100-SXM5-80GB",
        memory=_HOPPER,
        table=True,
        slows=True,
        twin="H200-SXM-141GB",  # decision 77
        attention=(
            ("fa2", None),
            ("fa3", None),
            ("cudnn", None),
            ("fa1", _from_h100("fa2", _FA1_OVER_FA2, _FA1_NOTE)),
        ),
        attention_table="fa3",
    ),
    _of_h100("H800-SXM5-80GB", "same chip", sweep_dtype="fp8_block"),
    _of_h100("H100-SXM-HBM2e-96GB-500W", "same chip at 500 W"),
    _of_h100("H100-PCIe-80GB", "same chip at 350 W"),
    MeasurementPlan(
        gpu="L40S",
        memory=_GDDR,
        table=True,
        slows=True,
        attention=_workstation_attention("L40S"),
        attention_table="fa2",
    ),
    MeasurementPlan(
        gpu="RTX-PRO-6000-Server",
        memory=_GDDR,
        table=True,
        attention=_workstation_attention("RTX-PRO-6000-Server"),
        attention_table="fa2",
    ),
    *(
        MeasurementPlan(
            gpu=gpu,
            memory=_CDNA,
            shape_from="A100-SXM4-80GB",
            best=tuple((dtype, gpu) for dtype in dtypes),
            attention=_instinct_attention(gpu),
        )
        for gpu, dtypes in _INSTINCT.items()
    ),
)
