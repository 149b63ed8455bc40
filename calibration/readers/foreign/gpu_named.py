"""The catalogue's name of a GPU that a driver, a cloud or a person calls otherwise.

Knows names of boards, and that one name is used for boards of different memory. Does not guess: another board
of a known chip, with other power, links or memory, has no name here.
"""

from __future__ import annotations

import re

from ....hardware.gpus import get_gpu, gpu_names

# The first that fits counts; None: a board of that chip which the catalogue lacks. Sources: what nvidia-smi
# and torch.cuda.get_device_name print (NVIDIA's driver), headers of published logs.
_NAMES: tuple[tuple[str, str | None], ...] = (
    (r"GB300", "GB300-NVL72"),
    (r"GB200", "GB200-NVL72"),
    (r"GH200", None),
    (r"\bH[128]00 ?NVL|\bH[128]00L", None),
    (r"A100X|A100\W.*PCIe?\W.*40 ?GB", None),
    (r"A100\W.*64 ?GB", "A100-SXM4-64GB"),
    (r"A100\W.*40 ?GB|A100-PG509-200", "A100-SXM4-40GB"),
    (r"A100\W.*PG50\d", None),
    (r"A100\W.*PCIe", "A100-PCIe-80GB"),
    (r"A100(?!\d)", "A100-SXM4-80GB"),
    (r"H100\W.*PCIe", "H100-PCIe-80GB"),
    (r"H100\W.*96 ?GB HBM2e", "H100-SXM-HBM2e-96GB-500W"),
    (r"H100\W.*64 ?GB", "H100-SXM5-64GB"),
    (r"H100\W.*(?:94|96) ?GB", None),
    (r"H100(?!\d)", "H100-SXM5-80GB"),  # "H100 or H200" too: their NVLink is the same
    (r"H800\W.*PCIe", None),
    (r"H800(?!\d)", "H800-SXM5-80GB"),
    (r"\bH200(?!\d)", "H200-SXM-141GB"),
    (r"\bB300(?!\d)", "B300-SXM"),
    (r"\bB200(?!\d)", "B200-SXM-180GB"),
    (r"MI300X", "MI300X"),
    (r"V100-SXM2-16 ?GB", "V100-SXM2-16GB"),
    (r"V100-SXM2-32 ?GB", "V100-SXM2-32GB"),
    (r"V100-PCIE-16 ?GB", "V100-PCIe-16GB"),
)
_CAPACITY = 0.06
"""By which capacities of one board may differ: what ECC and drivers keep, GB against GiB not among it."""


def gpu_named(text: str, memory_bytes: float | None = None) -> str | None:
    """The catalogue's key of what is called ``text``; None where the catalogue has no such board.

    ``memory_bytes``, where the file states it, must be that of the board: it chooses among boards of one
    name, and part of a board, or one of other memory, has none.

    >>> gpu_named("NVIDIA H100 80GB HBM3"), gpu_named("NVIDIA GeForce RTX 4090")
    ('H100-SXM5-80GB', None)
    >>> gpu_named("NVIDIA A100", 42297524224), gpu_named("NVIDIA GH200 480GB")
    ('A100-SXM4-40GB', None)
    """
    if text in gpu_names():
        found: str | None = text
    else:
        found = next((name for rule, name in _NAMES if re.search(rule, text, re.IGNORECASE)), None)
    if found is None or not memory_bytes or _has(found, memory_bytes):
        return found
    board = found.rpartition("-")[0]  # without the capacity, which ends the catalogue's names
    alike = (name for name in gpu_names() if name.rpartition("-")[0] == board)
    return next((name for name in alike if _has(name, memory_bytes)), None)


def _has(name: str, memory_bytes: float) -> bool:
    return abs(memory_bytes / get_gpu(name).hbm_bytes - 1) <= _CAPACITY
