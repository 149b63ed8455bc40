"""The GPUs by name.

Knows the catalogue file gpus.yaml; what its figures mean is in gpu.py.
"""

from __future__ import annotations

from functools import cache

from .catalogue import read, unknown_name
from .gpu import Gpu

_KIB = 2**10
_MIB = 2**20
_GIB = 2**30


def get_gpu(name: str) -> Gpu:
    """The GPU of that catalogue key.

    Raises:
        ValueError: no such key; the message has the nearest one and all of them.
    """
    gpus = _gpus()
    if name not in gpus:
        raise unknown_name("GPU", name, gpus)
    return gpus[name]


def gpu_names() -> tuple[str, ...]:
    """Every catalogue key, in the order of the file."""
    return tuple(_gpus())


@cache
def _gpus() -> dict[str, Gpu]:
    gpus = {}
    for name, entry in read("gpus.yaml").items():
        capacities = {
            "hbm_bytes": entry.pop("hbm_gib") * _GIB,
            "l2_bytes": entry.pop("l2_mib") * _MIB,
            "sram_bytes_per_sm": entry.pop("sram_kib_per_sm") * _KIB,
        }
        gpus[name] = Gpu(name=name, **entry, **capacities)
    return gpus
