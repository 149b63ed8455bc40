"""Whether a table of actions, ours or anyone's, can be run at all.

Every microbatch passes every stage forward and backward once, on the rank that holds the stage; no
rank waits for something that cannot happen before; no rank holds more activations than agreed. Assumes
that sends do not block. Positions count from 0. Knows no seconds and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .action import Action, Kind, Orders, Step, parts
from .in_flight import activations_held
from .progress import Stall, stalls
from .schedule import Placement, Shape

_SHOWN = 10


class Reason(Enum):
    """What is wrong with an action."""

    RANKS = "orders are given for another number of ranks"
    OUTSIDE = "there is no such stage or microbatch"
    WRONG_RANK = "another rank holds the stage"
    REPEATED = "the same work appears twice"
    MISSING = "work is left out"
    ORDER = "a rank runs an action before one of its own that it depends on"
    DEADLOCK = "ranks wait for each other"
    IN_FLIGHT = "a rank holds too many activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a table cannot be run. ``position`` is None for what is not there."""

    reason: Reason
    rank: int
    position: int | None = None
    action: Step | None = None
    text: str

    def __str__(self) -> str:
        where = f"rank {self.rank}"
        if self.position is not None:
            where += f", action {self.position} ({self.action})"
        return f"{where} {self.text}"


def validate(
    orders: Orders,
    shape: Shape,
    rank_of: Placement,
    in_flight: Callable[[int, Shape], int] | None = None,
) -> None:
    """Raise ValueError naming rank, position and action of what is wrong, if anything is."""
    if found := find_problems(orders, shape, rank_of, in_flight):
        lines = [str(problem) for problem in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"and {len(found) - _SHOWN} more")
        raise ValueError("; ".join(lines))


def find_problems(
    orders: Orders,
    shape: Shape,
    rank_of: Placement,
    in_flight: Callable[[int, Shape], int] | None = None,
) -> tuple[Problem, ...]:
    """Everything that is wrong: with the work itself if that is not complete, else with its order.

    ``in_flight(rank, shape)`` is the largest number of chunk activations that a rank may hold.
    """
    if len(orders) != shape.ranks:
        what = "has no order" if len(orders) < shape.ranks else "has an order"
        text = f"{what}, but the pipeline has {shape.ranks} ranks"
        return (Problem(reason=Reason.RANKS, rank=min(len(orders), shape.ranks), text=text),)
    found = tuple(_wrong_work(orders, shape, rank_of))
    if found:
        return found
    found = tuple(_stalled(stall, orders) for stall in stalls(orders, shape))
    if in_flight is not None:
        found += tuple(_overfull(orders, [in_flight(rank, shape) for rank in range(shape.ranks)]))
    return found


def _wrong_work(orders: Orders, shape: Shape, rank_of: Placement) -> Iterator[Problem]:
    done: dict[int, tuple[int, int]] = {}  # rank and position, by number of the work
    for rank, order in enumerate(orders):
        for position, action in ((i, action) for i, step in enumerate(order) for action in parts(step)):
            wrong = [_outside(action, shape)]
            if wrong == [None]:
                numbers = _work(action, shape)
                wrong = [_elsewhere(action, rank, shape, rank_of), _repeated(numbers, done, orders)]
                done |= dict.fromkeys(numbers, (rank, position))
            for reason, text in filter(None, wrong):
                yield Problem(reason=reason, rank=rank, position=position, action=action, text=text)
    for stage in range(shape.stages):
        for action in _missing(stage, shape, done):
            rank = rank_of(stage, action.microbatch, shape)
            yield Problem(reason=Reason.MISSING, rank=rank, action=action, text=f"never runs {action}")


_PARTS = {Kind.FORWARD: (0,), Kind.BACKWARD: (1, 2), Kind.INPUT_GRAD: (1,), Kind.WEIGHT_GRAD: (2,)}
"""The work of a microbatch on a stage has three parts; a whole backward does two of them."""

_HALVES = (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)


def _work(action: Action, shape: Shape) -> tuple[int, ...]:
    """Numbers of the parts of the work that the action does."""
    first = 3 * (action.stage * shape.microbatches + action.microbatch)
    return tuple(first + part for part in _PARTS[action.kind])


def _outside(action: Action, shape: Shape) -> tuple[Reason, str] | None:
    if not 0 <= action.stage < shape.stages:
        return Reason.OUTSIDE, f"is of stage {action.stage}, but stages go from 0 to {shape.stages - 1}"
    if not 0 <= action.microbatch < shape.microbatches:
        last = shape.microbatches - 1
        return Reason.OUTSIDE, f"is of microbatch {action.microbatch}, but microbatches go from 0 to {last}"
    return None


def _elsewhere(action: Action, rank: int, shape: Shape, rank_of: Placement) -> tuple[Reason, str] | None:
    holder = rank_of(action.stage, action.microbatch, shape)
    if holder != rank:
        return Reason.WRONG_RANK, f"is of stage {action.stage}, which rank {holder} holds"
    return None


def _repeated(
    numbers: Iterable[int], done: Mapping[int, tuple[int, int]], orders: Orders
) -> tuple[Reason, str] | None:
    for number in numbers:
        if number in done:
            rank, position = done[number]
            before = orders[rank][position]
            return Reason.REPEATED, f"repeats the work of rank {rank}, action {position} ({before})"
    return None


def _missing(stage: int, shape: Shape, done: Container[int]) -> Iterator[Action]:
    """A whole backward is asked for where both its parts are missing."""
    for k in range(shape.microbatches):
        first = 3 * (stage * shape.microbatches + k)
        absent = tuple(part for part in range(3) if first + part not in done)
        if absent:
            kinds = [kind for kind, parts in _PARTS.items() if set(parts) <= set(absent)]
            whole = Kind.BACKWARD in kinds
            yield from (Action(stage, kind, k) for kind in kinds if not (whole and kind in _HALVES))


def _stalled(stall: Stall, orders: Orders) -> Problem:
    action, awaited = orders[stall.rank][stall.position], orders[stall.by_rank][stall.by_position]
    if stall.rank == stall.by_rank:
        reason = Reason.ORDER
        text = f"waits for {awaited}, which the same rank runs later, as action {stall.by_position}"
    else:
        reason = Reason.DEADLOCK
        held_up = orders[stall.by_rank][stall.by_rank_at]
        how = f"which rank {stall.by_rank} runs only after {held_up}"
        if held_up == awaited:
            how = f"for which rank {stall.by_rank} itself waits"
        text = f"waits for {awaited}, {how}: deadlock"
    return Problem(reason=reason, rank=stall.rank, position=stall.position, action=action, text=text)


def _overfull(orders: Orders, limits: Sequence[int]) -> Iterator[Problem]:
    """The first excess of each rank."""
    for rank, (order, limit) in enumerate(zip(orders, limits, strict=True)):
        for position, held in enumerate(activations_held(order)):
            if held > limit:
                text = f"holds {held} chunk activations, more than the {limit} allowed"
                yield Problem(
                    reason=Reason.IN_FLIGHT, rank=rank, position=position, action=order[position], text=text
                )
                break
