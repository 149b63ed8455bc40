"""What weeks cost in money, and where it goes: useful steps, what failures take, and spares that wait.

Knows a study and the price of a GPU-hour; simulates nothing. Hosts in repair are held like the others, so
their hours are among those of the spares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...scenario.price import GpuHourPrice
from .study import Study

SPARES = "spares"


@dataclass(frozen=True, kw_only=True)
class Money:
    """``total`` is the cost, in ``currency``, of the GPUs held over the mean run; ``parts`` divide it into
    the categories of the waterfall, and spares. ``per_useful_gpu_hour`` is the cost of a GPU-hour of useful
    work, which better spares, checkpoint intervals and repairs can lower.
    """

    currency: str
    price_per_gpu_hour: float
    source: str
    total: float
    parts: Mapping[str, float]
    per_useful_gpu_hour: float | None


def money_of(study: Study, price: GpuHourPrice) -> Money:
    """What the mean run of a study costs; where there is always a spare, as if spares cost nothing."""
    machine, hours = study.plan.machine, study.wall.mean / 3600
    held = study.gpus_held or machine.gpus
    of_job = machine.gpus * hours * price.amount
    parts = {name: share * of_job for name, share in study.waterfall.items()}
    parts[SPARES] = (held - machine.gpus) * hours * price.amount
    total = held * hours * price.amount
    useful_hours = study.ettr.mean * machine.gpus * hours
    return Money(
        currency=price.currency,
        price_per_gpu_hour=price.amount,
        source=price.source,
        total=total,
        parts=parts,
        per_useful_gpu_hour=total / useful_hours if useful_hours else None,
    )
