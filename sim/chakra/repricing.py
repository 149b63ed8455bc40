"""What the ops of our own traces take on another cluster than the one that they were written for.

What lowering knew of a communication besides its kind, its bytes and its ranks (checked calls, tokens that
are copied once a host) is the factor between what the trace states and what its own cluster is priced at; it
stays. So the traced cluster itself changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .validate import collective_kind

if TYPE_CHECKING:
    from ..network.transfer import Transfer
    from .node import TraceNode
    from .pricing import Prices, Rule

_OF_OURS = ("ring_step", "neighbours")
"""Collectives that Chakra has no number for and the network has a price for."""


@dataclass(frozen=True, kw_only=True)
class Repricing:
    """``here`` is the cluster of the trace, ``there`` the one that is asked about; ``groups`` are the ranks
    of process groups by number."""

    here: Prices
    there: Prices
    rule: Rule
    groups: Mapping[str, tuple[int, ...]]

    def kernel_s(self, stated_s: float, flops: float, size: float) -> float:
        """Seconds of a kernel: as traced, or by its FLOPs and bytes."""
        return self.there.kernel_s(flops, size) if self.rule == "flops" and (flops or size) else stated_s

    def collective(self, node: TraceNode, stated: Transfer) -> Transfer:
        """What a collective takes on the other cluster between the ranks of its group; a group of one rank
        keeps what is stated. It stays by as much slower than its price as it was on the cluster of the
        trace."""
        ranks = self.groups.get(node.text("pg_name"), ())
        if len(ranks) < 2:
            return stated
        named = node.text("collective")
        kind = named if named in _OF_OURS else collective_kind(node)
        handed = stated.bytes / (len(ranks) if kind == "all_gather" else 1)
        return _moved(stated, *(one.collective(kind, handed, ranks) for one in (self.here, self.there)))

    def message(self, rank: int, node: TraceNode, stated: Transfer) -> Transfer:
        """What a message takes on the other cluster, of which ``node`` is the end that ``rank`` posts."""
        ends = node.ends(rank)
        return _moved(stated, *(one.message(stated.bytes, *ends) for one in (self.here, self.there)))


def _moved(stated: Transfer, here: Transfer, there: Transfer) -> Transfer:
    """``there``, by as much slower than its price as ``stated`` is than the price ``here``."""
    if here == there or not here.solo_s:
        return stated
    return there.slower(stated.solo_s / here.solo_s)
