"""The shape in which a pipeline schedule is asked for: what a scenario says of it, as schedules take it."""

from __future__ import annotations

from ...schedules.orders.schedule import ActivationUnits, Shape
from .blocks import Parallelism, ScheduleOptions
from .schedules import is_plain, memory_limited


def pipeline_shape(name: str, par: Parallelism, microbatches: int, options: ScheduleOptions) -> Shape:
    """What the schedule is asked for, memory counted in chunk activations. Raises ValueError."""
    limit = options.memory_limit
    limited = {} if is_plain(name) else memory_limited()
    if name in limited:
        schedule, multiple = limited[name]
        if limit is not None:
            raise ValueError(
                f"{name} is {schedule.name} with a limit of {multiple} x pp activations, so a memory_limit "
                f"of {limit} contradicts it; set schedule to {schedule.name}"
            )
        limit = multiple * par.pp
    return Shape(
        ranks=par.pp,
        microbatches=microbatches,
        chunks=par.vpp,
        group=options.group,
        memory=ActivationUnits(limit=limit),
    )
