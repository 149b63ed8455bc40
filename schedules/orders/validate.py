"""Whether a table of actions, ours or anyone's, can be run at all.

Every microbatch passes every stage forward and backward once, on the rank that holds the stage for it; no
rank waits for something that cannot happen before; no rank holds more activations than agreed. Positions
count steps from 0: an overlapped pair is one, and both its actions are checked. Assumes that sends do not
block; p2p/deadlock.py knows the rule by which messages move. Knows no seconds and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .action import Action, ActionKind, Orders, Overlap, Step, parts
from .circles import named
from .in_flight import activations_held
from .progress import Stall, stalls
from .schedule import Placement, Shape

_SHOWN = 10


class BrokenOrders(ValueError):
    """Orders that cannot be run; ``problems`` holds all of them, the message the first few."""

    def __init__(self, problems: Sequence[TableProblem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"and {len(self.problems) - _SHOWN} more")
        super().__init__("; ".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return BrokenOrders, (self.problems,)


class Reason(Enum):
    """What is wrong with an action."""

    RANKS = "orders are given for another number of ranks"
    OUTSIDE = "there is no such stage or microbatch"
    WRONG_RANK = "another rank holds the stage"
    PAIR = "an overlapped pair is not a forward and a whole backward"
    REPEATED = "the same work appears twice"
    MISSING = "work is left out"
    ORDER = "a rank runs an action before one of its own that it depends on"
    DEADLOCK = "ranks wait for each other"
    CROSSED = "two ranks post the messages between them in different orders"
    IN_FLIGHT = "a rank holds too many activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """One reason why a table cannot be run. ``action`` is the step at ``position``; None: it is not there."""

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
    """Raise BrokenOrders naming rank, position and action of what is wrong, if anything is."""
    refuse(find_problems(orders, shape, rank_of, in_flight))


def refuse(found: Sequence[TableProblem]) -> None:
    """Raise BrokenOrders with the problems, if there are any."""
    if found:
        raise BrokenOrders(found)


def find_problems(
    orders: Orders,
    shape: Shape,
    rank_of: Placement,
    in_flight: Callable[[int, Shape], int] | None = None,
) -> tuple[TableProblem, ...]:
    """Everything that is wrong: with the work itself if that is not complete, else with its order.

    ``in_flight(rank, shape)`` is the largest number of chunk activations that a rank may hold.
    """
    if len(orders) != shape.ranks:
        what = "has no order" if len(orders) < shape.ranks else "has an order"
        text = f"{what}, but the pipeline has {shape.ranks} ranks"
        return (TableProblem(reason=Reason.RANKS, rank=min(len(orders), shape.ranks), text=text),)
    found = tuple(_wrong_work(orders, shape, rank_of))
    if found:
        return found
    found = tuple(_stalled(stall, orders) for stall in stalls(orders, shape))
    if in_flight is not None:
        found += tuple(_overfull(orders, [in_flight(rank, shape) for rank in range(shape.ranks)]))
    return found


def _wrong_work(orders: Orders, shape: Shape, rank_of: Placement) -> Iterator[TableProblem]:
    done: dict[int, tuple[int, int]] = {}  # rank and position, by number of the work
    for rank, order in enumerate(orders):
        for position, step in enumerate(order):
            for action in parts(step):
                wrong = [_outside(action, shape), _mispaired(action, step)]
                if wrong[0] is None:
                    numbers = _work(action, shape)
                    wrong += (
                        _elsewhere(action, rank, shape, rank_of),
                        _repeated(action, numbers, done, orders),
                    )
                    done |= dict.fromkeys(numbers, (rank, position))
                for reason, text in filter(None, wrong):
                    text = text if step is action else f"holds {action}, which {text}"
                    yield TableProblem(reason=reason, rank=rank, position=position, action=step, text=text)
    for stage in range(shape.stages):
        for action, text in _missing(stage, shape, done):
            rank = rank_of(stage, action.microbatch, shape)
            yield TableProblem(reason=Reason.MISSING, rank=rank, action=action, text=text)


_PARTS = {
    ActionKind.FORWARD: (0,),
    ActionKind.BACKWARD: (1, 2),
    ActionKind.INPUT_GRAD: (1,),
    ActionKind.WEIGHT_GRAD: (2,),
}
"""The work of a microbatch on a stage has three parts; a whole backward does two of them."""

_HALVES = (ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)


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


def _mispaired(action: Action, step: Step) -> tuple[Reason, str] | None:
    if not isinstance(step, Overlap):
        return None
    belongs = ActionKind.FORWARD if action is step.forward else ActionKind.BACKWARD
    if action.kind is belongs:
        return None
    return Reason.PAIR, "does not belong there: a pair is a forward (F), then a whole backward (B)"


def _elsewhere(action: Action, rank: int, shape: Shape, rank_of: Placement) -> tuple[Reason, str] | None:
    holder = rank_of(action.stage, action.microbatch, shape)
    if holder == rank:
        return None
    everywhere = all(rank_of(action.stage, k, shape) == holder for k in (0, shape.microbatches - 1))
    which = "" if everywhere else f" for microbatch {action.microbatch}"
    return Reason.WRONG_RANK, f"is of stage {action.stage}, which rank {holder} holds{which}"


def _repeated(
    action: Action, numbers: Iterable[int], done: Mapping[int, tuple[int, int]], orders: Orders
) -> tuple[Reason, str] | None:
    for number in numbers:
        if number in done:
            rank, position = done[number]
            before = orders[rank][position]
            text = f"repeats the work of rank {rank}, action {position} ({before})"
            if action not in parts(before):
                text += ": a B is the I and the W of its microbatch in one"
            return Reason.REPEATED, text
    return None


def _missing(stage: int, shape: Shape, done: Container[int]) -> Iterator[tuple[Action, str]]:
    """A whole backward is asked for where both its parts are missing."""
    for k in range(shape.microbatches):
        first = 3 * (stage * shape.microbatches + k)
        absent = {part for part in range(3) if first + part not in done}
        if not absent:
            continue
        kinds = [kind for kind, needed in _PARTS.items() if absent.issuperset(needed)]
        for kind in kinds:
            action = Action(stage, kind, k)
            if kind not in _HALVES:
                yield action, f"never runs {action}"
            elif ActionKind.BACKWARD not in kinds:
                other = _HALVES[kind is ActionKind.INPUT_GRAD]
                yield (
                    action,
                    f"never runs {action}, without which {Action(stage, other, k)} is half a backward",
                )


def _stalled(stall: Stall, orders: Orders) -> TableProblem:
    step, by = orders[stall.rank][stall.position], stall.by
    made_in = orders[by.rank][by.position]
    awaited = f"{by.action}" if made_in == by.action else f"{by.action} of {made_in}"
    if stall.circle:
        held_up = orders[by.rank][stall.by_rank_at]
        how = f"which rank {by.rank} runs only after {held_up}"
        if by.position == stall.by_rank_at:
            how = f"for which rank {by.rank} itself waits"
        text = f"waits for {awaited}, {how}: deadlock of {named(stall.circle)}"
    elif by.position == stall.position:
        text = f"can never begin: {stall.action} waits for {by.action}, the forward of its own pair"
    else:
        text = f"waits for {awaited}, which the same rank runs later, as action {by.position}"
    reason = Reason.DEADLOCK if stall.circle else Reason.ORDER
    return TableProblem(reason=reason, rank=stall.rank, position=stall.position, action=step, text=text)


def _overfull(orders: Orders, limits: Sequence[int]) -> Iterator[TableProblem]:
    """The first excess of each rank."""
    for rank, (order, limit) in enumerate(zip(orders, limits, strict=True)):
        positions = (position for position, step in enumerate(order) for _ in parts(step))
        for position, held in zip(positions, activations_held(order), strict=True):
            if held > limit:
                text = f"holds {held} chunk activations, more than the {limit} allowed"
                yield TableProblem(
                    reason=Reason.IN_FLIGHT, rank=rank, position=position, action=order[position], text=text
                )
                break
