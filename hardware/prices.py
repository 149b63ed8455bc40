"""What a GPU-hour costs by published price lists, each price with its date and its source.

Knows prices.yaml. A price that a user states needs none of this.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .catalogue import Table, unknown_name

MEDIAN = "median"
"""In place of a provider: the middle of what all lists ask for a GPU."""


@dataclass(frozen=True, kw_only=True)
class ListPrice:
    """What ``provider`` asks for an hour of a GPU on demand, in US dollars, when that was so, and who says
    it."""

    name: str
    gpu: str
    provider: str
    usd_per_hour: float
    when: str
    source: str


PRICES = Table("price", __package__, "prices.yaml", ListPrice)


def prices_of(gpu: str) -> tuple[ListPrice, ...]:
    """The list prices of a GPU, in the order of the file; none where no list has it."""
    return tuple(one for one in PRICES.records().values() if one.gpu == gpu)


def providers() -> tuple[str, ...]:
    """What a price list may be called: every provider, and ``median``."""
    return (MEDIAN, *dict.fromkeys(one.provider for one in PRICES.records().values()))


def list_price(gpu: str, provider: str) -> ListPrice:
    """The price of a GPU by the list of a provider, or the median of all lists.

    Raises:
        ValueError: the provider's list, or any list, lacks the GPU; the message has those that have it.
    """
    known = prices_of(gpu)
    if not known:
        raise ValueError(f"no price list has {gpu}; state cluster.price_per_gpu_hour")
    if provider == MEDIAN:
        middle = statistics.median(one.usd_per_hour for one in known)
        low, high = min(known, key=_usd), max(known, key=_usd)
        return ListPrice(
            name=f"median of {len(known)} prices",
            gpu=gpu,
            provider=MEDIAN,
            usd_per_hour=middle,
            when=", ".join(dict.fromkeys(one.when for one in (low, high))),
            source=f"{low.usd_per_hour:g} ({low.name}) to {high.usd_per_hour:g} ({high.name})",
        )
    found = [one for one in known if one.provider == provider]
    if not found:
        raise unknown_name(f"price list with {gpu}", provider, (MEDIAN, *(one.provider for one in known)))
    return found[0]


def _usd(price: ListPrice) -> float:
    return price.usd_per_hour
