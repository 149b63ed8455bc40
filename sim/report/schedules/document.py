"""A timed schedule for programs: one JSON object, and the orders as a table of comma-separated values."""

from __future__ import annotations

import csv
import io
from typing import Any

from ....schedules.orders.action import Orders
from .timed import TimedSchedule


def schedule_document(schedule: TimedSchedule) -> dict[str, Any]:
    """Times in the unit of the costs; actions in the notation of torch.distributed.pipelining."""
    shape, ranks = schedule.shape, schedule.stage_to_rank
    return {
        "schedule": schedule.name,
        "p": shape.ranks,
        "m": shape.microbatches,
        "v": shape.chunks,
        "stage_to_rank": None if ranks is None else list(ranks),
        "actions": [[str(step) for step in order] for order in schedule.orders],
        "makespan": schedule.makespan,
        "max_span": schedule.max_span,
        "bubble_rate": schedule.bubble_rate,
        "bubble_rate_makespan": schedule.bubble_rate_makespan,
        "peak_activation_chunks": list(schedule.peaks),
    }


def orders_csv(orders: Orders) -> str:
    """One line a rank, one cell a step: what torch.distributed.pipelining reads and writes."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([str(step) for step in order] for order in orders)
    return written.getvalue()
