"""Measured kernels read from a file: which kernels ran, on which GPU, for how long.

Knows the kernel-point schema (``kind: kernels``; one point is one kernel shape with its TFLOP/s)
and how each field maps to the kernels that kernels/ can price. Fits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    ``operation`` is gemm, grouped_gemm or attention. ``family`` names the shapes that are alike: one
    weight matrix under any number of tokens, forward and backward; one attention of all sequence
    lengths. ``best_of_search`` marks the fastest shape of a search: it says what the GPU can reach, and
    belongs in no residual.
    """

    id: str
    gpu: str
    source: str
    kernels: tuple[Kernel, ...]
    seconds: float
    operation: str = "gemm"
    family: str = ""
    best_of_search: bool = False

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
        for place, point in enumerate(_points(path)):
            name = point.get("id", f"points[{place}]") if isinstance(point, dict) else f"points[{place}]"
            try:
                kernels = _kernels(point)
                if kernels:
                    found.append(_measurement(point, kernels))
                else:
                    skipped[str(name)] = f"no cost model of {point['impl']}"
            except KeyError as missing:
                raise ValueError(
                    f"{path}: {name}: {missing.args[0]}: this field is missing or unknown"
                ) from None
            except (TypeError, ValueError, AttributeError) as wrong:
                raise ValueError(f"{path}: {name}: not a point of a measured kernel: {wrong}") from None
    return tuple(found), skipped


def _points(path: Path) -> Sequence[Any]:
    try:
        document = yaml.load(
            path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or document.get("kind") != "kernels":
        raise ValueError(f"{path} is not a kernel-point file (expected 'kind: kernels')")
    if not isinstance(document.get("points"), list):
        raise ValueError(f"{path}: points: a list of measured kernels is needed")
    points: list[Any] = document["points"]
    return points


def is_gemm(measurement: Measurement, dtype: str) -> bool:
    """Whether it is of matrix products of that type."""
    kernel = measurement.kernels[0]
    return isinstance(kernel, Gemm) and kernel.dtype == dtype


def _measurement(point: Mapping[str, Any], kernels: tuple[Kernel, ...]) -> Measurement:
    if not point["tflops"] > 0:
        raise ValueError(f"tflops {point['tflops']} must be positive")
    return Measurement(
        id=point["id"],
        gpu=point["gpu"],
        source=point["source"],
        kernels=kernels,
        seconds=sum(kernel.flops for kernel in kernels) / (point["tflops"] * 1e12),
        operation=point["op"],
        family=_family(point),
        best_of_search=point.get("upper_bound", False),
    )


def _is_separate(point: Mapping[str, Any]) -> bool:
    return point["op"] == "grouped_gemm" and str(point["impl"]).startswith("Transformer Engine")


def _family(point: Mapping[str, Any]) -> str:
    shape = point["shape"]
    if point["op"] == "attention":
        dims = (shape["qk_head_dim"], shape["v_head_dim"], shape["num_heads"], shape["num_kv_heads"])
        return f"{point['impl']} {'causal' if shape['causal'] else 'full'} {dims}"
    tokens_last = point["pass"] == "wgrad" and point["op"] == "gemm"
    weight = (shape["m"], shape["n"]) if tokens_last else (shape["n"], shape["k"])
    return f"{point['op']} {tuple(sorted(weight))}"


def _kernels(point: Mapping[str, Any]) -> tuple[Kernel, ...]:
    if point["op"] == "attention":
        return _attention(point)
    shape = point["shape"]
    m, n, k = shape["m"], shape["n"], shape["k"]
    if point["op"] == "grouped_gemm":  # written with the tokens and the weight of a group, whatever the pass
        m, n, k = {"dgrad": (m, k, n), "wgrad": (n, k, m)}.get(point["pass"], (m, n, k))
    return (
        Gemm(
            m=m,
            n=n,
            k=k,
            dtype=point["dtype"],
            batch=shape.get("groups") or 1,
            out_bytes=4 if point.get("out_dtype") == "fp32" else 2,
            accumulate=bool(point.get("accumulate")),
            calls=shape["groups"] if _is_separate(point) else 1,
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
