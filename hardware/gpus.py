"""The GPUs by name.

Knows the catalogue files gpus.yaml and gpus_carried.yaml, and accelerators that are refused; what its figures
mean is in gpu.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from .catalogue import Table, unknown_name
from .gpu import Gpu
from .shown import value_text

_KIB = 2**10
_MIB = 2**20
_GIB = 2**30


def get_gpu(name: str) -> Gpu:
    """The GPU of that catalogue key, or of a shorter name that only one has. Errors of ``gpu_called``."""
    gpus = GPUS.records()
    return gpus[name if name in gpus else gpu_called(name)]


def gpu_key(value: Any) -> Any:
    """The catalogue key that a shorter name means; a value that names no GPU is returned as it is, and the
    checks of the scenario report it."""
    try:
        return gpu_called(value) if isinstance(value, str) else value
    except ValueError:
        return value


def gpu_called(name: str) -> str:
    """The catalogue key that ``name`` means: ``H200``, ``h100-sxm5``, ``rtx4090``, ``NVIDIA GB200`` will do.

    The first word must be the model; every other one must begin a word of the key. Words may be written
    together. A name that several keys fit is refused: an A100 is four GPUs.

    >>> gpu_called("H200"), gpu_called("a100 pcie"), gpu_called("rtx4090")
    ('H200-SXM-141GB', 'A100-PCIe-80GB', 'RTX-4090')

    Raises:
        ValueError: no such GPU, or several; the message has the nearest ones.
    """
    known = gpu_names()
    if name in known:
        return name
    model, *asked = _words(name) or [""]
    refused = next((why for start, why in _NOT_MODELLED.items() if model.startswith(start)), None)
    if refused:
        raise NotModelled(f"{value_text(name)} is not modelled: {refused}")
    found = []
    for key, gpu in GPUS.records().items():
        if any(_words(other) == [model, *asked] for other in gpu.called):
            return key
    for key in known:
        own = _words(key)
        if own == [model, *asked]:
            return key
        if own[0] == model and all(any(word.startswith(one) for word in own[1:]) for one in asked):
            found.append(key)
    found = found or [key for key in known if "".join([model, *asked]) in accumulate(_words(key))]
    if len(found) > 1:
        raise ValueError(f"{name} is {len(found)} GPUs; name one of them: {', '.join(found)}")
    if not found:
        shorter = {start: key for key in reversed(known) for start in accumulate(_words(key))}
        raise unknown_name("GPU", name, known, shorter)
    return found[0]


class NotModelled(ValueError):
    """The accelerator exists, and nothing here predicts it."""


_NOT_MODELLED = {
    "tpu": "its compiler lays out matrices on systolic arrays, its chips meet on a torus without NCCL, "
    "and no kernel or collective of it was measured here",
    "trn": "its compiler schedules NeuronCores by its own rules, NeuronLink runs without NCCL, and no kernel "
    "or collective of it was measured here",
    "gaudi": "its matrix engines and its HCCL over Ethernet have no measured kernel or collective here",
} | dict.fromkeys(("trillium", "ironwood"), "it is a TPU, whose compiler and torus have no model here")
_NOT_MODELLED |= dict.fromkeys(("trainium", "inferentia"), _NOT_MODELLED["trn"])
"""Accelerators that are refused rather than approximated, by how their names begin."""


def _words(name: str) -> list[str]:
    """Lower-case parts of a GPU's name, without its maker."""
    words = re.split(r"[\s_-]+", str(name).strip().lower())
    return words[1:] if words[0] in ("nvidia", "amd") else words


def gpu_names() -> tuple[str, ...]:
    """Every catalogue key, in the order of the file."""
    return GPUS.names()


_PACE = (
    "vendor", "architecture", "sms", "boost_hz", "peak_flops", "hbm_bytes_per_s",
    "l2_bytes", "l2_bytes_per_s", "sram_bytes_per_sm", "tdp_w",
)  # fmt: skip
"""Fields that decide how long a kernel takes on a GPU: chip, clock, memory and power, but not links."""


def same_pace(name: str) -> str:
    """The first GPU of the catalogue on which every kernel takes as long as on the GPU ``name``.

    It is that GPU itself, or one that differs from it in links and size of memory alone. A name that the
    catalogue lacks is returned as it is.

    >>> same_pace("H800-SXM5-80GB"), same_pace("H200-SXM-141GB")
    ('H100-SXM5-80GB', 'H200-SXM-141GB')
    """
    gpus = GPUS.records()
    if name not in gpus:
        return name
    pace = _pace(gpus[name])
    return next(other for other, gpu in gpus.items() if _pace(gpu) == pace)


def same_kernels(gpu: Gpu, other: Gpu) -> bool:
    """Whether kernels take as long on both at the same power; how the power limit moves their clock is known
    (limited_clock.py)."""
    return _pace(replace(gpu, tdp_w=other.tdp_w)) == _pace(other)


def _pace(gpu: Gpu) -> tuple[Any, ...]:
    return tuple(getattr(gpu, field) for field in _PACE)


def _gpu(*, name: str, hbm_gib: float, l2_mib: float, sram_kib_per_sm: float, **fields: Any) -> Gpu:
    fields["called"] = tuple(fields.get("called", ()))
    return Gpu(
        name=name,
        hbm_bytes=hbm_gib * _GIB,
        l2_bytes=l2_mib * _MIB,
        sram_bytes_per_sm=sram_kib_per_sm * _KIB,
        **fields,
    )


GPUS = Table("GPU", __package__, "gpus.yaml", _gpu)
GPUS.add(Path(__file__).with_name("gpus_carried.yaml"))
