"""Measured kernels read from a file: which kernels ran, on which GPU, for how long.

Knows the kernel-point schema (``kind: kernels``; one point is one kernel shape with its TFLOP/s)
and how each field maps to the kernels that kernels/ can price. Fits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..kernels.kernel import Attention, Direction, Gemm, Implementation, Kernel

_IMPLEMENTATIONS: dict[str, Implementation] = {
    "FlashAttention-1": "fa1",
    "FlashAttention-2": "fa2",
    "FlashAttention-3": "fa3",
    "cuDNN attention": "cudnn",
}
# Transformer Engine calls flash-attn on Ampere and cuDNN from Hopper on (its backend order).
_TRANSFORMER_ENGINE: dict[str, Implementation] = {"A100-PCIe-80GB": "fa2", "B200-SXM-180GB": "cudnn"}
_DIRECTIONS: dict[str, tuple[Direction, ...]] = {
    "fwd": ("forward",),
    "bwd": ("backward",),
    "fwd_bwd": ("forward", "backward"),
}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """``kernels``, run one after the other, took ``seconds``.

    ``best_of_search`` marks the fastest shape of a search: it says what the GPU can reach, and
    belongs in no residual.
    """

    id: str
    gpu: str
    source: str
    kernels: tuple[Kernel, ...]
    seconds: float
    best_of_search: bool = False
    grouped: bool = False


def read_measurements(paths: Iterable[Path]) -> tuple[Measurement, ...]:
    """All points of the files that kernels/ can price, in file order.

    Standard attention is left out: it is a chain of kernels, not one. Raises ValueError when a
    file is not of the schema.
    """
    found: list[Measurement] = []
    for path in paths:
        document = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if not isinstance(document, dict) or document.get("kind") != "kernels":
            raise ValueError(f"{path} is not a kernel-point file (expected 'kind: kernels')")
        for point in document["points"]:
            kernels = _kernels(point)
            if kernels:
                found.append(_measurement(point, kernels))
    return tuple(found)


def _measurement(point: Mapping[str, Any], kernels: tuple[Kernel, ...]) -> Measurement:
    return Measurement(
        id=point["id"],
        gpu=point["gpu"],
        source=point["source"],
        kernels=kernels,
        seconds=sum(kernel.flops for kernel in kernels) / (point["tflops"] * 1e12),
        best_of_search=point.get("upper_bound", False),
        grouped=point["op"] == "grouped_gemm",
    )


def _kernels(point: Mapping[str, Any]) -> tuple[Kernel, ...]:
    if point["op"] == "attention":
        return _attention(point)
    shape = point["shape"]
    return (
        Gemm(
            m=shape["m"],
            n=shape["n"],
            k=shape["k"],
            dtype=point["dtype"],
            batch=shape.get("groups") or 1,
            out_bytes=4 if point.get("out_dtype") == "fp32" else 2,
            accumulate=bool(point.get("accumulate")),
        ),
    )


def _attention(point: Mapping[str, Any]) -> tuple[Kernel, ...]:
    implementation = _IMPLEMENTATIONS.get(point["impl"])
    if implementation is None and point["impl"].startswith("Transformer Engine"):
        implementation = _TRANSFORMER_ENGINE[point["gpu"]]
    if implementation is None:
        return ()
    shape = point["shape"]
    return tuple(
        Attention(
            batch=shape["batch"],
            seq_q=shape["seq_length"],
            seq_kv=shape["seq_length"],
            heads=shape["num_heads"],
            kv_heads=shape["num_kv_heads"],
            # Unequal dimensions (latent attention: 192 and 128) cost the FLOPs and bytes of their mean.
            head_dim=(shape["qk_head_dim"] + shape["v_head_dim"]) // 2,
            causal=shape["causal"],
            dtype=point["dtype"],
            implementation=implementation,
            direction=direction,
        )
        for direction in _DIRECTIONS[point["pass"]]
    )
