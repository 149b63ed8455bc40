"""How versions of NCCL differ in what their tuning model assumes.

Knows 2.18 to 2.30, and which of them to take for a job that does not say: that of the logs its
architecture was measured with. Knows no equations: those are in ``cost_model.py``.

Sources: NCCL src/graph/tuning.cc of the tags v2.18.3 to v2.30.7; the project's table of hardware facts,
section 3.1 ("Versions", and the table of constants by version).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from ....schedules.transfers.collective import CollectiveKind
from .constants import ARCHITECTURES, Architecture

Version = tuple[int, int]

FIRST: Version = (2, 18)
LAST: Version = (2, 30)
OF_TABLES: Version = (2, 28)
"""The version that ``constants`` states."""

USUAL: Mapping[str, Version] = {"ampere": (2, 18), "ada": (2, 18), "hopper": (2, 26), "blackwell": (2, 28)}
"""The version of the public logs of an architecture, by their own lines ``nccl:`` where they have one (H100:
2.26.2; B200, GB300: 2.28; A100: logs of 2021 to 2023, before the LL protocol's share changed in 2.21)."""

_UNLIMITED = (0.0, math.inf, math.inf)


def parse_version(text: str) -> Version:
    """The first two numbers of ``2.26.2`` or ``2.18.5+cuda12.2``; versions beyond the known ones are the
    nearest of them.

    >>> parse_version("2.26.2+cuda12.8"), parse_version("2.10.3")
    ((2, 26), (2, 18))

    ValueError for what is no version.
    """
    numbers = text.split("+")[0].split(".")
    if len(numbers) < 2 or not all(re.fullmatch("[0-9]{1,4}", one) for one in numbers[:2]):
        raise ValueError(f"NCCL version {text!r}: expected one such as 2.28.9")
    return max(FIRST, min(LAST, (int(numbers[0]), int(numbers[1]))))


@cache
def architecture_at(name: str, version: Version) -> Architecture:
    """The limits of an architecture as that version has them."""
    base = ARCHITECTURES[name]
    if version < (2, 28):
        base = replace(base, nvls_tree=_UNLIMITED)
    if name == "hopper" and version <= (2, 20):
        return replace(base, ll=ARCHITECTURES["ampere"].ll)
    if name == "blackwell" and version < (2, 28):
        return replace(base, ring_ll128=(73.4,) * 3, tree_ll128=(73.4, 73.4, 58.0), tree=(77.4, 82.8, 72.0))
    if name == "blackwell" and version >= (2, 29):
        limit = 80.0 if version >= (2, 30) else base.nvls_tree[2]
        return replace(base, ring_ll128=(40.0,) * 3, nvls_tree=(*base.nvls_tree[:2], limit))
    return base


def ll_share(version: Version, kind: CollectiveKind, nodes: int) -> float:
    """What a ring with the LL protocol carries of its channels' rate."""
    if version > (2, 20):
        return 0.5
    reduces = kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE)
    return 1 / 4 if nodes > 1 or reduces else 1 / 3


def nvls_share(version: Version, nodes: int, *, tree: bool) -> float | None:
    """Algorithm over channel bandwidth of NVLS and NVLSTree up to 2.27, which knew no efficiency of the
    switches; None from 2.28 on."""
    if version >= (2, 28):
        return None
    if tree and version == (2, 18):
        return 0.7 * nodes / (2 * (nodes - 1))
    return 5 / 6


def tree_simple_base_us(version: Version, otherwise: float) -> float:
    """Trees with Simple cost nothing to start with up to 2.22."""
    return 0.0 if version <= (2, 22) else otherwise


def knows_c2c(version: Version) -> bool:
    """Whether NCCL knows the NVLink-C2C through which a GPU reaches NICs on its CPU.

    Up to 2.26 it sees the GPU's PCIe link alone, whose speed it cannot read there, and a way through the CPU,
    on which LL128 is not let in (tuning.cc: typeInter <= PATH_PXB); 2.27 lets it in (NCCL_LL128_C2C). CSCS
    bars it again on Slingshot, where it is slower (docs.cscs.ch, communication/nccl: NCCL_PROTO=^LL128). That
    the speed is unknown is derived: with it, rings begin where Alps' log of 64 GPUs shows it (64 MiB).
    """
    return version >= (2, 27)


def tree_chunks_by_depth(version: Version) -> bool:
    """Whether a tree with Simple cuts smaller chunks where few of them would fill it: up to 2.21.

    The plan of channels that 2.22 brought (enqueue.cc, calcCollChunking) left that out.
    """
    return version < (2, 22)
