"""nccl-tests' definitions: names of the collectives, and bus bandwidth over algorithm bandwidth.

Knows what a log without names gives away about its collective and its ranks.

Source: NVIDIA/nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...hardware.collective_kinds import KINDS, known_kind
from ...sim.network.group_placement import ROUNDS

_HYPERCUBE = "hypercube"
"""A program of nccl-tests that no other part prices."""

BUS_FACTORS: Mapping[str, int] = {kind: ROUNDS.get(kind, 0) for kind in KINDS} | {_HYPERCUBE: 0}
"""How often (n-1)/n enters the factor; 0: the factor is 1."""


def named_kind(name: str) -> str | None:
    """The collective of a program or title, such as ``all_reduce_perf``; None for one unknown.

    >>> named_kind("all_reduce_perf"), named_kind("AllGather"), named_kind("?")
    ('all_reduce', 'all_gather', None)
    """
    return _HYPERCUBE if name.lower().removesuffix("_perf") == _HYPERCUBE else known_kind(name)


def kind_of(fields: Mapping[str, str], ratio: float | None, *, unchecked: bool) -> str | None:
    """The collective that a row betrays: by its operation and root, and bus over algorithm bandwidth.

    ``unchecked``: the in-place half has N/A for errors, as only all_to_all and sendrecv print it.
    None where two or more collectives print such a row.
    """
    reduces = fields.get("redop", "none") != "none"
    rooted = fields.get("root", "-1") != "-1"
    if ratio is None:
        return None
    if ratio > 1.02:
        return "all_reduce"
    if ratio < 0.98:
        if reduces:
            return "reduce_scatter"
        return None if rooted else "all_to_all" if unchecked else "all_gather"
    if rooted:
        return "reduce" if reduces else "broadcast"
    return "sendrecv" if unchecked else None


def ranks_by_bus_factor(kind: str, ratio: float | None) -> int | None:
    """Ranks from bus over algorithm bandwidth; None where it does not change with them or is near its limit.

    >>> [ranks_by_bus_factor(*one) for one in (("all_reduce", 1.75), ("all_gather", 0.9375), ("sendrecv", 1))]
    [8, 16, None]
    """
    times = BUS_FACTORS[kind]
    if not times or ratio is None:
        return None
    short = 1 - ratio / times  # 1/n
    if not 1 / 64 < short < 1:
        return None
    ranks = round(1 / short)
    return ranks if abs(1 / short - ranks) < 0.1 * ranks else None
