"""Pipeline ranks by themselves: their programs but for the messages between them, action by action.

For whoever bounds a step by the actions of a rank in their order. Writes with pipeline.py; knows no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...schedules.orders.action import Action, Step, actions_of
from ..program.program import Op
from .common_to_layouts import SearchCache
from .common_to_ranks import CommonToRanks
from .optional_parts import activation_copies_of, sharded_actions_of
from .pipeline import Pieces, RankWriter
from .plan import StepPlan


def ranks_without_messages(
    plan: StepPlan, cache: SearchCache | None, pipeline: Sequence[int]
) -> list[RankWithoutMessages]:
    """All pipeline ranks, each to be written action by action: what it computes, reduces, gathers and updates
    in its order, without what it waits for from other ranks. ``pipeline`` gives the rank of the job that
    stands for each pipeline rank, where these are placed in several ways; empty: all ranks are placed as rank
    0."""
    known: dict[int, tuple[StepPlan, CommonToRanks]] = {}
    found = []
    for index in range(len(plan.orders)):
        way = int(plan.placements.of_rank[pipeline[index]]) if len(pipeline) else 0
        if way not in known:
            placed = plan.of_groups(plan.placements.first[way])
            sharding = sharded_actions_of(placed)
            known[way] = (
                placed,
                CommonToRanks(
                    sharding=sharding, copies=activation_copies_of(placed), cache=cache or SearchCache()
                ),
            )
        placed, shared = known[way]
        found.append(RankWithoutMessages(RankWriter(placed, index, "blocking", shared)))
    return found


@dataclass(frozen=True, slots=True)
class RankWithoutMessages:
    """The program of a pipeline rank but for its messages, as far as somebody has gone through its order.

    Most actions are their blocks and nothing else: whoever goes through them asks for these (``pieces_of``),
    and has those alone written (``write``) that are ``apart``.
    """

    _writer: RankWriter

    def begin(self) -> None:
        """Append what comes before all actions."""
        self._writer.begin()

    def write(self, step: Step) -> None:
        """Append an action or a pair, with what is gathered and reduced around it."""
        self._writer.run(step)

    def end(self) -> None:
        """Append what comes after all actions."""
        self._writer.finish()

    @property
    def ops(self) -> list[Op]:
        """What was written so far, in host order."""
        return self._writer.writer.ops

    @property
    def last_compute(self) -> int:
        """The last op on the compute stream; -1 if there is none."""
        return self._writer.writer.last_compute

    @property
    def awaits(self) -> bool:
        """Whether the next op of the compute stream waits for ops of other streams."""
        return bool(self._writer.writer.awaited)

    def apart(self) -> set[Step | None]:
        """The actions that are more than their blocks, or may be: the last of each stage, at which gradients
        leave, and those that calls of the software follow. Parameters come at the first forward of a stage,
        and of shards the last microbatch may move others than those before.
        """
        writer = self._writer
        found = {*writer.calls, *writer.final.values()}
        if writer.sharding:
            ends = {stage: action.microbatch for stage, action in writer.final.items()}
            order = actions_of(writer.plan.orders[writer.index])
            found |= {action for action in order if action.microbatch == ends[action.stage]}
        return found

    def pieces_of(self, action: Action) -> Pieces:
        """The blocks of any other action, in pieces where the host waits in between; none where there are no
        blocks, so that it is written too."""
        writer = self._writer
        blocks = writer.plain.get((action.stage, action.kind)) or writer.blocks_between(action)
        return writer.shared.repeated(tuple(blocks)) if blocks else ()
