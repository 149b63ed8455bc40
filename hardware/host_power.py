"""What a host draws beside its GPUs: processors, memory, fans, NICs, switches of NVLink.

Knows watts at full load, by what was measured of a host of 8 H100 and of a tray of 4 GB200. Of any other
host it takes the same share of its GPUs' limits; how far that can be wrong is part of the energy's interval.

References:
    Latif et al., "Empirical Measurements of AI Training Power Demand on a GPU-Accelerated Node",
    arXiv:2412.08602: 8 x H100 in air at 8.4 kW at most of 10.2 kW rated; arXiv:2506.14551: heavy loads
    at 0.76 of what is rated, 7.75 kW.
    MLPerf Training 4.0 with power, smc.co/mlperfv40 (8 x H100 immersed, one host: 6.74 kW without fans).
    NVIDIA DPS documentation: tray of GB200 at most 6.67 kW, of which 4 GPUs are 4.8 kW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .gpu import Gpu

HOST_SHARE = 0.43
"""What a host itself draws, as a share of the power limits of its GPUs: 2.4 of 5.6 kW (H100 in air)."""

SHARE_OF = {"GB200-NVL72": 0.39, "GB300-NVL72": 0.34}
"""Trays of NVL72 are cooled with water: 1.87 of 4.8 kW, and the same beside GPUs of 1.4 kW."""


def host_w(gpu: Gpu, gpus: int) -> float:
    """Watts of a host of ``gpus`` of these beside what those draw.

    >>> from .gpus import get_gpu
    >>> round(host_w(get_gpu("H100-SXM5-80GB"), 8)), round(host_w(get_gpu("GB200-NVL72"), 4))
    (2408, 1872)
    """
    return SHARE_OF.get(gpu.name, HOST_SHARE) * gpus * gpu.tdp_w
