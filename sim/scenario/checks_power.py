"""What holds for a power limit, and for what boards sustain under it: below the maker's, above what the GPU
draws idle, and of known effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .finding import Finding
from .machine import gpu_as_sold

if TYPE_CHECKING:
    from .blocks import ClusterSpec


def power_limit_is_possible(cluster: ClusterSpec) -> Iterator[Finding]:
    """A limit that the GPU can be set to, and of which the clock that it leaves is known."""
    if cluster.power is None or cluster.power.limit is None:
        return
    limit_w = cluster.power.limit
    gpu = gpu_as_sold(cluster)
    path = ("cluster", "power", "limit")
    if limit_w > gpu.tdp_w:
        message = f"{gpu.name} has a limit of {gpu.tdp_w:g} W; it cannot be set to {limit_w:g} W"
        yield Finding(path=path, message=message)
    elif gpu.joules_per_flop is None and limit_w < gpu.tdp_w:
        message = f"what {limit_w:g} W do to the clock of {gpu.name} is unknown: its FLOPs' energy is"
        yield Finding(path=path, message=message)
    elif limit_w < LEAST * gpu.tdp_w:
        message = f"{limit_w:g} W is less than {gpu.name} can be set to, about {LEAST * gpu.tdp_w:g} W"
        yield Finding(path=path, message=message)


def measured_products_count(cluster: ClusterSpec) -> Iterator[Finding]:
    """Rates of GEMMs under a limit say something of GPUs alone whose watts are known."""
    if cluster.power is None or cluster.power.measured_products is None:
        return
    gpu = gpu_as_sold(cluster)
    if gpu.joules_per_flop is None:
        message = (
            f"what a FLOP of {gpu.name} draws is unknown, and so what its limit leaves; fit a profile on the "
            "GEMMs instead (stepsim calibrate fit)"
        )
        yield Finding(path=("cluster", "power", "measured_products"), message=message)


LEAST = 0.25
"""Share of the maker's limit that is the lowest drivers allow: 200 of 700 W on H100 (nvidia-smi -q -d POWER),
100 of 400 W on A100."""
