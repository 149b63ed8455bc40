"""What measured GEMMs of one's own boards cannot say: their effect is that of the power limit alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...kernels.gemm import gemm_seconds
from ...kernels.kernel import Gemm
from ..scenario.machine import gpu_of
from ..scenario.refusal import NotSupported
from .layers.precision import recipe_of

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..scenario.models import Scenario

_LONG = 16384
"""Sides of a GEMM that lasts: several milliseconds on any GPU."""

_AMISS = 0.03
"""Most by which such a GEMM may miss what was measured: small GPUs that reach their limit just so are
within it (RTX PRO 6000 in FP8)."""


def refuse_measured_products(scenario: Scenario, profile: GpuProfile) -> None:
    """Refuse measured rates of GEMMs that no power limit gives: of GEMMs that stay below the limit, or whose
    clock the boost clock bounds."""
    power = scenario.cluster.power
    if power is None or power.measured_products is None:
        return
    gpu, precision = gpu_of(scenario.cluster), scenario.training.precision
    recipe = recipe_of(scenario, gpu.architecture)
    product = Gemm(m=_LONG, n=_LONG, k=_LONG, dtype=recipe.gemm_dtype if recipe else precision)
    told = gemm_seconds(product, replace(gpu, draws=1.0), profile) / gemm_seconds(product, gpu, profile)
    if abs(told / power.measured_products - 1.0) > _AMISS:
        raise NotSupported(
            "cluster.power.measured_products",
            f"long GEMMs in {precision} on {gpu.name} would run at {told:.2f}, and not at"
            f" {power.measured_products:g}, of their rate: their power limit says no more; fit a profile on"
            " the GEMMs instead (stepsim calibrate fit)",
        )
