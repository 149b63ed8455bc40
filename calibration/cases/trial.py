"""Constants that one step is tried with, and the profile that they make of a GPU's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Constants to simulate one row with.

    ``step_fixed_s`` is not among them: it is the last op of every rank, and is simply added to the step.
    """

    clock_fraction: float
    corun_slowdown: float
    host_s_per_kernel: float


def tried(gpu: str, trial: Trial) -> GpuProfile:
    """The profile of ``gpu`` with the constants of ``trial``."""
    return _profile(gpu, trial.clock_fraction, trial.corun_slowdown)


@cache
def _profile(gpu: str, clock_fraction: float, corun_slowdown: float) -> GpuProfile:
    """One object per trial: kernels' costs are memoised by profile, and equal ones compare slowly."""
    from ...hardware.calibrated.overlay import load_profile

    return replace(load_profile(gpu), clock_fraction=clock_fraction, corun_slowdown=corun_slowdown)
