"""What moves on the links of one rank: its own collectives, and flows of others beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ..network.sharing import Demand
from .shares import Shares

if TYPE_CHECKING:
    from ..network.sharing import Link
    from ..network.transfer import Transfer
    from .shares import Share


class OwnRates:
    """Rates of a class's own transfers, and of flows beside them, on its ``links``."""

    def __init__(self, links: Mapping[str, float]) -> None:
        self._shares = Shares(cast("Mapping[Link, float]", links))
        self._demands: dict[int, tuple[Transfer, Demand]] = {}
        self._kinds: dict[tuple[object, ...], Demand] = {}
        self._named: dict[tuple[int, int], tuple[Demand, Demand]] = {}
        self._known: dict[tuple[int, ...], list[Share]] = {}

    def demand(self, transfer: Transfer) -> Demand:
        """The links that a transfer uses, by local names. Equal transfers return the same object."""
        known = self._demands.get(id(transfer))
        if known is None:
            demand = self.kind(transfer.ceiling_bytes_per_s, transfer.local_weights)
            known = self._demands[id(transfer)] = transfer, demand
        return known[1]

    def kind(self, ceiling: float, weights: tuple[tuple[str, float], ...]) -> Demand:
        """The demand with this ceiling, in payload bytes per second, and these bytes on links for each."""
        key = ceiling, weights
        if key not in self._kinds:
            self._kinds[key] = Demand(ceiling, cast("tuple[tuple[Link, float], ...]", weights))
        return self._kinds[key]

    def named(self, demand: Demand, r: int) -> Demand:
        """The demand of a flow on links of rank ``r``, by the names that it has for these."""
        known = self._named.get((id(demand), r))
        if known is None:
            weights = cast("tuple[tuple[tuple[int, str], float], ...]", demand.weights)
            own = tuple([(name, weight) for (rank, name), weight in weights if rank == r])
            known = self._named[id(demand), r] = demand, self.kind(demand.ceiling, own)
        return known[1]

    def of(self, demands: tuple[Demand, ...]) -> list[Share]:
        """The payload bytes per second of each transfer while all move, and the link that keeps it below
        its ceiling."""
        key = tuple(map(id, demands))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._shares.shared(demands, [d.weights for d in demands])
        return known
