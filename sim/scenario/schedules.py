"""The pipeline schedule that a scenario names, and the shape in which it is asked for.

Knows the names that a scenario may use besides those of schedules/pipeline, and tables in files. Does
not know what actions cost: the searching schedules get that when the step is lowered.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...hardware.files import read_text
from ...schedules.orders.action import Action, ActionKind, Orders
from ...schedules.orders.schedule import ActivationUnits, Schedule, Shape, fixed_chunks, loop_placement
from ...schedules.orders.table import schedule_of as table_schedule
from ...schedules.orders.table_file import parse_table
from ...schedules.orders.validate import validate
from ...schedules.pipeline import get

if TYPE_CHECKING:
    from .models import Parallelism, Scenario, ScheduleOptions

MEMORY_LIMITED = {"zb-1p": ("zb", 1), "zb-2p": ("zb", 2)}
"""Published names of a search: the schedule, and its memory limit as a multiple of the stages."""


def _accumulation(shape: Shape) -> Orders:
    """Each microbatch forward, then backward."""
    kinds = (ActionKind.FORWARD, ActionKind.BACKWARD)
    return (tuple(Action(0, kind, k) for k in range(shape.microbatches) for kind in kinds),)


NO_PIPELINE = Schedule(
    name="none",
    title="gradient accumulation on one stage",
    orders=_accumulation,
    check=fixed_chunks("none", 1),
    rank_of=loop_placement,
    in_flight=lambda rank, shape: 1,
)
"""What ranks do where there is no pipeline. It is no choice for one, so schedules/pipeline lacks it."""


def is_table(name: object) -> bool:
    """Whether a schedule is named by the file that holds its table of actions."""
    return isinstance(name, str) and name.endswith(".csv")


def schedule_named(name: str) -> Schedule:
    """The schedule of that name, or the one in that file.

    Raises ValueError with the known names, or with what keeps a table from being read or run.
    """
    if name == NO_PIPELINE.name:
        return NO_PIPELINE
    if is_table(name):
        return _table(name, read_text(name))
    if name in MEMORY_LIMITED:
        return get(MEMORY_LIMITED[name][0])
    return get(name)


@lru_cache(maxsize=8)
def _table(path: str, text: str) -> Schedule:
    """The file is read every time, so that the command knows of it; parsed and checked once."""
    table = parse_table(text, path)
    validate(table.orders, table.shape, table.rank_of)
    return table_schedule(table, Path(path).name)


def pipeline_shape(name: str, par: Parallelism, microbatches: int, options: ScheduleOptions) -> Shape:
    """What the schedule is asked for, memory counted in chunk activations. Raises ValueError."""
    limit = options.memory_limit
    if name in MEMORY_LIMITED:
        multiple = MEMORY_LIMITED[name][1]
        if limit is not None:
            raise ValueError(
                f"{name} is zb with a limit of {multiple} x pp activations, so a memory_limit of {limit} "
                "contradicts it; set schedule to zb"
            )
        limit = multiple * par.pp
    return Shape(
        ranks=par.pp,
        microbatches=microbatches,
        chunks=par.vpp,
        group=options.group,
        memory=ActivationUnits(limit=limit),
    )


def shape_of(scenario: Scenario) -> Shape:
    """The same of a whole scenario."""
    par, microbatches = scenario.parallelism, scenario.num_microbatches
    return pipeline_shape(scenario.schedule, par, microbatches, scenario.schedule_options)
