"""The pipeline schedules, found by name: every module of this folder that ends in ``SCHEDULE = ...``.

>>> get("1f1b").title
'1F1B (PipeDream-flush)'
"""

from __future__ import annotations

from ..orders.schedule import Schedule
from ..registry import Registry

SCHEDULES = Registry("pipeline schedule", __name__, __path__, "SCHEDULE", Schedule)

get, names = SCHEDULES.get, SCHEDULES.names
