"""How long the groups of a rank take, where ranks are placed in several ways: to tell the slowest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .communication import Communication
    from .placed_groups import RankGroups

IN_LAYERS = ("tp", "cp", "cp.ring", "cp.heads", "ep", "etp")
"""Groups that layers communicate in."""

GATHERED = 64e6
"""Bytes by which groups are compared: of the size of what layers exchange."""


def exchange_s(groups: RankGroups, communication: Communication) -> float:
    """Seconds in which the groups of a rank gather as much each, one after the other."""
    found = {groups[name] for name in (*IN_LAYERS, "fsdp", "efsdp")}
    several = sorted((one for one in found if one.ranks > 1), key=lambda one: (one.ranks, one.domains))
    return sum(communication.collective("all_gather", GATHERED, one).solo_s for one in several)
