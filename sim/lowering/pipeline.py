"""Writes each pipeline rank's step: its actions, the messages between them, gradients, optimizer.

The point-to-point rule of the software decides how messages are posted and awaited
(schedules/p2p/point_to_point.py); the gradient rule decides when reductions start. Actions beside gathers and
reductions are in action_pieces.py, what comes after the last action in step_end.py, ranks by themselves in
without_messages.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind, Overlap, Step, actions_of, parts
from ...schedules.p2p.megatron_hooks import GIVES_GRADIENT, Hook, HookCall, Hooked, hooked
from ...schedules.p2p.point_to_point import Instruction, MessageGroup, RunAction, Wait, point_to_point
from ..program.program import Block, Op, RepeatedBlocks
from ..program.program_builder import ProgramBuilder
from ..scenario.refusal import NotSupported
from ..scenario.schedules import is_table
from .action_pieces import CountedBlocks, pieces_of
from .actions import Owned, action_blocks, block_owners, owned
from .common_to_layouts import SearchCache, ordered_by
from .common_to_ranks import CommonToRanks
from .message_sizes import MessageTransfers, gather_received, gathers_received
from .messages import Messages
from .optional_parts import activation_copies_of, sharded_actions_of
from .plan import StepPlan
from .step_end import end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .overlapped import OverlappedBlocks

NAMES = {kind: kind.name.lower() for kind in ActionKind}

Pieces = tuple[RepeatedBlocks, ...]
"""The blocks of an action, in pieces where the host waits in between."""

FORWARD = ActionKind.FORWARD  # read once: a member of an Enum is looked up by a function


class StepWriters:
    """Writes the programs of a step; who sends what when is found once for all of them."""

    def __init__(self, plan: StepPlan, cache: SearchCache | None = None) -> None:
        self.rule = plan.point_to_point
        self.cache = cache or SearchCache()
        try:
            self.instructions = self.cache.get(
                ("instructions", *ordered_by(plan.scenario, plan.shape), self.rule),
                lambda: point_to_point(plan.orders, plan.shape, plan.schedule.rank_of, self.rule),
            )
        except ValueError as refusal:
            raise NotSupported("software.pipeline.point_to_point", str(refusal)) from None
        # Registered schedules run under every rule that takes them; a user's table may not.
        if is_table(plan.scenario.schedule):
            from ...schedules.orders.validate import refuse
            from ...schedules.p2p.deadlock import instruction_problems

            try:
                refuse(instruction_problems(self.instructions, f"rule {self.rule}"))
            except ValueError as refusal:
                raise NotSupported(
                    "software.pipeline.point_to_point", f"{refusal}; async waits for no send"
                ) from None

    def write(self, plan: StepPlan, indices: Iterable[int]) -> list[list[Op]]:
        """The ops of these pipeline ranks, in host order; ``plan`` is that of their load and placements."""
        sharding = sharded_actions_of(plan)
        tags = self.cache.get(("tags",), dict[Action, str])
        shared = CommonToRanks(
            sharding=sharding, copies=activation_copies_of(plan), tags=tags, cache=self.cache
        )
        return [
            RankWriter(plan, index, self.rule, shared).write(self.instructions[index]) for index in indices
        ]


@dataclass
class RankWriter:
    """Writes the program of one pipeline rank, action by action."""

    plan: StepPlan
    index: int
    rule: str
    shared: CommonToRanks
    writer: ProgramBuilder = field(default_factory=ProgramBuilder)
    gathers: dict[int, list[tuple[int, ...]]] = field(
        default_factory=dict
    )  # per virtual stage, by layer unit
    chained: set[int] = field(default_factory=set)  # virtual stages to be gathered a bucket ahead
    rows: dict[tuple[int, ActionKind], Owned] = field(default_factory=dict)  # by stage
    plain: dict[tuple[int, ActionKind], CountedBlocks] = field(default_factory=dict)  # by its blocks
    pieces: dict[tuple[int, ActionKind], Pieces] = field(default_factory=dict)  # those of ``plain``
    sharded: dict[tuple[int, ActionKind, bool, bool], Pieces] = field(
        default_factory=dict
    )  # those of actions with shards, by whether they are a stage's first or last
    pairs: dict[tuple[int, int], OverlappedBlocks | None] = field(
        default_factory=dict
    )  # by stages forward, backward
    begun: set[int] = field(default_factory=set)  # virtual stages that have run a forward
    calls: Mapping[Step | None, Sequence[Hook]] = field(
        default_factory=dict
    )  # after a step; None: before all
    syncs: bool = False  # whether backwards reduce each bucket of gradients as soon as it is full
    unreduced: list[int] = field(default_factory=list)  # virtual stages to reduce when all has run

    def __post_init__(self) -> None:
        plan, software = self.plan, self.plan.scenario.software
        self.messages = Messages(
            writer=self.writer,
            rule=self.rule,
            transfer=MessageTransfers(plan=plan, index=self.index, alike=self.shared.transfers),
            host_s=software.pipeline.p2p_messages * plan.costs.host_collective_s,
            host_sync=software.pipeline.p2p_host_sync,
            tags=self.shared.tags,
        )
        self.rebuilds = gathers_received(plan)
        self.sharding = self.shared.sharding
        self.end = end_of(plan, self.index, self.writer, self.sharding)
        self.in_pieces = pieces_of(self.end, self.shared.copies, self._run)
        order = plan.orders[self.index]
        self.final = self.shared.cache.get(
            ("final", *ordered_by(plan.scenario, plan.shape), self.index),
            lambda: {a.stage: a for a in actions_of(order) if a.kind in GIVES_GRADIENT},
        )
        self.unreduced = list(plan.held_stages(self.index))
        self.acts_after = plan.ends == "streaming" or self.sharding is not None
        # Both copies of a stage must reduce in the same order, so they do so when all is there.
        together = not plan.two_way and plan.ends != "streaming"
        whole = self.end.reduces and self.sharding is None
        if whole and software.gradients.overlaps(plan.scenario.parallelism.zero) and together:
            aligned = software.gradients.reduction == "megatron-buckets"
            self.calls = self.shared.cache.get(
                ("calls", *ordered_by(plan.scenario, plan.shape), self.index, aligned),
                lambda: _calls(hooked(self.index, order, plan.shape, aligned=aligned)),
            )

    def write(self, instructions: Iterable[Instruction]) -> list[Op]:
        """The ops of the rank's whole step, in host order."""
        self.begin()
        messages = self.messages
        exchange: Callable[[MessageGroup], object] = messages.exchange
        if self.rebuilds:
            exchange = self._exchange
        elif self.rule == "async":
            exchange = messages.unordered
        wait = messages.wait
        for instruction in instructions:
            if type(instruction) is MessageGroup:
                exchange(instruction)
            elif type(instruction) is Wait:
                wait(instruction.part)
            else:
                assert type(instruction) is RunAction
                self.run(instruction.step)
        self.finish()
        return self.writer.ops

    def begin(self) -> None:
        """Append what comes before all actions."""
        if self._gathers_ahead and not self._gathers_by_hooks:
            if self._gathers_in_chain:
                self.chained = set(self.plan.held_stages(self.index))
            else:
                self.gathers = self.end.parameter_gather().ahead()
        self._call(None)

    def finish(self) -> None:
        """Append what comes after all of them."""
        self.end.write(self.unreduced, self.in_pieces.deferred)
        del self.in_pieces  # which refers to this writer: else the ops stay until the garbage collector comes

    def run(self, step: Step) -> None:
        """Append a step of the order, and what the software calls after it."""
        if isinstance(step, Action):
            self._action(step)
        elif not self._pair(step):
            for action in parts(step):
                self._action(action)
        if self.calls and step in self.calls:
            self._call(step)

    @property
    def _gathers_ahead(self) -> bool:
        """Whether updated parameters are gathered ahead of the forwards that use them
        (``overlap_param_gather``)."""
        return self.end.gathers and self.plan.scenario.software.gradients.overlap_param_gather

    @property
    def _gathers_in_chain(self) -> bool:
        """Whether each bucket's gather is issued when the one before it has arrived (gather_chain.py)."""
        plan = self.plan
        once = plan.shape.stages == plan.shape.ranks and not plan.two_way and not self.shared.copies
        return once and plan.scenario.software.gradients.reduction == "megatron-buckets"

    @property
    def _gathers_by_hooks(self) -> bool:
        """Whether hooks of the order say when the parameters of each virtual stage are gathered."""
        return any(hook.call is HookCall.GATHER for hooks in self.calls.values() for hook in hooks)

    # Actions -----------------------------------------------------------------------------------

    def _action(self, action: Action) -> None:
        """Append the blocks of an action: as one op, or as several where parameters are awaited or gradients
        are sent between them."""
        if self.chained and action.kind is FORWARD and action.stage in self.chained:
            self.chained.remove(action.stage)
            self.in_pieces.behind_buckets(action, self.end.parameter_gather())
            self.messages.ends((action,))
            return
        # Each stage's gathers are awaited by its first forward, whichever microbatch that is of.
        stage, kind, _ = action
        gathers = self.gathers.pop(stage, []) if self.gathers and kind is FORWARD else []
        reduces = self.syncs and action == self.final.get(stage)
        pieces = self.pieces.get((stage, kind))
        if pieces is None or gathers or reduces:
            self._blocks(action, gathers, reduces=reduces)
        else:
            self._repeat(action, pieces)
        self.messages.ends((action,))
        if self.acts_after and kind in GIVES_GRADIENT:
            self._after_backward(action)

    def _blocks(self, action: Action, gathers: list[tuple[int, ...]], *, reduces: bool) -> None:
        """Append the blocks of an action that is not a repetition: the first of its kind on its stage, which
        later ones repeat, or one that is cut in pieces because gathers or reductions run beside it."""
        stage, kind, _ = action
        if self.sharding and not (gathers or reduces):
            if pieces := self._of_shards(action):
                self._repeat(action, pieces)
            return
        blocks = self.plain.get((stage, kind)) or self.blocks_of(action)
        if reduces:
            self.unreduced.remove(stage)
        if gathers or reduces:
            self.in_pieces.beside(action, blocks, gathers, reduces=reduces)
        elif blocks:
            self.pieces[stage, kind] = self.shared.repeated(blocks)
            self._repeat(action, self.pieces[stage, kind])

    def _of_shards(self, action: Action) -> Pieces:
        """The pieces of an action whose parameters are sharded: others than before only for the first forward
        of its stage, and for the last microbatch."""
        stage, kind, microbatch = action
        key = stage, kind, self._begins(action), microbatch == self.final[stage].microbatch
        found = self.sharded.get(key)
        if found is None:
            assert self.sharding is not None
            row = tuple(self.sharding.row(action, self._row(action), first=key[2], last=key[3]))
            found = self.sharded[key] = self.shared.repeated(row) if row else ()
        return found

    def blocks_between(self, action: Action) -> CountedBlocks:
        """The blocks of an action of this kind and stage for any microbatch but the first and the last."""
        if not self.sharding:
            return self.blocks_of(action)
        return self.sharding.row(action, self._row(action), first=False)

    def _row(self, action: Action) -> Owned:
        key = action.stage, action.kind
        if key not in self.rows:
            stage, make = self.plan.stages[action.stage], partial(self._owned, action)
            self.rows[key] = self.shared.row_of(action.kind, stage, make)
        return self.rows[key]

    def blocks_of(self, action: Action) -> CountedBlocks:
        """The blocks of an action, with the gathers and reductions of sharded parameters around them."""
        key, row = (action.stage, action.kind), self._row(action)
        if self.sharding:
            last = action.microbatch == self.final[action.stage].microbatch
            return self.sharding.row(action, row, first=self._begins(action), last=last)
        found = self.plain[key] = tuple((block, count) for block, _, count in row)
        return found

    def _begins(self, action: Action) -> bool:
        """Whether this is the first forward of its stage in the step. Asking marks the stage as begun."""
        first = action.kind is FORWARD and action.stage not in self.begun
        self.begun.add(action.stage)
        return first

    def _owned(self, action: Action) -> Owned:
        """The blocks of an action, with the copies of activations that run beside them."""
        stage = self.plan.stages[action.stage]
        row = owned(action_blocks(action, stage, self.plan.blocks), block_owners(action, stage))
        return self.shared.copies.around(action.kind, row) if self.shared.copies else row

    def _pair(self, step: Overlap) -> bool:
        """Append a forward and a backward as one op. Returns False, and appends nothing, where they run one
        after the other: while parameters are still awaited, or gradients are sent between blocks."""
        if self.syncs or step.forward.stage in self.gathers or step.forward.stage in self.chained:
            return False
        key = step.forward.stage, step.backward.stage
        if key not in self.pairs:
            stages = self.plan.stages
            from .overlapped import pair_blocks

            blocks = pair_blocks(stages[key[0]], stages[key[1]], self.plan.blocks)
            copies = self.shared.copies
            self.pairs[key] = copies.overlapped(blocks) if copies and blocks else blocks
        found = self.pairs[key]
        if found is None:
            return False
        row: CountedBlocks = tuple((block, count) for block, _, _, count in found)
        if self.sharding:
            row = self.sharding.pair_row(step, found, first=self._begins(step.forward))
        self.writer.repeat("forward, backward", self.shared.repeated(row), action=str(step))
        self.messages.ends(parts(step))
        if self.acts_after:
            self._after_backward(step.backward)
        return True

    def _run(self, action: Action, blocks: Iterable[tuple[Block, int]]) -> None:
        row = tuple(blocks)
        if row:
            self._repeat(action, self.shared.repeated(row))

    def _repeat(self, action: Action, pieces: Pieces) -> None:
        """Append one op, or one for each of several pieces."""
        tags = self.shared.tags
        tag = tags.get(action)
        if tag is None:
            tag = tags[action] = str(action)
        self.writer.repeat(NAMES[action[1]], pieces, action=tag)

    def _after_backward(self, action: Action) -> None:
        """Append what follows a backward: the update of a step that updates after each one, or FSDP's
        reductions after a stage's last one."""
        plan = self.plan
        if plan.ends == "streaming":
            self.end.after_backward(action.stage)
            return
        rule = self.sharding.rule if self.sharding else None
        at_the_end = rule is not None and not (rule.reduces_each or rule.beside_last)
        if self.sharding and at_the_end and action == self.final[action.stage]:
            self._run(action, self.sharding.last_reduction(action.stage))

    def _call(self, after: Step | None) -> None:
        """Append what the framework's hooks do to gradients and parameters right after a step of the order;
        None: before the first step."""
        for hook in self.calls.get(after, ()):
            match hook:
                case Hook(HookCall.ENABLE | HookCall.DISABLE):
                    self.syncs = hook.call is HookCall.ENABLE
                case Hook(HookCall.REDUCE, int(stage)):
                    self.unreduced.remove(stage)
                    self.end.reduce_stage(stage)
                case Hook(HookCall.GATHER, int(stage)) if self._gathers_ahead:
                    self.gathers[stage] = self.end.parameter_gather().of_stage(stage)

    # Messages ----------------------------------------------------------------------------------

    def _exchange(self, exchange: MessageGroup) -> None:
        gather_received(self.plan, self.writer, exchange, self.messages.exchange(exchange))


def _calls(order: Iterable[Hooked]) -> Mapping[Step | None, Sequence[Hook]]:
    """The framework's hooks after each step of an order; None: before the first step.

    Reductions after the last step are left out: as in Megatron, they follow the last messages, where all
    stages that are still ``unreduced`` are reduced.
    """
    found: dict[Step | None, list[Hook]] = {}
    step: Step | None = None
    for entry in order:
        if isinstance(entry, Hook):
            found.setdefault(step, []).append(entry)
        else:
            step = entry
    last = found.get(step, [])
    while last and last.pop().call is not HookCall.ENABLE:
        pass
    return found
