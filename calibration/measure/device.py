"""The device of this machine: its name here and in the catalogue, its software, its clock and power at work.

What cannot be read stays empty.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...hardware.gpus import get_gpu
from ..readers.foreign.gpu_named import gpu_named
from .nvml import Nvml, Reading
from .operands import load_torch, reason_of

# Shared memory that a thread block may use, where the device does not say (the least of the catalogue).
_LEAST_SRAM_BYTES = 64 * 1024.0


@dataclass(frozen=True, kw_only=True)
class Device:
    """``kind`` is cuda or cpu; ``gpu`` the catalogue's name, cpu, or empty for a GPU that it lacks."""

    kind: str
    name: str
    gpu: str
    driver: str
    cuda: str
    torch: str
    triton: str
    sram_bytes: float
    fp8: bool


def find_device(kind: str | None = None, gpu: str | None = None) -> Device:
    """The device of that kind, or the best at hand; ``gpu`` states the catalogue's name.

    Raises ValueError without torch, without a GPU where one is asked for, and for unknown names.
    """
    torch = load_torch()
    if kind not in (None, "cuda", "cpu"):
        raise ValueError(f"--device {kind}: no such device; known: cuda, cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch finds no GPU here (its build and the driver must match)")
    cpu = kind == "cpu" or not torch.cuda.is_available()
    if gpu is not None and cpu:
        raise ValueError(f"--gpu {get_gpu(gpu).name}: no GPU is measured here")
    versions = {"torch": torch.__version__, "triton": _triton(), "cuda": torch.version.cuda or ""}
    if cpu:
        name = _cpu_name()
        return Device(
            kind="cpu",
            name=name,
            gpu="cpu",
            driver="",
            sram_bytes=_LEAST_SRAM_BYTES,
            fp8=False,
            **versions,
        )
    name, properties = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0)
    memory_bytes = float(getattr(properties, "total_memory", 0))
    return Device(
        kind="cuda",
        name=name,
        gpu=get_gpu(gpu).name if gpu else gpu_named(name, memory_bytes) or "",
        driver=_nvml().driver,
        sram_bytes=float(getattr(properties, "shared_memory_per_block_optin", _LEAST_SRAM_BYTES)),
        fp8=torch.cuda.get_device_capability() >= (8, 9),
        **versions,
    )


def read_device(kind: str) -> Reading:
    """Clock, power and temperature now; of a CPU nothing is read."""
    return _nvml().read() if kind == "cuda" else Reading()


def release(kind: str, *, after: str) -> None:
    """Give memory that torch keeps back to the device, after the kernel ``after`` did not run.

    Raises ValueError where the GPU answers no more: an illegal access ends every later call of a process.
    """
    if kind != "cuda":
        return
    cuda = load_torch().cuda
    try:
        cuda.synchronize()
        cuda.empty_cache()
    except RuntimeError as broken:
        raise ValueError(
            f"{after}: the GPU answers no more here ({reason_of(broken)}); the same command goes on "
            "where it stopped, --only without that family of kernels leaves it out"
        ) from None


@cache
def _nvml() -> Nvml:
    properties = load_torch().cuda.get_device_properties(0)
    return Nvml(f"GPU-{getattr(properties, 'uuid', '')}")


def _triton() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def _cpu_name() -> str:
    """The processor's name and the threads that torch uses of it."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {load_torch().get_num_threads()} threads"
