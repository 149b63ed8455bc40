"""A table of actions by itself: what pipeline it is for, and where it puts each stage.

Infers ranks, microbatches, chunks and the placement of the stages from the actions alone, which is only
possible where the table agrees with itself; whether it can be run is for validate.py to say. Does not know
how tables are written down (table_file.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .action import Action, ActionKind, Orders, parts
from .in_flight import peak_activations
from .schedule import Schedule, Shape, no_groups, no_limit


@dataclass(frozen=True, kw_only=True)
class ActionTable:
    """``orders`` with the one ``shape`` that they are for.

    ``ways``: the rank of each stage, for all microbatches; in a two-way table (DualPipe) for those of the
    first half, then for the others.
    """

    orders: Orders
    shape: Shape
    ways: tuple[tuple[int, ...], ...]

    def rank_of(self, stage: int, microbatch: int, shape: Shape) -> int:
        """The placement of the table."""
        del shape  # a table has one
        return self.ways[-1 if microbatch >= self.shape.microbatches // 2 else 0][stage]


Where: TypeAlias = Callable[[int, int | None], str]
"""Names the step of a rank at a position, or for None the rank itself."""


def table_of(orders: Orders, where: Where | None = None) -> ActionTable:
    """The table that these orders are. ``where`` names ranks and steps in messages.

    Raises ValueError for a rank without actions, stages or microbatches that are not counted from 0 on, a
    stage that is on two ranks (but for two-way tables), and ranks with different numbers of stages.
    """
    where = where or _where(orders)
    if not orders:
        raise ValueError("the table has no rank: expected the actions of one rank after another")
    for rank, order in enumerate(orders):
        if not order:
            raise ValueError(
                f"{where(rank, None)} has no action: every rank of a pipeline holds a stage; if there is no "
                "such rank, leave it out"
            )
    places = list(_places(orders))
    m = _count("microbatch", ((action.microbatch, rank, i) for rank, i, action in places), where)
    stages = _count("stage", ((action.stage, rank, i) for rank, i, action in places), where)
    ways = _ways(places, stages, m, where)
    chunks = _chunks(ways, len(orders), where)
    return ActionTable(
        orders=orders, shape=Shape(ranks=len(orders), microbatches=m, chunks=chunks), ways=ways
    )


def schedule_of(table: ActionTable, name: str) -> Schedule:
    """The table as a schedule that is defined for its own shape only, whatever actions cost.

    Whether it can be run is not looked at (validate.py).
    """
    shape = table.shape
    peaks = peak_activations(table.orders)

    def check(asked: Shape) -> None:
        if _size(asked) != _size(shape):
            raise ValueError(
                f"table {name} is for {_sized(shape)} and no other, not for {_sized(asked)}; use "
                f"ranks={shape.ranks}, microbatches={shape.microbatches}, chunks={shape.chunks}, or another "
                "table"
            )
        no_groups(f"table {name}", asked)
        no_limit(f"table {name}", asked)

    def orders(asked: Shape) -> Orders:
        check(asked)
        return table.orders

    def in_flight(rank: int, asked: Shape) -> int:
        check(asked)
        return peaks[rank]

    return Schedule(
        name=name,
        title=f"{name} (a table)",
        orders=orders,
        check=check,
        rank_of=table.rank_of,
        in_flight=in_flight,
        chunks=shape.chunks,
        splits_backward=any(action.kind is ActionKind.WEIGHT_GRAD for _, _, action in _places(table.orders)),
        ends_meet=any(way[-1] in {ends[0] for ends in table.ways} for way in table.ways),
        two_way=len(table.ways) == 2,
        overlaps=True,  # it may have pairs, or be given some (overlapped.py)
    )


def _size(shape: Shape) -> tuple[int, int, int]:
    return shape.ranks, shape.microbatches, shape.chunks


def _sized(shape: Shape) -> str:
    return f"p={shape.ranks}, m={shape.microbatches}, v={shape.chunks} (ranks, microbatches, chunks per rank)"


def _where(orders: Orders) -> Where:
    def where(rank: int, position: int | None) -> str:
        return (
            f"rank {rank}"
            if position is None
            else f"rank {rank}, action {position} ({orders[rank][position]})"
        )

    return where


_Place: TypeAlias = tuple[int, int, Action]
"""Rank, position, action."""


def _places(orders: Orders) -> Iterator[_Place]:
    for rank, order in enumerate(orders):
        for position, step in enumerate(order):
            for action in parts(step):
                yield rank, position, action


def _count(noun: str, found: Iterator[tuple[int, int, int]], where: Where) -> int:
    """How many there are, if they are 0, 1, 2 and so on; ``found`` are (number, rank, position)."""
    first: dict[int, tuple[int, int]] = {}
    for number, rank, position in found:
        first.setdefault(number, (rank, position))
    for expected, number in enumerate(sorted(first)):
        if number != expected:
            raise ValueError(
                f"{where(*first[number])} is of {noun} {number}, but no action is of {noun} {expected}: "
                f"each {noun} has its number, 0, 1, 2 and so on"
            )
    return len(first)


# Placement -------------------------------------------------------------------------------------------------


def _ways(places: list[_Place], stages: int, m: int, where: Where) -> tuple[tuple[int, ...], ...]:
    """The rank of each stage, once if it is the same for both halves of the microbatches."""
    homes: dict[int, dict[int, _Place]] = {0: {}, 1: {}}  # by half and stage
    for place in places:
        rank, _, action = place
        before = homes[action.microbatch >= m // 2].setdefault(action.stage, place)
        if before[0] != rank:
            raise ValueError(_torn(before, place, where))
    ways = [tuple((homes[half].get(s) or homes[1 - half][s])[0] for s in range(stages)) for half in (0, 1)]
    if ways[0] == ways[1]:
        return (ways[0],)
    for half, span in ((0, f"0 to {m // 2 - 1}"), (1, f"{m // 2} to {m - 1}")):
        for stage in range(stages):
            if stage not in homes[half]:
                raise ValueError(
                    f"none of the microbatches {span} passes stage {stage}, which they need as well"
                )
    return ways[0], ways[1]


def _torn(before: _Place, place: _Place, where: Where) -> str:
    (rank, position, first), (other, at, second) = before, place
    if first.microbatch == second.microbatch:
        rule = "a microbatch passes a stage on one rank, forward and backward"
    else:
        rule = (
            "a stage is on one rank, or in a two-way table (DualPipe) on one for the first half of the "
            "microbatches and on another for the second half"
        )
    return (
        f"{where(other, at)} has stage {second.stage} on rank {other}, but {where(rank, position)} has it on "
        f"rank {rank}: {rule}"
    )


def _chunks(ways: tuple[tuple[int, ...], ...], ranks: int, where: Where) -> int:
    """Stages of each rank, as many on all: a shape has one number of chunks (torch allows others)."""
    for way, half in zip(ways, ("first", "second"), strict=False):
        whose = f" for the {half} half of the microbatches" if len(ways) > 1 else ""
        held: Mapping[int, list[int]] = defaultdict(list)
        for stage, rank in enumerate(way):
            held[rank].append(stage)
        for rank in range(ranks):
            if len(held[rank]) != len(held[0]):
                raise ValueError(
                    f"{where(rank, None)} holds {_stages(held[rank])}, but {where(0, None)} holds "
                    f"{_stages(held[0])}{whose}: every rank of stepsim holds the same number of stages"
                )
    return len(ways[0]) // ranks


def _stages(held: list[int]) -> str:
    return f"{len(held)} stage{'' if len(held) == 1 else 's'} ({', '.join(map(str, held)) or 'none'})"
