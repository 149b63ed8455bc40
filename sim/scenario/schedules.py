"""The pipeline schedule that a scenario names.

Knows the names that a scenario may use besides those of schedules/pipeline, and tables in files. Does
not know what actions cost: the searching schedules get that when the step is lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from ...hardware.files import read_text
from ...schedules.orders.action import Action, ActionKind, Orders
from ...schedules.orders.schedule import Schedule, Shape, fixed_chunks, loop_placement
from ...schedules.pipeline import SCHEDULES, get, names


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
    overlaps=True,
    filling=1,
    place=0,
)
"""What ranks do where there is no pipeline. It is no choice for one, so schedules/pipeline lacks it."""


TABLE = Schedule(
    name="table",
    title="actions of a file",
    orders=lambda shape: (),
    check=lambda shape: None,
    rank_of=loop_placement,
    overlaps=True,
)
"""Stands for any table of actions in a file where none is opened, with what all of them are and may be."""


def memory_limited() -> dict[str, tuple[Schedule, int]]:
    """Published names of a search: the schedule, and its memory limit as a multiple of the stages."""
    return _limited(names())


@lru_cache(maxsize=2)
def _limited(known: tuple[str, ...]) -> dict[str, tuple[Schedule, int]]:
    return {name: (one, limit) for one in map(get, known) for name, limit in one.limited.items()}


def schedule_names(wanted: Callable[[Schedule], bool] = lambda schedule: True) -> tuple[str, ...]:
    """What a scenario may name, by schedules of which ``wanted`` is true: the plain ones first."""
    known = sorted((NO_PIPELINE, *map(get, names())), key=lambda schedule: (schedule.place, schedule.name))
    return tuple(name for one in known if wanted(one) for name in (*one.limited, one.name))


def is_plain(name: str) -> bool:
    """Whether the name is a schedule's own, as far as its module alone can say; False decides nothing."""
    return name == NO_PIPELINE.name or SCHEDULES.alone(name) is not None


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
    if (alone := SCHEDULES.alone(name)) is not None:
        return alone
    limited = memory_limited()
    return limited[name][0] if name in limited else get(name)


def traits_of(name: str) -> Schedule:
    """The schedule of that name for its traits, or what is true of any table: the file may be absent."""
    return TABLE if is_table(name) else schedule_named(name)


@lru_cache(maxsize=8)
def _table(path: str, text: str) -> Schedule:
    """The file is read every time, so that the command knows of it; parsed and checked once."""
    from ...schedules.orders.table import schedule_of
    from ...schedules.orders.table_file import parse_table
    from ...schedules.orders.validate import validate

    table = parse_table(text, path)
    validate(table.orders, table.shape, table.rank_of)
    return schedule_of(table, Path(path).name)
