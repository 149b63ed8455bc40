"""The GPUs of the catalogue as people and programs read them: figures, links, prices, and what of it was
measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...hardware.calibrated.overlay import load_profile, profile_names
from ...hardware.gpus import get_gpu, gpu_names
from ...hardware.prices import MEDIAN, list_price, prices_of

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu


def gpu_lines(names: Iterable[str]) -> tuple[str, ...]:
    """A line for each GPU."""
    rows = [_row(get_gpu(name)) for name in names]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return tuple("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(gpu: Gpu) -> tuple[str, ...]:
    known = [(dtype, gpu.peak_flops.get(dtype)) for dtype in ("bf16", "fp8")]
    peaks = ", ".join(f"{dtype.upper()} {peak / 1e12:,.0f}" for dtype, peak in known if peak)
    sixteen = f"FP16 {gpu.peak_flops['fp16'] / 1e12:,.0f}"  # Volta has no bf16
    price = list_price(gpu.name, MEDIAN).usd_per_hour if prices_of(gpu.name) else None
    return (
        gpu.name,
        f"{gpu.hbm_bytes / 1e9:.1f} GB",
        f"{gpu.hbm_bytes_per_s / 1e9:,.0f} GB/s",
        f"{peaks or sixteen} TFLOP/s",
        _links(gpu),
        f"{price:.2f} USD/h" if price else "no price",
        _measured(gpu) + (", announced" if gpu.announced else ""),
    )


def _measured(gpu: Gpu) -> str:
    """Which kernels were measured on this very GPU, or whose stand for them."""
    if gpu.name not in profile_names():
        return f"not measured: as {gpu.profile_of}"
    profile = load_profile(gpu.name)
    own = [rate.dtype.upper() for rate in profile.gemm.rates if not rate.provenance.carried]
    own += [f"attention {one.implementation}" for one in profile.attention if not one.provenance.carried]
    return f"measured: {', '.join(own)}" if own else "carried from its relatives"


def _links(gpu: Gpu) -> str:
    if gpu.nvlink_domain < 2:
        return f"PCIe {gpu.pcie_bytes_per_s / 1e9:g} GB/s{'' if gpu.peer_access else ', no peer access'}"
    return f"{gpu.link_name} {gpu.nvlink_bytes_per_s / 1e9:g} GB/s, {gpu.nvlink_domain} GPUs"


def gpus_document() -> dict[str, Any]:
    """Every GPU by name, with SI figures, sources, list prices, and where each calibrated curve comes
    from."""
    return {name: _document(get_gpu(name)) for name in gpu_names()}


def _document(gpu: Gpu) -> dict[str, Any]:
    profile = load_profile(gpu.name)
    curves = {
        "memory": profile.memory.provenance,
        "gemm": profile.gemm.provenance,
        **{f"attention {curve.implementation}": curve.provenance for curve in profile.attention},
    }
    return {
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "announced": gpu.announced,
        "peak_flops": dict(gpu.peak_flops),
        "memory_bytes": gpu.hbm_bytes,
        "memory_bytes_per_s": gpu.hbm_bytes_per_s,
        "links": {
            "kind": gpu.link_name if gpu.nvlink_domain > 1 else "PCIe",
            "bytes_per_s": gpu.nvlink_bytes_per_s if gpu.nvlink_domain > 1 else gpu.pcie_bytes_per_s,
            "gpus": gpu.nvlink_domain,
            "pcie_bytes_per_s": gpu.pcie_bytes_per_s,
            "peer_access": gpu.peer_access,
        },
        "power_w": gpu.tdp_w,
        "prices": [
            {
                "provider": one.provider,
                "usd_per_hour": one.usd_per_hour,
                "when": one.when,
                "source": one.source,
            }
            for one in prices_of(gpu.name)
        ],
        "measured": {
            name: {"points": one.points, "carried": one.carried, "source": one.source}
            for name, one in curves.items()
        },
        "profile_of": gpu.profile_of or gpu.name,
        "sources": dict(gpu.sources),
    }
