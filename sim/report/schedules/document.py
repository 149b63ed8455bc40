"""A timed schedule for programs: one JSON object."""

from __future__ import annotations

from typing import Any

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
