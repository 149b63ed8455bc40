"""Tables to validate: valid ones of every registered schedule, by hand, and after small changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from hypothesis import strategies as st
from schedule_shapes import parse, schedules_and_shapes

from stepsim.schedules.orders.action import Action, ActionKind, Orders, Overlap, Step
from stepsim.schedules.orders.schedule import Placement, Shape, two_way_placement

Rows = list[list[Step]]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A table with what it is checked against. ``rows`` may have been changed."""

    rows: Rows
    shape: Shape
    rank_of: Placement
    in_flight: Callable[[int, Shape], int] | None

    @property
    def orders(self) -> Orders:
        return tuple(tuple(row) for row in self.rows)


def table(*orders: str) -> Orders:
    return parse([order.split() for order in orders])


TWO_WAY = table(
    "0F0 1F2 0F1 1B2 (1F3;0B0)OVERLAP_F_B 1B3 0I1 0W1",
    "0F2 1F0 0F3 1B0 (1F1;0B2)OVERLAP_F_B 1B1 0I3 0W3",
)
"""DualPipe's order on two ranks: pairs, split backwards, and stages that are on both ranks."""

TWO_WAY_SHAPE = Shape(ranks=2, microbatches=4)
TWO_RANKS = Shape(ranks=2, microbatches=2)
V_SHAPED = Shape(ranks=2, microbatches=1, chunks=2)


@st.composite
def valid_tables(draw: st.DrawFn) -> Drawn:
    """Any schedule or the two-way table, half of the time with split backwards (W right after I)."""
    if draw(st.integers(0, 7)) == 0:
        orders, shape, rank_of, in_flight = TWO_WAY, TWO_WAY_SHAPE, two_way_placement, None
    else:
        schedule, shape = draw(schedules_and_shapes())
        orders, rank_of, in_flight = schedule.orders(shape), schedule.rank_of, schedule.in_flight
    rows = [list(order) for order in orders]
    if draw(st.booleans()):
        rows = [[half for step in row for half in split(step)] for row in rows]
    return Drawn(rows=rows, shape=shape, rank_of=rank_of, in_flight=in_flight)


def split(step: Step) -> list[Step]:
    if isinstance(step, Overlap) or step.kind is not ActionKind.BACKWARD:
        return [step]
    return [
        Action(step.stage, kind, step.microbatch) for kind in (ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)
    ]


# Changes ---------------------------------------------------------------------------------------------------


def place(draw: st.DrawFn, rows: Rows) -> tuple[list[Step], int]:
    row = draw(st.sampled_from([row for row in rows if row]))
    return row, draw(st.integers(0, len(row) - 1))


def drop(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, position = place(draw, rows)
    del row[position]


def duplicate(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, position = place(draw, rows)
    target, at = place(draw, rows)
    target.insert(at, row[position])


def move(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, position = place(draw, rows)
    step = row.pop(position)
    target = draw(st.sampled_from(rows))
    target.insert(draw(st.integers(0, len(target))), step)


def move_near(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, position = place(draw, rows)
    step = row.pop(position)
    row.insert(max(0, position + draw(st.integers(-4, 4))), step)


def swap(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    (one, i), (other, j) = place(draw, rows), place(draw, rows)
    one[i], other[j] = other[j], one[i]


def swap_near(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, i = place(draw, rows)
    j = min(len(row) - 1, i + draw(st.integers(1, 3)))
    row[i], row[j] = row[j], row[i]


def rename(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    row, i = place(draw, rows)
    stage, microbatch = st.integers(0, shape.stages), st.integers(0, shape.microbatches)
    new = draw(st.builds(Action, stage, st.sampled_from(ActionKind), microbatch))
    step = row[i]
    if not isinstance(step, Overlap):
        row[i] = new
    elif draw(st.booleans()):
        row[i] = Overlap(new, step.backward)
    else:
        row[i] = Overlap(step.forward, new)


def pair_up(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    """Make a pair of every n-th forward and whole backward that stand side by side."""
    del shape
    row = draw(st.sampled_from(rows))
    every, turned = draw(st.integers(1, 3)), draw(st.booleans())
    seen = i = 0
    while i + 1 < len(row):
        one, other = (row[i + 1], row[i]) if turned else (row[i], row[i + 1])
        if isinstance(one, Action) and isinstance(other, Action) and one.kind + other.kind == "FB":
            seen += 1
            if seen % every == 0:
                row[i : i + 2] = [Overlap(one, other)]
        i += 1


def warm_up(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    """Another number of forwards before a rank takes F and B in turn, up to all of them (GPipe)."""
    del shape
    row = draw(st.sampled_from(rows))
    forwards = [step for step in row if isinstance(step, Action) and step.kind is ActionKind.FORWARD]
    others = [step for step in row if step not in forwards]
    first = draw(st.integers(0, len(forwards)))
    turns = zip_longest(others, forwards[first:])
    row[:] = [*forwards[:first], *(step for turn in turns for step in turn if step is not None)]


def take_apart(draw: st.DrawFn, shape: Shape, rows: Rows) -> None:
    """Every pair of a rank, or every whole backward."""
    del shape
    row = draw(st.sampled_from(rows))
    pairs = draw(st.booleans())
    row[:] = [
        one
        for step in row
        for one in (
            ([step.forward, step.backward] if pairs else [step]) if isinstance(step, Overlap) else split(step)
        )
    ]


CHANGES = (drop, duplicate, move, move_near, swap, swap_near, rename, pair_up, warm_up, take_apart)

REORDERINGS = (move_near, swap_near, pair_up, warm_up, take_apart)
"""Those that leave the work complete."""


@st.composite
def broken_tables(draw: st.DrawFn, changes: tuple[Callable[..., None], ...] = CHANGES) -> Drawn:
    """A valid table after a few changes, which may leave it valid."""
    drawn = draw(valid_tables())
    for _ in range(draw(st.integers(1, 3))):
        if any(drawn.rows):  # a small table may be gone
            draw(st.sampled_from(changes))(draw, drawn.shape, drawn.rows)
    return drawn
