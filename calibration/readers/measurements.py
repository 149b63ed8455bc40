"""Measured kernels read from a file: which kernels ran, on which GPU, for how long.

Knows how each point of such a file (``kind: kernels``; one point is one kernel shape with its TFLOP/s)
maps to the kernels that kernels/ can price. Fits nothing; what may stand in a point is in point_fields.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hardware.files import TABLES, load_yaml, read_text
from ...hardware.gpus import gpu_names
from ...kernels.kernel import Attention, Direction, Gemm, Implementation, Kernel
from .foreign.kinds import named_document
from .foreign.values import LARGEST_SECONDS, shown
from .named_gpus import StatedGpu, chip_of
from .point_fields import AttentionPoint, GemmPoint, GroupedGemmPoint, Point, read_point

_IMPLEMENTATIONS: dict[str, Implementation] = {
    "FlashAttention-1": "fa1",
    "FlashAttention-2": "fa2",
    "FlashAttention-3": "fa3",
    "cuDNN attention": "cudnn",
    "Composable Kernel": "fa2",
    "AITER": "aiter",
}
# Transformer Engine calls flash-attn on Ampere and cuDNN from Hopper on (its backend order).
_TRANSFORMER_ENGINE: dict[str, Implementation] = {"A100-PCIe-80GB": "fa2", "B200-SXM-180GB": "cudnn"}
# DeepGEMM's 8-bit GEMMs have a scale for 128 elements (its README), whatever a table calls their type.
_BLOCK_SCALED = {"fp8": "fp8_block"}
_DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "fwd": ("forward",),
    "bwd": ("backward",),
    "fwd_bwd": ("forward", "backward"),
}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """``kernels``, run one after the other, took ``seconds``.

    ``operation`` is gemm, grouped_gemm or attention. ``family`` names the shapes that are alike: one
    weight matrix under any number of tokens, forward and backward; one attention of all sequence
    lengths. ``best_of_search`` marks the fastest shape of a search: it says what the GPU can reach, and
    belongs in no residual. ``at_boost`` marks one that ran at the boost clock, whatever clock this GPU's own
    sweep ran at. ``short_run`` marks one of a table whose harness calls a kernel a few dozen times,
    behind what else it does (``kernel_tables``), a share ``blank`` of the weights holding no data
    (``table_harness``).
    """

    id: str
    gpu: str
    source: str
    kernels: tuple[Kernel, ...]
    seconds: float
    operation: str = "gemm"
    family: str = ""
    best_of_search: bool = False
    at_boost: bool = False
    short_run: bool = False
    blank: float = 0.0

    @property
    def grouped(self) -> bool:
        return self.operation == "grouped_gemm"


def read_measurements(paths: Iterable[Path]) -> tuple[Measurement, ...]:
    """All points of the files that kernels/ can price, in file order. Raises as ``read_points``."""
    return read_points(paths)[0]


def read_points(paths: Iterable[Path]) -> tuple[tuple[Measurement, ...], dict[str, str]]:
    """Points that kernels/ can price, in file order, and by id the reason why another one cannot.

    Standard attention is left out: it is a chain of kernels, not one. Raises ValueError, naming file,
    point and field, when a file is not of the schema.
    """
    found: list[Measurement] = []
    skipped: dict[str, str] = {}
    for path in paths:
        for place, document in enumerate(_points(path)):
            name = document.get("id") if isinstance(document, dict) else None
            where = f"{path}: {name if isinstance(name, str) else f'points[{place}]'}"
            try:
                point = read_point(document)
                kernels = _kernels(point)
                if not kernels:
                    skipped[point.id] = f"no cost model of {point.impl}"
                elif lack := missing_math(point.gpu, kernels):
                    skipped[point.id] = lack
                else:
                    found.append(_measurement(point, kernels))
            except ValueError as wrong:
                raise ValueError(f"{where}: {wrong}") from None
    return tuple(found), skipped


def missing_math(gpu: StatedGpu, kernels: Iterable[Kernel]) -> str | None:
    """Why a GPU cannot have run ``kernels``: it lacks their data type; None where it has, and of a name that
    the catalogue lacks."""
    if isinstance(gpu, str) and gpu not in gpu_names():
        return None
    chip = chip_of(gpu)
    dtypes = [k.dtype for k in kernels if isinstance(k, Gemm | Attention)]
    return next((f"{chip.name} has no {dtype} math" for dtype in dtypes if not chip.has_math(dtype)), None)


def _points(path: Path) -> Sequence[Any]:
    document = load_yaml(read_text(path), path, TABLES)
    if not isinstance(document, dict) or document.get("kind") != "kernels":
        known = named_document(document)
        why = f"it is {known}" if known else "expected 'kind: kernels'"
        raise ValueError(f"{path}: not a kernel-point file: {why}")
    unknown = sorted(set(document) - {"schema", "kind", "sources", "points"})
    if unknown:
        raise ValueError(f"{path}: {shown(unknown[0])}: unknown key; known: schema, kind, sources, points")
    if type(document.get("schema", 1)) is not int or document.get("schema", 1) != 1:
        raise ValueError(f"{path}: schema: must be 1, is {shown(document['schema'])}")
    if not isinstance(document.get("sources") or {}, dict):
        raise ValueError(f"{path}: sources: {shown(document['sources'])} where citations by name must stand")
    if not isinstance(document.get("points"), list):
        raise ValueError(f"{path}: points: a list of measured kernels is needed")
    points: list[Any] = document["points"]
    return points


def is_gemm(measurement: Measurement, dtype: str) -> bool:
    """Whether it is of GEMMs of that type."""
    kernel = measurement.kernels[-1]
    return isinstance(kernel, Gemm) and kernel.dtype == dtype


def _measurement(point: Point, kernels: tuple[Kernel, ...]) -> Measurement:
    seconds = sum(kernel.flops for kernel in kernels) / (point.tflops * 1e12)
    if not 0 < seconds <= LARGEST_SECONDS:
        raise ValueError(f"tflops: {point.tflops:g} of this shape make {seconds:g} s, which no kernel takes")
    return Measurement(
        id=point.id,
        gpu=point.gpu,
        source=point.source,
        kernels=kernels,
        seconds=seconds,
        operation=point.op,
        family=_family(point),
        best_of_search=point.upper_bound,
        at_boost=point.at_boost,
    )


def _family(point: Point) -> str:
    if isinstance(point, AttentionPoint):
        shape = point.shape
        dims = (shape.qk_head_dim, shape.v_head_dim, shape.num_heads, shape.num_kv_heads)
        return f"{point.impl} {'causal' if shape.causal else 'full'} {dims}"
    product = point.shape
    tokens_last = point.pass_ == "wgrad" and point.op == "gemm"
    weight = (product.m, product.n) if tokens_last else (product.n, product.k)
    return f"{point.op} {tuple(sorted(weight))}"


def _kernels(point: Point) -> tuple[Kernel, ...]:
    return _attention(point) if isinstance(point, AttentionPoint) else (_product(point),)


def _product(point: GemmPoint | GroupedGemmPoint) -> Gemm:
    shape = point.shape
    m, n, k = shape.m, shape.n, shape.k
    grouped = isinstance(point, GroupedGemmPoint)
    if grouped:  # written with the tokens and the weight of a group, whatever the pass
        m, n, k = {"dgrad": (m, k, n), "wgrad": (n, k, m)}.get(point.pass_, (m, n, k))
    return Gemm(
        m=m,
        n=n,
        k=k,
        dtype=_BLOCK_SCALED.get(point.dtype, point.dtype) if "DeepGEMM" in point.impl else point.dtype,
        batch=shape.groups or 1,
        out_bytes=4 if point.out_dtype == "fp32" else 2,
        accumulate=bool(point.accumulate),
        # Transformer Engine issues a kernel for each group.
        calls=shape.groups or 1 if grouped and point.impl.startswith("Transformer Engine") else 1,
    )


def _attention(point: AttentionPoint) -> tuple[Kernel, ...]:
    implementation = _IMPLEMENTATIONS.get(point.impl)
    if implementation is None and point.impl.startswith("Transformer Engine"):
        if point.gpu not in _TRANSFORMER_ENGINE:
            known = ", ".join(_TRANSFORMER_ENGINE)
            raise ValueError(
                f"impl: which kernel Transformer Engine takes is known on {known}, not {point.gpu}"
            )
        implementation = _TRANSFORMER_ENGINE[point.gpu]
    if implementation is None:
        return ()
    shape = point.shape
    return tuple(
        Attention(
            batch=shape.batch,
            seq_q=shape.seq_length,
            seq_kv=shape.seq_length,
            heads=shape.num_heads,
            kv_heads=shape.num_kv_heads,
            # Unequal dimensions (latent attention: 192 and 128) cost the FLOPs and bytes of their mean.
            head_dim=max(1, (shape.qk_head_dim + shape.v_head_dim) // 2),
            causal=shape.causal,
            dtype=point.dtype,
            implementation=implementation,
            direction=direction,
        )
        for direction in _DIRECTIONS[point.pass_]
    )
