"""The links that bound each axis of communication, for people at a terminal.

Knows rich; computes nothing but shares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..figures import percent, seconds
from ..result.result import Result
from ..result.step import AXES, Bound

if TYPE_CHECKING:
    from rich.table import Table

WORDS = {"nvlink": "NVLink", "nic": "NIC", "pcie": "PCIe"}
NUMBER = re.compile(r" [\d.]+")
LEAST = 1e-5
"""Share of the step below which an axis has no row."""


def bounds_table(result: Result) -> Table:
    """A row an axis: how long its communications move per rank, and what bounds them for how much of it."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for axis in dict.fromkeys((*AXES, *(bound.axis for bound in result.bounds))):
        rows = [bound for bound in result.bounds if bound.axis == axis]
        total_s = sum(bound.seconds for bound in rows)
        if total_s > LEAST * result.step_time_s:
            words = links_words(rows).replace(WORDS["nvlink"], _nvlink(result))
            table.add_row(f"  {axis.upper()}", seconds(total_s), Text(words))
    return table


def _nvlink(result: Result) -> str:
    """What the maker of the GPU calls its links."""
    from ..scenario.machine import gpu_of

    return gpu_of(result.scenario.cluster).link_name if result.scenario else WORDS["nvlink"]


def links_words(rows: Sequence[Bound]) -> str:
    """Links of one tier together, the busiest of them by name.

    >>> nic = {"nic": 3.0, "nic, shared": 1.0}
    >>> links_words([Bound(axis="dp", link=link, seconds=s) for link, s in nic.items()])
    'NIC 75.0 %, NIC (shared) 25.0 %'
    >>> links_words([Bound(axis="pp", link=f"leaf {i} -> spine 0", seconds=2.0 - i) for i in (0, 1)])
    'leaf -> spine 100.0 % (2 links, most of all leaf 0 -> spine 0)'
    """
    total_s = sum(bound.seconds for bound in rows)
    tiers: dict[str, list[Bound]] = {}
    for bound in rows:
        tiers.setdefault(NUMBER.sub("", bound.link).split(" #")[0], []).append(bound)
    words = []
    for tier, alike in sorted(tiers.items(), key=lambda item: -sum(b.seconds for b in item[1])):
        share = percent(sum(bound.seconds for bound in alike) / total_s)
        if len(alike) == 1:
            words.append(f"{_link_words(alike[0].link)} {share}")
        else:
            most = max(alike, key=lambda bound: bound.seconds)
            words.append(f"{tier} {share} ({len(alike)} links, most of all {most.link})")
    return ", ".join(words)


def _link_words(link: str) -> str:
    """A tier in its own spelling; links of the fabric as they are."""
    tier, _, shared = link.partition(", ")
    return WORDS.get(tier, tier) + (f" ({shared})" if shared else "")
