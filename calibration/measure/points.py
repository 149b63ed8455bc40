"""What ``stepsim calibrate kernels`` measures: shapes of training, on a GPU or scaled down for a CPU.

Knows the sweeps and their order, in which every beginning is a balanced sample: a short budget
measures some of everything. Knows neither torch nor seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Literal
from zlib import crc32

from ...kernels.kernel import Attention, Direction, Gemm, Kernel, MemoryBound
from ...kernels.run import activation, adam, cross_entropy, norm, stream
from .scale import CPU, GPU, Scale

FAMILIES = ("gemm", "attention", "memory", "launch", "corun", "triton")
DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kernel to measure.

    ``operation`` says which (gemm, attention, rms_norm_backward, adam, ...), ``implementation`` whose:
    torch (cuBLAS, or a chain of its kernels), fa2 or cudnn (torch's attention by that library), triton
    (kernels/run). ``rows`` and ``columns`` are the array of a memory-bound kernel, ``beside`` the thread
    blocks of the copy that runs beside a co-run GEMM. ``shapes`` names the shapes that are alike.
    """

    family: str
    operation: str
    implementation: str
    kernel: Kernel
    dtype: str
    rows: int = 0
    columns: int = 0
    beside: int = 0
    shapes: str = ""

    @property
    def id(self) -> str:
        """A name that says all, the same in every run."""
        return f"{self.operation}-{self.implementation}-{self.dtype}-{self.shape}"

    @property
    def shape(self) -> str:
        """The kernel's sizes as text."""
        kernel = self.kernel
        match kernel:
            case Gemm():
                batch = f"b{kernel.batch}-" if kernel.batch > 1 else ""
                added = "-accumulate" if kernel.accumulate else ""
                beside = f"-beside{self.beside}" if self.beside else ""
                return f"{batch}m{kernel.m}-n{kernel.n}-k{kernel.k}{added}{beside}"
            case Attention():
                mask = "-causal" if kernel.causal else ""
                lengths = f"b{kernel.batch}-s{kernel.seq_q}-h{kernel.heads}-g{kernel.kv_heads}"
                return f"{kernel.direction}-{lengths}-d{kernel.head_dim}{mask}"
            case MemoryBound():
                return f"r{self.rows}-c{self.columns}"


def sweep(device: DeviceKind, *, fp8: bool = False, families: Sequence[str] = FAMILIES) -> Iterator[Point]:
    """Every point for that device: the families in turn, each in an order that is mixed and always the same.

    Raises ValueError for an unknown family.
    """
    for name in families:
        if name not in FAMILIES:
            raise ValueError(f"--only {name}: no such family of kernels; known: {', '.join(FAMILIES)}")
    scale = GPU if device == "cuda" else CPU
    dtypes = (*scale.dtypes, "fp8") if fp8 else scale.dtypes
    makers = {
        "gemm": lambda: _gemms(scale, dtypes, "torch"),
        "attention": lambda: _attentions(scale, scale.attention),
        "memory": lambda: _memory(scale),
        "launch": lambda: _launches(),
        "corun": lambda: _coruns(scale),
        "triton": lambda: _tritons(scale, dtypes),
    }
    queues = [_mixed(list(makers[name]())) for name in FAMILIES if name in families]
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()


def _mixed(points: list[Point]) -> list[Point]:
    """Order points by a hash of their shapes, so that implementations of one shape are measured close
    together."""
    return sorted(points, key=lambda point: crc32(point.shape.encode()))


def _tritons(scale: Scale, dtypes: Sequence[str]) -> Iterator[Point]:
    """Our own GEMMs and attention over the same shapes; on a CPU there is nothing to run them on."""
    if "triton" in scale.fused:
        points = chain(_gemms(scale, dtypes, "triton"), _attentions(scale, ("triton",)))
        yield from (replace(point, family="triton") for point in points)


def _gemms(scale: Scale, dtypes: Sequence[str], implementation: str) -> Iterator[Point]:
    """Forward, input gradient and weight gradient of every matrix, split over outputs and over inputs."""
    seen = set()
    for (outputs, inputs), local, tokens, dtype in product(scale.weights, scale.shards, scale.tokens, dtypes):
        for n, k in {(outputs // local, inputs), (outputs, inputs // local)}:
            for gemm in _passes(tokens, n, k, dtype):
                if gemm.flops > scale.gemm_flops or gemm in seen:
                    continue
                seen.add(gemm)
                yield Point(
                    family="gemm",
                    operation="gemm",
                    implementation=implementation,
                    kernel=gemm,
                    dtype=dtype,
                    shapes=f"gemm {n}x{k}",
                )


def _passes(tokens: int, n: int, k: int, dtype: str) -> Iterator[Gemm]:
    """The three GEMMs of one matrix; in 16 bits the weight gradient also added up in FP32."""
    size = 4 if dtype == "fp32" else 2
    yield Gemm(m=tokens, n=n, k=k, dtype=dtype, out_bytes=size)
    yield Gemm(m=tokens, n=k, k=n, dtype=dtype, out_bytes=size)
    yield Gemm(m=n, n=k, k=tokens, dtype=dtype, out_bytes=size)
    if dtype in ("bf16", "fp16"):
        yield Gemm(m=n, n=k, k=tokens, dtype=dtype, out_bytes=4, accumulate=True)


def _attentions(scale: Scale, implementations: Sequence[str]) -> Iterator[Point]:
    dtype, directions = scale.dtypes[0], ("forward", "backward")
    for (head_dim, heads, kv_heads), sequence in product(
        ((64, 32, 32), (128, 16, 16), (128, 32, 8), (256, 8, 8)), scale.sequences
    ):
        for causal, direction, implementation in product((True, False), directions, implementations):
            kernel = Attention(
                batch=max(1, scale.attention_tokens // sequence),
                seq_q=sequence,
                seq_kv=sequence,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                causal=causal,
                dtype=dtype,
                implementation="cudnn" if implementation == "cudnn" else "fa2",
                direction="forward" if direction == "forward" else "backward",
            )
            yield Point(
                family="attention",
                operation="attention",
                implementation=implementation,
                kernel=kernel,
                dtype=dtype,
                shapes=f"attention {heads}/{kv_heads} heads of {head_dim}{' causal' if causal else ''}",
            )


def memory_kernel(operation: str, rows: int, columns: int, dtype: str, *, fused: bool) -> MemoryBound:
    """Cost of a memory-bound operation of ``rows`` x ``columns``, fused or as a chain of torch kernels.

    Raises ValueError for an operation that has no such kernel.
    """
    name, backward = operation.removesuffix("_backward"), operation.endswith("_backward")
    direction: Direction = "backward" if backward else "forward"
    elements = rows * columns
    if fused:
        match name:
            case "copy":
                return stream.copy_cost(elements, dtype)
            case "triad":
                return stream.triad_cost(elements, dtype)
            case "rms_norm" | "layer_norm":
                return norm.norm_cost(rows, columns, dtype, direction, centred=name == "layer_norm")
            case "swiglu":
                return activation.swiglu_cost(rows, columns, dtype, direction)
            case "gelu":
                return activation.gelu_cost(rows, columns, dtype, direction)
            case "cross_entropy":
                return cross_entropy.cross_entropy_cost(rows, columns, dtype, direction)
            case "adam":
                return adam.adam_cost(elements)
    elif not backward:
        match name:
            case "copy":
                return stream.copy_cost(elements, dtype)
            case "triad":
                return stream.triad_chain_cost(elements, dtype)
            case "rms_norm":
                return norm.rms_norm_chain_cost(rows, columns, dtype)
            case "layer_norm":
                return norm.layer_norm_chain_cost(rows, columns, dtype)
            case "swiglu":
                return activation.swiglu_chain_cost(rows, columns, dtype)
            case "gelu":
                return activation.gelu_cost(rows, columns, dtype, direction)
            case "cross_entropy":
                return cross_entropy.cross_entropy_chain_cost(rows, columns, dtype)
            case "adam":
                return adam.adam_chain_cost(elements)
    raise ValueError(f"operation {operation!r}: no {'fused' if fused else 'unfused'} kernel of that name")


def _memory(scale: Scale) -> Iterator[Point]:
    wide = ("rms_norm", "layer_norm", "swiglu", "gelu")
    shapes = [(name, rows, columns) for name, rows, columns in product(wide, scale.rows, scale.widths)]
    shapes += [("cross_entropy", rows, columns) for rows, columns in product(scale.rows, scale.vocabularies)]
    for name, rows, columns in [(f"{one[0]}{end}", *one[1:]) for one in shapes for end in ("", "_backward")]:
        yield from _memory_points(scale, name, rows, columns)
    for elements, name in product(scale.streams, ("copy", "triad", "adam")):
        yield from _memory_points(scale, name, 1, elements)


def _memory_points(scale: Scale, operation: str, rows: int, columns: int) -> Iterator[Point]:
    dtype = "fp32" if operation == "adam" else scale.dtypes[0]
    for implementation in scale.fused:
        try:
            kernel = memory_kernel(operation, rows, columns, dtype, fused=implementation == "triton")
        except ValueError:  # torch has no chain of that name whose cost is known
            continue
        yield Point(
            family="memory",
            operation=operation,
            implementation=implementation,
            kernel=kernel,
            dtype=dtype,
            rows=rows,
            columns=columns,
            shapes=operation,
        )


def _launches() -> Iterator[Point]:
    """What the host needs to issue a kernel, and what a kernel of no size needs in a busy queue."""
    for operation in ("host launch", "empty kernel"):
        yield Point(
            family="launch",
            operation=operation,
            implementation="torch",
            kernel=MemoryBound(hbm_bytes=2 * 4.0),
            dtype="fp32",
            rows=1,
            columns=1,
            shapes=operation,
        )


def _coruns(scale: Scale) -> Iterator[Point]:
    """GEMMs of three depths beside a copy by as many thread blocks as a collective has channels."""
    size = scale.tokens[-2]
    outputs, inputs = scale.weights[1]
    for (m, n, k), blocks in product(
        ((size, outputs, inputs), (size, outputs, inputs // 4), (size // 4, outputs, inputs)),
        scale.copy_blocks,
    ):
        dtype = scale.dtypes[0]
        yield Point(
            family="corun",
            operation="gemm beside copy",
            implementation="torch",
            kernel=Gemm(m=m, n=n, k=k, dtype=dtype, out_bytes=4 if dtype == "fp32" else 2),
            dtype=dtype,
            beside=blocks,
            shapes="corun",
        )
