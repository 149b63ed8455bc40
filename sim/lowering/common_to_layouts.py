"""What layouts of one search have in common, computed once: an object that is passed in, never a global."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...schedules.orders.schedule import Shape
    from ..scenario.models import Scenario

Found = TypeVar("Found")


@dataclass(kw_only=True)
class SearchCache:
    """Results that the layouts of a search share, by everything that they depend on."""

    _known: dict[Hashable, object] = field(default_factory=dict)

    def get(self, key: tuple[Hashable, ...], make: Callable[[], Found]) -> Found:
        """The result for ``key``, made by ``make`` the first time. The first entry of ``key`` names what
        it is."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found  # type: ignore[return-value]  # the first entry says its type


def ordered_by(scenario: Scenario, shape: Shape) -> tuple[Hashable, ...]:
    """All fields of a scenario, and of its pipeline's shape, on which the orders of a step depend."""
    return scenario.schedule, shape, runs_pairs(scenario)


def runs_pairs(scenario: Scenario) -> bool:
    """Whether expert exchanges overlap with the layers of another microbatch."""
    return scenario.software.exchange.moe_a2a_overlap and scenario.parallelism.ep > 1
