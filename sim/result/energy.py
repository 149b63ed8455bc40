"""What a step draws: GPUs by what they do, their hosts, the network and the site where they are stated.

Knows shares of a step by activity, and watts (``kernels/power.py``, ``hardware/host_power.py``); one healthy
step. Does not know how power follows single kernels: controllers and supplies smooth over some milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...hardware.host_power import host_w
from ...kernels.power import Activity, drawn_w
from ..scenario.blocks import PowerSpec
from ..scenario.machine import gpu_as_sold, gpu_of
from .step import AXES

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ..scenario.models import Scenario

J_PER_KWH = 3.6e6

SPREAD = 0.15
"""Half of the interval of an energy, as a share of it: what sources of one load differ by
(``docs/energy.md``: +-15 % for GPUs whose draw was measured)."""

SPREAD_UNMEASURED = 0.30
"""Relative uncertainty for a GPU whose energy per FLOP nobody published."""

AC_PER_DC = 1.03
"""What the supplies of a host lose: 3 % (MLPerf Training 4.0 with power, smc.co/mlperfv40)."""


@dataclass(frozen=True, kw_only=True)
class StepEnergy:
    """Energy of one step of the whole job, at the plugs of its hosts, or of its site where ``pue`` is stated.

    ``gpu_w`` is the mean of a GPU, ``host_w`` a host's share of one GPU, ``network_w`` of switches and
    storage likewise, all before the supplies' losses; ``per_gpu_w`` is all of it a GPU, losses and site
    included. ``by_activity`` are shares of the step. ``measured`` says whether the draw of this GPU was.
    ``carbon_g`` is None without an intensity of the grid.
    """

    gpu_w: float
    host_w: float
    network_w: float
    per_gpu_w: float
    pue: float | None
    by_activity: Mapping[Activity, float]
    per_step_j: float
    low_j: float
    high_j: float
    per_trillion_tokens_kwh: float
    carbon_g: float | None
    measured: bool


def activity_of(parts_s: Mapping[str, float]) -> dict[Activity, float]:
    """Seconds by activity, from seconds of a compute stream by the kind of kernel, by the axis that it stood
    still for, and (all other names) by whom it waited for.

    >>> activity_of({"gemm": 3.0, "attention": 1.0, "optimizer": 0.5, "dp": 1.0, "bubble": 2.0})
    {'tensor': 4.0, 'memory': 0.5, 'communication': 1.0, 'waiting': 2.0}
    """
    found: dict[Activity, float] = {"tensor": 0.0, "memory": 0.0, "communication": 0.0, "waiting": 0.0}
    for name, part_s in parts_s.items():
        found[_activity(name)] += part_s
    return found


def _activity(name: str) -> Activity:
    if name in ("gemm", "attention"):
        return "tensor"
    if name in ("memory-bound", "fixed", "optimizer"):
        return "memory"
    return "communication" if name in AXES else "waiting"


def step_energy(
    scenario: Scenario | None, step_time_s: float, activity_s: Mapping[Activity, float], flops_per_gpu: float
) -> StepEnergy | None:
    """The energy of a step of ``step_time_s`` in which a GPU was active so long and computed
    ``flops_per_gpu``; None for a program without a scenario, or without work, or on
    several kinds of GPUs."""
    if scenario is None or not sum(activity_s.values()) or scenario.cluster.other_gpus:
        return None
    cluster, training = scenario.cluster, scenario.training
    gpu, stated = gpu_of(cluster), cluster.power or PowerSpec()
    shares, gpu_w = _gpu(gpu, activity_s, flops_per_gpu, training.precision)
    host_w = _host_w(scenario) / cluster.gpus_per_node
    network_w = stated.network_per_host / cluster.gpus_per_node
    per_gpu_w = (gpu_w + host_w + network_w) * AC_PER_DC * (stated.pue or 1.0)
    per_step_j = per_gpu_w * cluster.gpus * step_time_s
    measured = gpu.joules_per_flop is not None and not gpu.profile_of
    spread = SPREAD if measured else SPREAD_UNMEASURED
    step_kwh, intensity = per_step_j / J_PER_KWH, stated.carbon_g_per_kwh
    return StepEnergy(
        gpu_w=gpu_w,
        host_w=host_w,
        network_w=network_w,
        per_gpu_w=per_gpu_w,
        pue=stated.pue,
        by_activity=shares,
        per_step_j=per_step_j,
        low_j=(1.0 - spread) * per_step_j,
        high_j=(1.0 + spread) * per_step_j,
        per_trillion_tokens_kwh=step_kwh * 1e12 / training.tokens_per_step,
        carbon_g=None if intensity is None else step_kwh * intensity,
        measured=measured,
    )


def _gpu(
    gpu: Gpu, activity_s: Mapping[Activity, float], flops_per_gpu: float, dtype: str
) -> tuple[dict[Activity, float], float]:
    """Shares of the step by activity, and the mean watts of a GPU."""
    accounted_s, tensor_s = sum(activity_s.values()), activity_s["tensor"]
    shares = {name: part_s / accounted_s for name, part_s in activity_s.items()}
    rate = flops_per_gpu / tensor_s if tensor_s else 0.0
    watts = {name: drawn_w(name, gpu, flops_per_s=rate, dtype=dtype) for name in shares}
    return shares, sum(share * watts[name] for name, share in shares.items())


def _host_w(scenario: Scenario) -> float:
    """Watts of a host beside its GPUs: as stated, else by measured hosts, whatever limit its GPUs are set
    to."""
    cluster = scenario.cluster
    if cluster.power is not None and cluster.power.host is not None:
        return cluster.power.host
    return host_w(gpu_as_sold(cluster), cluster.gpus_per_node)


def energy_document(found: StepEnergy | None) -> dict[str, Any] | None:
    """The energy of a step as JSON has it; None where there is no scenario."""
    if found is None:
        return None
    return {
        "per_step_kwh": found.per_step_j / J_PER_KWH,
        "interval_kwh": [found.low_j / J_PER_KWH, found.high_j / J_PER_KWH],
        "per_trillion_tokens_kwh": found.per_trillion_tokens_kwh,
        "carbon_g_per_step": found.carbon_g,
        "watts_per_gpu": {
            "gpu": found.gpu_w,
            "host": found.host_w,
            "network": found.network_w,
            "all": found.per_gpu_w,
        },
        "pue": found.pue,
        "by_activity": dict(found.by_activity),
        "measured": found.measured,
    }
