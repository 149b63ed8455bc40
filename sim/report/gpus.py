"""The GPUs of the catalogue as people and programs read them: figures, links, prices, and what of it was
measured."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ...hardware.calibrated.overlay import load_profile, profile_names
from ...hardware.cited import marks_explained
from ...hardware.gpus import get_gpu, gpu_called, gpu_names
from ...hardware.prices import MEDIAN, list_price, prices_of

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu


_HEAD = ("GPU", "GB", "GB/s", "BF16", "FP8", "link GB/s", "USD/h", "kernels")
_KEY = (
    "GB, GB/s: memory. BF16, FP8: dense TFLOP/s (* FP16). link: per direction, and",
    "how many GPUs it joins. USD/h: median of published prices. kernels: measured on",
    "it (own), or on a relative (carried). All of one GPU: stepsim list gpus NAME",
)


def gpu_lines(names: Iterable[str]) -> tuple[str, ...]:
    """A line for each GPU, in the width of a terminal, with a heading and what it means."""
    rows = [_HEAD, *(_row(get_gpu(name)) for name in names)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return (*(_line(row, widths) for row in rows), "", *_KEY)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Names to the left, figures to the right."""
    name, *figures, kernels = row
    cells = [name.ljust(widths[0]), *map(str.rjust, figures, widths[1:-1]), kernels]
    return " ".join(cells).rstrip()


def _row(gpu: Gpu) -> tuple[str, ...]:
    peaks = gpu.peak_flops
    sixteen = f"{_tera(peaks['bf16'])}" if peaks.get("bf16") else f"{_tera(peaks['fp16'])}*"
    joined = gpu.nvlink_domain > 1
    return (
        gpu.name,
        f"{gpu.hbm_bytes / 1e9:.0f}",
        f"{gpu.hbm_bytes_per_s / 1e9:,.0f}",
        sixteen,
        _tera(peaks["fp8"]) if peaks.get("fp8") else "-",
        f"{gpu.nvlink_bytes_per_s / 1e9:g} x{gpu.nvlink_domain}"
        if joined
        else f"PCIe {gpu.pcie_bytes_per_s / 1e9:.0f}",
        f"{price:.2f}" if (price := _price(gpu)) else "-",
        _kernels(gpu),
    )


def _tera(flops: float) -> str:
    return f"{flops / 1e12:,.0f}"


def _price(gpu: Gpu) -> float | None:
    return list_price(gpu.name, MEDIAN).usd_per_hour if prices_of(gpu.name) else None


def _kernels(gpu: Gpu) -> str:
    """Whose kernels were measured: the GPU's own, or its relatives'. Nobody has an announced GPU yet."""
    if gpu.announced:
        return "announced"
    if gpu.name not in profile_names() or not _own_kernels(gpu):
        return "carried"
    return "own"


def _own_kernels(gpu: Gpu) -> list[str]:
    profile = load_profile(gpu.name)
    own = [rate.dtype.upper() for rate in profile.gemm.rates if not rate.provenance.carried]
    return own + [
        f"attention {one.implementation}" for one in profile.attention if not one.provenance.carried
    ]


def gpu_text(called: str) -> str:
    """What ``stepsim list gpus NAME`` prints: every figure of one GPU, with its sources.

    Raises:
        ValueError: no such GPU.
    """
    gpu = get_gpu(gpu_called(called))
    peaks = ", ".join(f"{dtype.upper()} {_tera(peak)}" for dtype, peak in gpu.peak_flops.items())
    facts = [
        ("memory", f"{gpu.hbm_bytes / 1e9:.1f} GB, {gpu.hbm_bytes_per_s / 1e9:,.0f} GB/s"),
        ("dense peaks", f"{peaks} TFLOP/s"),
        ("links", _links(gpu)),
        ("power limit", f"{gpu.tdp_w:,.0f} W"),
        ("kernels", _measured(gpu)),
        *(
            ("price", f"{one.usd_per_hour:.2f} USD/h, {one.provider} {one.when} [{one.source}]")
            for one in prices_of(gpu.name)
        ),
        *((f"source of {part}", source) for part, source in gpu.sources.items()),
    ]
    wide = max(len(what) for what, _ in facts) + 2
    lines = [f"{gpu.name}: {gpu.vendor}, {gpu.architecture}{', announced' if gpu.announced else ''}"]
    lines += [
        fill(
            text,
            _WIDTH,
            initial_indent=f"  {what:<{wide}}",
            subsequent_indent=" " * (wide + 2),
            break_on_hyphens=False,
        )
        for what, text in facts
    ]
    lines += [
        fill(note, _WIDTH, initial_indent="  ", subsequent_indent="    ")
        for note in marks_explained(gpu.sources.values())
    ]
    return "\n".join(lines)


_WIDTH = 80


def _measured(gpu: Gpu) -> str:
    """Which kernels were measured on this very GPU, or whose stand for them."""
    if gpu.same_kernels:
        return f"those of {gpu.profile_of}: the same chip"
    if gpu.name not in profile_names():
        return f"not measured: as {gpu.profile_of}"
    own = _own_kernels(gpu)
    return f"measured: {', '.join(own)}" if own else "carried from its relatives"


def _links(gpu: Gpu) -> str:
    pcie = f"PCIe {gpu.pcie_bytes_per_s / 1e9:g} GB/s{'' if gpu.peer_access else ', no peer access'}"
    if gpu.nvlink_domain < 2:
        return pcie
    own = f"{gpu.link_name} {gpu.nvlink_bytes_per_s / 1e9:g} GB/s per direction"
    return f"{own} among {gpu.nvlink_domain} GPUs; {pcie}"


def gpus_document() -> dict[str, Any]:
    """Every GPU by name, with SI figures, sources, list prices, and where each calibrated curve comes
    from."""
    return {name: gpu_document(name) for name in gpu_names()}


def gpu_document(called: str) -> dict[str, Any]:
    """One GPU as a JSON document.

    Raises:
        ValueError: no such GPU.
    """
    gpu = get_gpu(gpu_called(called))
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
        "links": _links_document(gpu),
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


def _links_document(gpu: Gpu) -> dict[str, Any]:
    """What joins GPUs of a kind to one another, and to their host."""
    joined = gpu.nvlink_domain > 1
    return {
        "kind": gpu.link_name if joined else "PCIe",
        "bytes_per_s": gpu.nvlink_bytes_per_s if joined else gpu.pcie_bytes_per_s,
        "gpus": gpu.nvlink_domain,
        "pcie_bytes_per_s": gpu.pcie_bytes_per_s,
        "peer_access": gpu.peer_access,
    }
