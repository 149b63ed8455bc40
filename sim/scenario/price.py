"""What an hour of one GPU of a scenario costs: as it states, or by a published price list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hardware.prices import list_price

if TYPE_CHECKING:
    from .blocks import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class GpuHourPrice:
    """``amount`` in ``currency`` for one GPU and hour, and where it is from."""

    amount: float
    currency: str
    source: str


def price_of(spec: ClusterSpec) -> GpuHourPrice | None:
    """The price of a GPU-hour; None where the scenario neither states one nor names a price list."""
    if spec.price_per_gpu_hour is not None:
        stated = float(spec.price_per_gpu_hour)
        return GpuHourPrice(amount=stated, currency=spec.currency, source="cluster.price_per_gpu_hour")
    if spec.price_list is None:
        return None
    listed = list_price(spec.gpu_name, spec.price_list)
    source = f"{listed.name}, {listed.when}: {listed.source}"
    return GpuHourPrice(amount=listed.usd_per_hour, currency="USD", source=source)
