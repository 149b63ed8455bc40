"""Compute orders as torch lowers them: with the messages, and with what FSDP does to each stage.

``lowered`` is the list that torch's runtime works through: a send right after its action; a receive at
the place where its sender's turn put it, which may be long before its use; parameters gathered for the
next few stages and freed when none of these is theirs; gradients reduced after a stage's last
microbatch. The lists come of one walk over all ranks, one entry of each rank in turn, so that the messages
between two ranks stand in the same order on both. Knows neither seconds nor bytes; instructions for the
engine are written by torch_runtime.py.

Source: torch.distributed.pipelining 2.13 ``schedules.py``: ``_PipelineScheduleRuntime``,
``_add_unshard_reshard``, ``_add_reduce_grad``, ``_add_send_recv``, ``_defer_recv_ops``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ..orders.action import ActionKind, Order, Orders, Step, parts
from ..orders.dependencies import needed_by, producer_stage, result_of
from ..orders.schedule import Placement, Shape, stage_to_rank
from .ends import Ends
from .instructions import Recv, Send

ACTIVE_STAGES = 3
"""Stages whose parameters a rank holds whole: one forward, one backward, one fetched ahead."""


class FsdpCall(StrEnum):
    """What FSDP does to a stage."""

    UNSHARD = "UNSHARD"  # gather its parameters
    RESHARD = "RESHARD"  # let them go
    REDUCE_GRAD = "REDUCE_GRAD"  # reduce its gradients, once for all microbatches


@dataclass(frozen=True, slots=True)
class StageCall:
    """One call of FSDP for one stage.

    >>> str(StageCall(FsdpCall.UNSHARD, 2))
    '2UNSHARD'
    """

    call: FsdpCall
    stage: int

    def __str__(self) -> str:
        return f"{self.stage}{self.call.value}"


Entry: TypeAlias = Step | StageCall | Send | Recv
"""One entry of a lowered list."""


def lowered(
    orders: Orders, shape: Shape, rank_of: Placement, *, active_stages: int = ACTIVE_STAGES
) -> tuple[tuple[Entry, ...], ...]:
    """The lowered list of every rank, rank 0 first.

    Raises ValueError where a stage sits on different ranks for different microbatches, which torch does
    not know, and for orders that cannot be run.
    """
    if stage_to_rank(rank_of, shape) is None:
        raise ValueError(
            "torch places a stage on one rank, but here that depends on the microbatch (DualPipe); use async "
            "or batched"
        )
    ends = Ends(orders=orders, shape=shape, rank_of=rank_of)
    return with_messages([_with_calls(order, shape, active_stages) for order in orders], ends)


# Calls of FSDP -------------------------------------------------------------------------------------------


def _with_calls(order: Order, shape: Shape, active_stages: int) -> Iterator[Step | StageCall]:
    # A set, as in torch: several stages freed at once leave in the order in which it lists them.
    held: set[int] = set()
    ended: Counter[int] = Counter()
    for step, ahead in zip(order, _stages_ahead(order, active_stages), strict=True):
        for stage in [stage for stage in held if stage not in ahead]:
            held.remove(stage)
            yield StageCall(FsdpCall.RESHARD, stage)
        for stage in [stage for stage in ahead if stage not in held]:
            held.add(stage)
            yield StageCall(FsdpCall.UNSHARD, stage)
        yield step
        for action in parts(step):
            if action.kind in (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD):
                ended[action.stage] += 1
                if ended[action.stage] == shape.microbatches:
                    yield StageCall(FsdpCall.REDUCE_GRAD, action.stage)
    yield from (StageCall(FsdpCall.RESHARD, stage) for stage in held)


def _stages_ahead(order: Order, count: int) -> list[list[int]]:
    """For each step, the next ``count`` stages that it and the steps after it use, in order of use.

    A pair counts whole: where its forward is the last that fits, its backward comes too.
    """
    uses: list[tuple[int, int]] = []  # every stage used from here on, and the step that uses it first
    ahead = []
    for position in range(len(order) - 1, -1, -1):
        now = list(dict.fromkeys(action.stage for action in parts(order[position])))
        uses = [(stage, position) for stage in now] + [use for use in uses if use[0] not in now]
        last = uses[count - 1][1] if count <= len(uses) else len(order)
        ahead.append([stage for i, (stage, step) in enumerate(uses) if i < count or step == last])
    return ahead[::-1]


# Messages ------------------------------------------------------------------------------------------------


def with_messages(lists: Iterable[Iterable[Step | StageCall]], ends: Ends) -> tuple[tuple[Entry, ...], ...]:
    """The lists with their messages.

    Each rank in turn places one entry, if its inputs are there, and with it both ends of its messages: so
    what the lists hold beside steps moves the messages too. Raises ValueError for lists that cannot be run.
    """
    todo = [deque(entries) for entries in lists]
    placed: list[list[Entry]] = [[] for _ in todo]
    there: list[set[int]] = [set() for _ in todo]  # results that the rank made or was sent
    while any(todo):
        before = sum(map(len, todo))
        for rank, entries in enumerate(todo):
            if not entries or not _ready(entries[0], there[rank], ends.shape):
                continue
            entry = entries.popleft()
            placed[rank].append(entry)
            for action in () if isinstance(entry, StageCall) else parts(entry):
                result = result_of(action, ends.shape)
                if result is None:
                    continue
                there[rank].add(result)
                if send := ends.sent(action):
                    placed[rank].append(send)
                    placed[send.peer].append(Recv(action, rank))
                    there[send.peer].add(result)
        if sum(map(len, todo)) == before:
            stuck = "; ".join(f"rank {rank} at {left[0]}" for rank, left in enumerate(todo) if left)
            raise ValueError(f"these orders cannot be run, ranks wait for ever: {stuck}")
    return tuple(map(tuple, placed))


def _ready(entry: Step | StageCall, there: set[int], shape: Shape) -> bool:
    """Whether what other stages make for the entry is there; its own rank's order answers for the rest."""
    if isinstance(entry, StageCall):
        return True
    needing = (action for action in parts(entry) if producer_stage(action, shape) is not None)
    return all(needed_by(action, shape)[-1] in there for action in needing)
