"""Tables of many GPUs' kernels, one line a shape, as inference planners measure them (aiconfigurator).

Knows their columns: ``gpu dtype m n k latency_ms`` of GEMMs, ``gpu dtype batch seq_length heads kv_heads
head_dim latency_ms`` of causal attention before a paged cache; and what their harness times besides the
kernel. Columns of others are passed over. Which shapes no fit may see is decided here, by a hash of the shape
alone, so that it is the same for every GPU and type.

Harness (ai-dynamo/aiconfigurator, collector/helper.py, collector/{trtllm,vllm}/collect_gemm.py and
collect_attn.py): three warm-up calls, six timed ones, each of up to six layers, in a CUDA graph; 8-bit and
4-bit GEMMs quantise their 16-bit input in the call; attention first writes its keys and values to the
cache. What differs between frameworks is in table_harness.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...hardware.catalogue import unknown_name
from ...hardware.gpus import get_gpu
from ...kernels.kernel import ELEMENT_BYTES, Attention, Gemm, Implementation, MemoryBound
from .foreign.csv_table import CsvTable, Line, read_table_of
from .foreign.values import LARGEST_SECONDS, written_number, written_whole
from .measurements import Measurement, missing_math
from .named_gpus import named_gpu
from .table_harness import blank_share

DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_static": "fp8",
    "fp8_block": "fp8_block",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
"""Data types by the names that these tables have for them."""

_PRODUCT = ("gpu", "dtype", "m", "n", "k", "latency_ms")
_ATTENTION = ("gpu", "dtype", "batch", "seq_length", "heads", "kv_heads", "head_dim", "latency_ms")
_LEFT_OUT, _PARTS = 1, 4
_IMPLEMENTATION: dict[str, Implementation] = {
    "ampere": "fa2",
    "ada": "fa2",
    "hopper": "fa3",
    "blackwell": "cudnn",
    "blackwell-rtx": "fa2",
}
"""The fused attention of an architecture whose curve is held against the table's: flash-attention 2 and 3,
and on Blackwell FlashInfer's kernels by NVIDIA, which cuDNN's are nearest to; Blackwell parts without tensor
memory run flash-attention 2."""


def is_kernel_table(path: Path) -> bool:
    """Whether ``path`` is such a table: a CSV file with the columns of either kind."""
    if path.suffix.lower() != ".csv":
        return False
    columns = read_table_of(path).columns
    return any(set(kind) <= set(columns) for kind in (_PRODUCT, _ATTENTION))


def read_kernel_tables(paths: Iterable[Path]) -> tuple[Measurement, ...]:
    """All kernels of the tables that the catalogue's GPUs can run, in the order of the files.

    Raises ValueError naming file, line and column for an unknown GPU or type, or what is not a number.
    """
    return tuple(item for path in paths for item in _read(path, read_table_of(path)))


def left_out(*shape: int) -> bool:
    """Whether the fits leave a shape out, so that predictions of it show their error: one in four.

    >>> left_out(4096, 4096, 4096), left_out(4096, 4096, 8192)
    (False, False)
    """
    digest = hashlib.sha256("x".join(map(str, shape)).encode()).digest()
    return digest[0] % _PARTS < _LEFT_OUT


def shape_of(item: Measurement) -> tuple[int, ...]:
    """The numbers that a shape's hash is taken of."""
    kernel = item.kernels[-1]
    if isinstance(kernel, Gemm):
        return kernel.m, kernel.n, kernel.k
    assert isinstance(kernel, Attention)
    return int(kernel.batch), kernel.seq_q, kernel.heads, kernel.kv_heads, kernel.head_dim


def sample(items: Sequence[Measurement], number: int) -> list[Measurement]:
    """At most ``number`` of ``items``, chosen by another hash of their shapes."""
    ordered = sorted(items, key=lambda item: hashlib.sha256(repr(shape_of(item)).encode()).digest())
    return ordered[:number]


def _read(path: Path, table: CsvTable) -> Iterable[Measurement]:
    products = set(_PRODUCT) <= set(table.columns)
    missing = [name for name in (_PRODUCT if products else _ATTENTION) if name not in table.columns]
    if missing:
        raise ValueError(f"{path}: a table of measured kernels lacks the columns {', '.join(missing)}")
    for number, line in table.lines:
        where = f"{path}:{number}"
        line = {**line, "gpu": named_gpu(where, line["gpu"])}
        if line["dtype"] not in DTYPES:
            raise ValueError(f"{where}: dtype: {unknown_name('data type', line['dtype'], DTYPES)}")
        kernels = _product(where, line) if products else _attention(where, line)
        if missing_math(line["gpu"], kernels) is None:
            yield _measurement(f"{path.name}:{number}", where, line, kernels)


def _measurement(
    name: str, where: str, line: Line, kernels: tuple[Gemm | Attention | MemoryBound, ...]
) -> Measurement:
    last = kernels[-1]
    assert not isinstance(last, MemoryBound)
    what = f"gemm {last.dtype}" if isinstance(last, Gemm) else f"attention {last.implementation}"
    source = line.get("source", "")
    seconds = written_number(f"{where}: latency_ms", line["latency_ms"], low=1e-9, high=LARGEST_SECONDS) / 1e3
    return Measurement(
        id=name,
        gpu=line["gpu"],
        source=source,
        kernels=kernels,
        seconds=seconds,
        operation=what,
        family=what,
        short_run=True,
        blank=blank_share(source, last) if isinstance(last, Gemm) else 0.0,
    )


def _sizes(where: str, line: Line, *names: str) -> list[int]:
    return [written_whole(f"{where}: {name}", line[name], low=1) for name in names]


def _product(where: str, line: Line) -> tuple[MemoryBound, Gemm] | tuple[Gemm]:
    m, n, k = _sizes(where, line, "m", "n", "k")
    product = Gemm(m=m, n=n, k=k, dtype=DTYPES[line["dtype"]])
    if product.dtype in ("bf16", "fp16"):
        return (product,)
    stored = ELEMENT_BYTES["bf16"] + ELEMENT_BYTES[product.dtype]
    return MemoryBound(hbm_bytes=m * k * stored), product  # the input is read in 16 bit and quantised


def _attention(where: str, line: Line) -> tuple[MemoryBound, Attention]:
    batch, length, heads, kv_heads, head_dim = _sizes(
        where, line, "batch", "seq_length", "heads", "kv_heads", "head_dim"
    )
    if heads % kv_heads:
        raise ValueError(f"{where}: kv_heads: {kv_heads} must divide heads, {heads}")
    architecture = get_gpu(line["gpu"]).architecture
    kernel = Attention(
        batch=batch,
        seq_q=length,
        seq_kv=length,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        causal=True,
        dtype=DTYPES[line["dtype"]],
        implementation=_IMPLEMENTATION[architecture],
    )
    return MemoryBound(hbm_bytes=2 * kernel.kv_bytes), kernel  # read from the layer, written to the cache
