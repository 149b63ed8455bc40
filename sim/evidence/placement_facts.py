"""What a prediction says of groups that sit unevenly over NVLink domains, and of GPUs of a domain left idle.

Knows placements and what exchanges of tokens cost on them; decides nothing.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ..figures import TIMES, seconds
from ..lowering.layers.moe import TOKENS
from ..result.step import IN_LAYER, Assumption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..lowering.plan import StepPlan
    from ..network.group_placement import GroupPlacement

SOURCE = "cluster.gpus_per_domain, cluster.placement: docs/clusters.md"
_PART_OF = {"cp.ring": "cp", "cp.heads": "cp", "fsdp": "dp", "efsdp": "edp"}
"""Groups by the larger one that they are a part of. Where a group is all of the larger one, only that is
named."""

MOST = 3
"""Placements that a line names; the others are counted."""


def placement_facts(plan: StepPlan) -> Iterator[Assumption]:
    """A line for the domains where the job leaves GPUs idle, and for each axis that straddles them."""
    cluster = plan.cluster
    idle = cluster.gpus_of_whole_domain - cluster.nvlink_domain
    if idle:
        text = (
            f"NVLink domains: {cluster.nvlink_domain} of {cluster.gpus_of_whole_domain} GPUs of each in use"
        )
        yield Assumption(text=text, source="cluster.gpus_per_domain", note=True)
        yield from _spread(plan)
    groups = plan.placements.groups
    for name, placements in groups.items():
        if name not in ("world", "model") and placements != groups.get(_PART_OF.get(name, "")):
            text = _straddling(name, placements) + _exchange(name, plan)
            yield Assumption(text=text, source=SOURCE, note=True)


def _spread(plan: StepPlan) -> Iterator[Assumption]:
    """A line for each axis whose groups would fit into a whole domain, and lie over several alike."""
    for name in (*IN_LAYER, "etp"):
        placement = plan.groups[name]
        fits = placement.ranks <= plan.cluster.gpus_of_whole_domain
        if placement.domains > 1 and fits and name not in plan.placements.groups:
            count = plan.scenario.world_size // placement.ranks
            text = f"{name}: all {count:,} groups straddle NVLink domains: {in_words(placement)}"
            yield Assumption(text=text + _exchange(name, plan), source=SOURCE, note=True)


def in_words(placement: GroupPlacement) -> str:
    """The group's ranks by domain, such as ``56 + 8`` or ``3 × 72 + 40``."""
    parts = placement.parts or (placement.fewest,) * placement.domains
    runs = ((size, len(list(run))) for size, run in groupby(parts))
    return " + ".join(f"{count} {TIMES} {size}" if count > 1 else str(size) for size, count in runs)


def _straddling(name: str, placements: Mapping[GroupPlacement, int]) -> str:
    """How many groups of an axis lie over more NVLink domains than they need, or unevenly."""
    least = min(placement.domains for placement in placements)
    count = {
        placement: number
        for placement, number in placements.items()
        if placement.domains > least or placement.parts
    }
    ranked = sorted(count, key=lambda placement: (-placement.domains, placement.fewest, -count[placement]))
    named = ", ".join(f"{count[placement]} as {in_words(placement)}" for placement in ranked[:MOST])
    more = f", and {len(ranked) - MOST} ways more" if len(ranked) > MOST else ""
    few, all_ = sum(count.values()), sum(placements.values())
    return f"{name}: {few} of {all_} groups straddle NVLink domains: {named}{more}"


def _exchange(name: str, plan: StepPlan) -> str:
    """What a dispatch of tokens takes on the quickest placement and on the slowest."""
    if name != "ep" or plan.local.experts is None:
        return ""
    size = float(plan.local.tokens * plan.local.hidden * plan.local.element_bytes)
    took = {}
    for rank in plan.placements.first:
        placed = plan.of_groups(rank)
        took[placed.groups["ep"]] = placed.costs.transfer("ep", TOKENS, size).solo_s
    slowest, quickest = max(took, key=took.__getitem__), min(took, key=took.__getitem__)
    words = f"{seconds(took[slowest])} as {in_words(slowest)}"
    if took[slowest] > took[quickest]:
        words += f", {seconds(took[quickest])} as {in_words(quickest)}"
    return f"; an exchange of one microbatch's tokens in 16 bit takes {words}"
