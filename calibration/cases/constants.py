"""The few constants that step times may shape: which they are, where they may lie, and sets of them.

Two a GPU type and two a software preset (the preset's third, the allocator's overhead, shows in memory,
not in time). Knows neither cases nor errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

from ...hardware.calibrated.overlay import load_profile
from ...hardware.fields import number
from ...sim.scenario.software import Software, get_software
from .trial import Trial

CLOCKS = tuple(percent / 100 for percent in range(60, 101))
CORUNS = tuple(percent / 100 for percent in range(0, 42, 2))
HOSTS_S = tuple(
    tenths / 1e7
    for tenths in (*range(20, 100, 5), *range(100, 600, 10), *range(600, 1000, 50), *range(1000, 2001, 100))
)  # 2 to 200 us in steps of 2 to 25 %; a launch that blocks takes the most
FIXED_S = (0.0, *(float(f"{1e-3 * 200 ** (i / 40):.2g}") for i in range(41)))  # 1 to 200 ms


class Ran(Protocol):
    """A measured step, as far as constants go."""

    @property
    def gpu(self) -> str: ...

    @property
    def preset(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """What a GPU type sustains in training; ``hardware.profile.GpuProfile`` says what they mean."""

    clock_fraction: Annotated[float, number(ge=0.01, le=1)]
    corun_slowdown: Annotated[float, number(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetConstants:
    """What the host of a software preset costs; ``sim.software.Software`` says what they mean."""

    host_s_per_kernel: Annotated[float, number(ge=0, le=1)]
    step_fixed_s: Annotated[float, number(ge=0, le=3600)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """GPUs and presets whose constants are fitted; all others stay as shipped."""

    gpus: tuple[str, ...]
    presets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants by GPU and by preset. The ``with_`` methods give new ones."""

    gpus: Mapping[str, GpuConstants]
    presets: Mapping[str, PresetConstants]

    def trial(self, row: Ran) -> Trial:
        """The constants of the GPU and the preset of ``row``, as its simulation takes them."""
        gpu, preset = self.gpus[row.gpu], self.presets[row.preset]
        return Trial(
            clock_fraction=gpu.clock_fraction,
            corun_slowdown=gpu.corun_slowdown,
            host_s_per_kernel=preset.host_s_per_kernel,
        )

    def with_gpu(self, gpu: str, **values: float) -> Constants:
        """The constants with ``values`` for one GPU in place of its own."""
        return replace(self, gpus={**self.gpus, gpu: replace(self.gpus[gpu], **values)})

    def with_preset(self, preset: str, **values: float) -> Constants:
        """The constants with ``values`` for one preset in place of its own."""
        return replace(self, presets={**self.presets, preset: replace(self.presets[preset], **values)})


def unfitted(rows: Iterable[Ran], wanted: Wanted) -> Constants:
    """Defaults that no step time has shaped for what is wanted, the shipped constants for the rest.

    A fit starts here, and not from what an earlier one has left, so that it gives the same at any time.
    """
    rows = tuple(rows)
    gpus, presets = sorted({row.gpu for row in rows}), sorted({row.preset for row in rows})
    return Constants(
        gpus={name: _unfitted_gpu(name) if name in wanted.gpus else shipped_gpu(name) for name in gpus},
        presets={
            name: UNFITTED_PRESET if name in wanted.presets else shipped_preset(name) for name in presets
        },
    )


def shipped_constants(rows: Iterable[Ran]) -> Constants:
    """The constants that profiles and presets of the package state."""
    return unfitted(rows, Wanted(gpus=(), presets=()))


def shipped_gpu(name: str) -> GpuConstants:
    """The constants that the GPU's profile states."""
    profile = load_profile(name)
    return GpuConstants(clock_fraction=profile.clock_fraction, corun_slowdown=profile.corun_slowdown)


def shipped_preset(name: str) -> PresetConstants:
    """The constants that the catalogue of presets states for ``name``."""
    return _of_software(get_software(name))


def _unfitted_gpu(name: str) -> GpuConstants:
    return GpuConstants(clock_fraction=load_profile(name).measured_clock_fraction, corun_slowdown=0.0)


def _of_software(software: Software) -> PresetConstants:
    return PresetConstants(
        host_s_per_kernel=software.host.host_s_per_kernel, step_fixed_s=software.host.step_fixed_s
    )


EAGER_HOST_S = 4.0e-5
"""Host time of a launch of eager PyTorch in training, where no step of a framework has shown it.

vTrain's steps of small models on one A100 host (VIA-Research/vTrain data/ground_truth_single.csv) take
3.00 ms longer for each layer of 1,024 and microbatch, on two, four and eight GPUs alike, where kernels take
half of it: the host's time for 74 launches of Megatron-LM's layer, whose backward runs the layer again
(which the cases assume; without that, 59 launches and 51 us). No fit counts these steps. How launches were
counted, and other measurements, are in docs/decisions/0087-launches-counted.md: in public profiler traces of
GPUs that wait for their host launches are 42 us (GP100, HolisticTraceAnalysis) and 56 us (H100, TraceLens)
apart, with what the profiler itself takes."""

HOSTS_CARRIED = {"nanotron-2025": "nanotron-2024"}
"""Presets whose host time is another's, as presets.yaml says beside them: one source shows both."""

CLOCKS_CARRIED = {
    "A100-SXM4-40GB": "A100-SXM4-80GB",
    "H200-SXM-141GB": "H100-SXM5-80GB",
    "H800-SXM5-80GB": "H100-SXM5-80GB",
}
"""GPUs whose clock is another's, of the same chip at the same power: what is fitted there holds for them."""

FIXED_BY_LOGS = ("mlperf-3.0", "mlperf-3.1", "mlperf-4")
"""Presets whose fixed time is no fit: what their own logs' step timer leaves out of the wall clock."""

UNFITTED_PRESET = _of_software(Software())


UNTIMED_PRESET = PresetConstants(host_s_per_kernel=EAGER_HOST_S, step_fixed_s=0.0)
"""The constants of a preset of which no step was seen: what launches cost otherwise, no fixed time. Steps of
CUDA graphs ask for no launch."""
