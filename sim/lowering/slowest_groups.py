"""How long the groups of a rank take, where ranks are placed in several ways: to tell the slowest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network.group_placement import GroupPlacement
    from .communication import Communication
    from .placed_groups import PlacedGroups, RankGroups
    from .placements import Placements

IN_LAYERS = ("tp", "cp", "cp.ring", "cp.heads", "ep", "etp")
"""Groups that layers communicate in."""

GATHERED = 64e6
"""Bytes by which groups are compared: of the size of what layers exchange."""


MOST_WAYS = 16
"""Ranks that are looked at, each placed in another way."""


def ways_exchange_s(
    placements: Placements, placed: PlacedGroups, communication: Communication
) -> dict[int, float]:
    """Seconds of the exchanges in a rank's groups, by the first rank of each distinct placement; of more
    than MOST_WAYS placements, the first ones only."""
    return {rank: _exchange_s(placed.of_rank(rank), communication) for rank in placements.first[:MOST_WAYS]}


def _exchange_s(groups: RankGroups, communication: Communication) -> float:
    """Seconds in which the groups of a rank gather GATHERED bytes each, one after the other. A group counts 0
    where the job's settings leave no algorithm that gathers: it may have nothing to gather."""
    found = {groups[name] for name in (*IN_LAYERS, "fsdp", "efsdp")}
    several = sorted((one for one in found if one.ranks > 1), key=lambda one: (one.ranks, one.domains))
    return sum(_gather_s(one, communication) for one in several)


def _gather_s(group: GroupPlacement, communication: Communication) -> float:
    try:
        return communication.collective("all_gather", GATHERED, group).solo_s
    except ValueError:
        return 0.0
