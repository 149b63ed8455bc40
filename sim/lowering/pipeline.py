"""Writes each pipeline rank's step: its actions, the messages between them, gradients, optimizer.

The point-to-point rule of the software decides how messages are posted and awaited
(schedules/p2p/point_to_point.py); the gradient rule decides when reductions start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind, Overlap, Step, actions_of, parts
from ...schedules.p2p.megatron_hooks import GIVES_GRADIENT, Hook, HookCall, Hooked, hooked
from ...schedules.p2p.point_to_point import Instruction, MessageGroup, RunAction, Wait, point_to_point
from ..network.transfer import Transfer
from ..program import program
from ..program.program import Block, Op, RepeatedBlocks
from ..program.program_builder import ProgramBuilder
from ..scenario.refusal import NotSupported
from ..scenario.schedules import is_table
from ..scenario.sharding import sharding_rule
from .actions import Owned, action_blocks, between_waits, block_owners, gradients_ready, owned
from .gather_chain import GatherChain, forward_uses, uses_in_buckets
from .host_rendezvous import update_checks_s, write_barrier
from .message_sizes import MessageTransfers, gather_received, gathers_received
from .messages import Messages
from .optimizers import updated_parameters
from .orthogonalise import Update
from .parameter_gather import ParameterGather
from .plan import StepPlan
from .reductions import expert_gradients_of, gradients_of, reduce_shared_table
from .sharding_of import sharding_of
from .slices import slice_kernels
from .stage_parameters import NO_ELEMENTS, Elements
from .tables import Tables, ordered_by
from .updates.optimizer import OptimizerShare, write_optimizer

if TYPE_CHECKING:
    from .activation_offload import ActivationCopies
    from .overlapped import OverlappedBlocks
    from .sharded import Sharding

NAMES = {kind: kind.name.lower() for kind in ActionKind}

FORWARD = ActionKind.FORWARD  # read once: a member of an Enum is looked up by a function

CountedBlocks = tuple[tuple[Block, int], ...]
"""Blocks in the order in which they run, each with its count."""


class StepWriters:
    """Writes the programs of a step; who sends what when is found once for all of them."""

    def __init__(self, plan: StepPlan, tables: Tables | None = None) -> None:
        self.rule = plan.point_to_point
        self.tables = tables or Tables()
        try:
            self.instructions = self.tables.get(
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
        sharding = sharding_of(plan, sharding_rule(plan.scenario))
        tags = self.tables.get(("tags",), dict[Action, str])
        shared = _Shared(sharding=sharding, copies=_copies(plan), tags=tags, tables=self.tables)
        return [
            _StepWriter(plan, index, self.rule, shared).write(self.instructions[index]) for index in indices
        ]


def _copies(plan: StepPlan) -> ActivationCopies | None:
    """The copies of activations to the host, where there are such."""
    if not plan.scenario.training.activation_offload:
        return None
    from .activation_offload import activation_copies

    return activation_copies(plan)


def write_without_messages(plan: StepPlan, tables: Tables | None = None) -> list[list[Op]]:
    """The ops of all pipeline ranks, in host order, but for the messages between them: what each computes,
    reduces, gathers and updates in its order, whatever it waits for.
    """
    sharding = sharding_of(plan, sharding_rule(plan.scenario))
    shared = _Shared(sharding=sharding, copies=_copies(plan), tables=tables or Tables())
    return [
        _StepWriter(plan, index, "blocking", shared).write(map(RunAction, order))
        for index, order in enumerate(plan.orders)
    ]


@dataclass
class _Shared:
    """What all ranks of a step have in common, each thing once."""

    sharding: Sharding | None = None
    copies: ActivationCopies | None = None
    repeated_blocks: dict[CountedBlocks, tuple[RepeatedBlocks, ...]] = field(default_factory=dict)
    transfers: dict[Transfer, Transfer] = field(default_factory=dict)
    tags: dict[Action, str] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)

    def repeated(self, row: CountedBlocks) -> tuple[RepeatedBlocks, ...]:
        """The blocks of ``row``, in pieces where the host waits in between."""
        found = self.repeated_blocks.get(row)
        if found is None:
            pieces = tuple(map(RepeatedBlocks, between_waits(row)))
            found = self.repeated_blocks[row] = pieces
        return found


@dataclass
class _StepWriter:
    plan: StepPlan
    index: int
    rule: str
    shared: _Shared
    writer: ProgramBuilder = field(default_factory=ProgramBuilder)
    gathers: dict[int, list[tuple[int, ...]]] = field(
        default_factory=dict
    )  # per virtual stage, by layer unit
    chained: set[int] = field(default_factory=set)  # virtual stages to be gathered a bucket ahead
    rows: dict[tuple[int, ActionKind], Owned] = field(default_factory=dict)  # by stage
    plain: dict[tuple[int, ActionKind], CountedBlocks] = field(default_factory=dict)  # by its blocks
    pieces: dict[int, tuple[RepeatedBlocks, ...]] = field(default_factory=dict)  # of ``plain``, by identity
    pairs: dict[tuple[int, int], OverlappedBlocks | None] = field(
        default_factory=dict
    )  # by stages forward, backward
    begun: set[int] = field(default_factory=set)  # virtual stages that have run a forward
    calls: dict[Step | None, list[Hook]] = field(default_factory=dict)  # after a step; None: before all
    syncs: bool = False  # whether backwards reduce each bucket of gradients as soon as it is full
    unreduced: list[int] = field(default_factory=list)  # virtual stages to reduce when all has run
    put_off: float = 0.0  # elements of the model's ends that are reduced when all has run

    def __post_init__(self) -> None:
        plan, software = self.plan, self.plan.scenario.software
        par = plan.scenario.parallelism
        self.messages = Messages(
            writer=self.writer,
            rule=self.rule,
            transfer=MessageTransfers(plan=plan, index=self.index, alike=self.shared.transfers),
            host_s=software.pipeline.p2p_messages * plan.costs.host_collective_s,
            host_sync=software.pipeline.p2p_host_sync,
            tags=self.shared.tags,
        )
        self.rebuilds = gathers_received(plan)
        groups, experts = plan.groups, plan.local.experts is not None
        self.reduces = groups["dp"].ranks > 1 or (experts and groups["edp"].ranks > 1)
        self.sharded = par.zero >= 1
        shards = groups["fsdp"].ranks > 1 or (experts and groups["efsdp"].ranks > 1)
        self.gathers_parameters = self.sharded and shards
        # Both copies of a stage must reduce in the same order, so they do so when all is there.
        self.sharding = self.shared.sharding
        if self.sharding and self.sharding.rule.gathers != "never":
            self.gathers_parameters = False
        whole = self.reduces and self.sharding is None
        together = not plan.two_way and plan.ends != "streaming"
        self.gradients = gradients_of(plan, self.index)
        self.expert_gradients = expert_gradients_of(plan, self.index)
        # Megatron core's partition_buckets: what is not in 8 bits goes with the bucket of the first layers.
        narrow = plan.local.weights.gathered < plan.local.element_bytes
        self.ends_last = software.gradients.reduction == "megatron-buckets" and self.sharded and narrow
        order = plan.orders[self.index]
        self.final = self.shared.tables.get(
            ("final", *ordered_by(plan.scenario, plan.shape), self.index),
            lambda: {a.stage: a for a in actions_of(order) if a.kind in GIVES_GRADIENT},
        )
        self.unreduced = list(plan.held_stages(self.index))
        self.acts_after = plan.ends == "streaming" or self.sharding is not None
        if whole and software.gradients.overlap_grad_reduce and together:
            aligned = software.gradients.reduction == "megatron-buckets"
            self._place(
                self.shared.tables.get(
                    ("hooks", *ordered_by(plan.scenario, plan.shape), self.index, aligned),
                    lambda: hooked(self.index, order, plan.shape, aligned=aligned),
                )
            )

    def _place(self, order: Iterable[Hooked]) -> None:
        """Note the calls between steps.

        Those at the end come after the last messages, as in Megatron: they reduce what is ``unreduced``.
        """
        step: Step | None = None
        for entry in order:
            if isinstance(entry, Hook):
                self.calls.setdefault(step, []).append(entry)
            else:
                step = entry
        last = self.calls.get(step, [])
        while last and last.pop().call is not HookCall.ENABLE:
            pass

    def write(self, instructions: Iterable[Instruction]) -> list[Op]:
        if self._gathers_ahead and not self._gathers_by_hooks:
            if self._gathers_in_chain:
                self.chained = set(self.plan.held_stages(self.index))
            else:
                self.gathers = self._parameter_gather().ahead()
        self._call(None)
        exchange = self._exchange if self.rebuilds else self.messages.exchange
        for instruction in instructions:
            if isinstance(instruction, MessageGroup):
                exchange(instruction)
            elif isinstance(instruction, Wait):
                self.messages.wait(instruction.part)
            else:
                self._step(instruction.step)
        self._finish()
        return self.writer.ops

    def _step(self, step: Step) -> None:
        if isinstance(step, Action):
            self._action(step)
        elif not self._pair(step):
            for action in parts(step):
                self._action(action)
        if self.calls and step in self.calls:
            self._call(step)

    @property
    def _gathers_ahead(self) -> bool:
        """Whether updated parameters come back ahead of the forwards that want them."""
        return self.gathers_parameters and self.plan.scenario.software.gradients.overlap_param_gather

    @property
    def _gathers_in_chain(self) -> bool:
        """Whether each bucket is sent for when the one before it has come (gather_chain.py)."""
        plan = self.plan
        once = plan.shape.stages == plan.shape.ranks and not plan.two_way and not self.shared.copies
        return once and plan.scenario.software.gradients.reduction == "megatron-buckets"

    @property
    def _gathers_by_hooks(self) -> bool:
        """Whether the order says before which step each virtual stage is gathered."""
        return any(hook.call is HookCall.GATHER for hooks in self.calls.values() for hook in hooks)

    # Actions -----------------------------------------------------------------------------------

    def _action(self, action: Action) -> None:
        """Append the blocks of an action as one op, or as several where parameters are awaited or gradients
        leave between them.
        """
        if self.chained and action.kind is FORWARD and action.stage in self.chained:
            self.chained.remove(action.stage)
            self._chain(action)
            self.messages.ends((action,))
            return
        # Each stage's gathers are awaited by its first forward, whichever microbatch that is of.
        stage, kind, _ = action
        gathers = self.gathers.pop(stage, []) if self.gathers and kind is FORWARD else []
        reduces = self.syncs and action == self.final.get(stage)
        blocks = self.plain.get((stage, kind)) or self._blocks(action)
        if reduces:
            self.unreduced.remove(stage)
        if gathers or reduces:
            self._beside(action, blocks, gathers, reduces=reduces)
        else:
            self._run(action, blocks)
        self.messages.ends((action,))
        if self.acts_after and kind in GIVES_GRADIENT:
            self._after_backward(action)

    def _blocks(self, action: Action) -> CountedBlocks:
        """The blocks of an action, with what sharded data parallelism moves around them."""
        key = action.stage, action.kind
        if key not in self.rows:
            self.rows[key] = self._owned(action)
        row = self.rows[key]
        if self.sharding:
            last = action.microbatch == self.final[action.stage].microbatch
            return self.sharding.row(action, row, first=self._begins(action), last=last)
        found = self.plain[key] = tuple((block, count) for block, _, count in row)
        return found

    def _beside(
        self, action: Action, blocks: CountedBlocks, gathers: list[tuple[int, ...]], *, reduces: bool
    ) -> None:
        """Append an action in pieces, beside gathers of parameters or reductions of gradients."""
        plan, writer = self.plan, self.writer
        stage, parameters = plan.stages[action.stage], plan.parameters[action.stage]
        if reduces and action.kind is ActionKind.WEIGHT_GRAD and stage.embedding:
            self.gradients.add(writer, parameters.embedding)  # came with an input gradient
        ready = gradients_ready(action, stage, parameters)
        if reduces and self.ends_last:
            ready = self._without_ends(action, ready)
        if self.shared.copies and reduces:  # which has its layers one by one
            counts = (count for _, count in action_blocks(action, stage, plan.blocks))
            ready = (each for each, count in zip(ready, counts, strict=True) for _ in range(count))
        self._in_pieces(action, blocks, gathers, ready if reduces else repeat(NO_ELEMENTS))

    def _without_ends(self, action: Action, ready: Iterable[Elements]) -> Iterator[Elements]:
        """``ready`` without the ends of the model, which are put off to the end of the backward."""
        stage = self.plan.stages[action.stage]
        counts = (count for _, count in action_blocks(action, stage, self.plan.blocks))
        for elements, owner, count in zip(ready, block_owners(action, stage), counts, strict=True):
            if isinstance(owner, str):
                self.put_off += count * elements.shared
                yield NO_ELEMENTS
            else:
                yield elements

    def _chain(self, action: Action) -> None:
        """Append a stage's first forward in pieces, each behind the buckets of parameters that it wants."""
        plan = self.plan
        bucket, local = self.gradients.bucket_elements, plan.local
        layers = plan.parameters[action.stage].layers.values()
        by_matrix = bucket < max((each.shared for _, each in layers), default=0.0)
        uses = tuple(forward_uses(plan, action.stage, by_matrix=by_matrix))
        row, sizes = uses_in_buckets(uses, bucket, local.element_bytes, local.weights.gathered)
        chain = GatherChain(writer=self.writer, gather=self._parameter_gather().gather, sizes=sizes)
        together: list[tuple[Block, int]] = []
        for block, buckets in row:
            for one in buckets:
                if chain.lacks(one):
                    self._run(action, together)
                    together = []
                    chain.wait(one)
            together.append((block, 1))
        self._run(action, together)

    def _begins(self, action: Action) -> bool:
        """Whether this is its stage's first forward in the step; the next one then is not."""
        first = action.kind is FORWARD and action.stage not in self.begun
        self.begun.add(action.stage)
        return first

    def _owned(self, action: Action) -> Owned:
        """The blocks of an action, with the copies of activations that run beside them."""
        stage = self.plan.stages[action.stage]
        row = owned(action_blocks(action, stage, self.plan.blocks), block_owners(action, stage))
        return self.shared.copies.around(action.kind, row) if self.shared.copies else row

    def _pair(self, step: Overlap) -> bool:
        """Run a forward and a backward as one op; False where they are to run one after the other.

        They do where parameters are still awaited, or gradients leave in between.
        """
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

    def _in_pieces(
        self, action: Action, blocks: CountedBlocks, gathers: list[tuple[int, ...]], ready: Iterable[Elements]
    ) -> None:
        """Each block waits for the next of ``gathers``; gradients of ``ready`` elements leave after each."""
        together: list[tuple[Block, int]] = []
        awaited: tuple[int, ...] | None = None
        for (block, count), elements in zip(blocks, ready, strict=False):
            for _ in range(count):
                if gathers and (arriving := gathers.pop(0)) != awaited:
                    self._run(action, together)
                    together = []
                    self.writer.wait(*arriving)
                    awaited = arriving
                together.append((block, 1))
                shared, experts = elements.shared, elements.experts
                if self.gradients.fills(shared) or self.expert_gradients.fills(experts):
                    self._run(action, together)
                    together = []
                self.gradients.add(self.writer, shared)
                self.expert_gradients.add(self.writer, experts)
        self._run(action, together)

    def _run(self, action: Action, blocks: Iterable[tuple[Block, int]]) -> None:
        row = blocks if isinstance(blocks, tuple) else tuple(blocks)
        if not row:
            return
        tags = self.shared.tags
        tag = tags.get(action)
        if tag is None:
            tag = tags[action] = str(action)
        pieces = self.pieces.get(id(row))
        if pieces is None:
            pieces = self.shared.repeated(row)
            if row is self.plain.get((action.stage, action.kind)):  # which lives as long
                self.pieces[id(row)] = pieces
        self.writer.repeat(NAMES[action.kind], pieces, action=tag)

    def _after_backward(self, action: Action) -> None:
        """What a step that updates after each backward does, and FSDP's reductions after a stage's last."""
        plan = self.plan
        if plan.ends == "streaming":  # replicas of a stage agree before each update (PipeDream's DDP)
            whole = plan.parameters[action.stage].total
            if self.reduces:
                self._reduce_stage(action.stage)
                self._mean(whole)
            self._update(self._share(whole, whole), (action.stage,))
            return
        rule = self.sharding.rule if self.sharding else None
        at_the_end = rule is not None and not (rule.reduces_each or rule.beside_last)
        if self.sharding and at_the_end and action == self.final[action.stage]:
            self._run(action, self.sharding.last_reduction(action.stage))

    def _call(self, after: Step | None) -> None:
        """What happens to gradients and parameters right after a step; before all of them for None."""
        for hook in self.calls.get(after, ()):
            match hook:
                case Hook(HookCall.ENABLE | HookCall.DISABLE):
                    self.syncs = hook.call is HookCall.ENABLE
                case Hook(HookCall.REDUCE, int(stage)):
                    self.unreduced.remove(stage)
                    self._reduce_stage(stage)
                case Hook(HookCall.GATHER, int(stage)) if self._gathers_ahead:
                    self.gathers[stage] = self._parameter_gather().of_stage(stage)

    def _reduce_stage(self, stage: int) -> None:
        """Reduce all gradients of a virtual stage, a bucket after the other, last layers first."""
        parameters, kinds = self.plan.parameters[stage], self.plan.stages[stage].kinds
        layers = [parameters.layer(kind) for kind in reversed(kinds)]
        rest = parameters.elements.shared - sum(each.shared for each in layers)
        for each in layers:
            self.gradients.add(self.writer, each.shared)
            self.expert_gradients.add(self.writer, each.experts)
        self.gradients.ready += rest
        self.gradients.flush(self.writer)
        self.expert_gradients.flush(self.writer)

    # Messages ----------------------------------------------------------------------------------

    def _exchange(self, exchange: MessageGroup) -> None:
        gather_received(self.plan, self.writer, exchange, self.messages.exchange(exchange))

    # Start and end of the step -------------------------------------------------------------------

    def _finish(self) -> None:
        plan, writer = self.plan, self.writer
        held, updated = plan.held_elements(self.index), updated_parameters(plan, self.index)
        if self.reduces and self.sharding is None and plan.ends != "streaming":
            elements = sum((plan.parameters[s].elements for s in self.unreduced), start=NO_ELEMENTS)
            self.gradients.ready += elements.shared + self.put_off
            self.expert_gradients.ready += elements.experts
            self._mean(updated)
        reduce_shared_table(plan, self.index, writer)
        if plan.ends != "streaming":
            self._update(self._share(held.total, updated), plan.held_stages(self.index))
        gathers = self.gathers_parameters and not plan.scenario.software.gradients.overlap_param_gather
        if gathers and not plan.skips:
            writer.wait(*self._parameter_gather().at_once())
        own = plan.profile.steps
        fixed = own.remaining * (plan.scenario.software.host.step_fixed_s + own.fixed_s)
        writer.compute("step overhead", program.Compute(fixed, "fixed"), category="optimizer")
        if plan.scenario.software.host.step_barrier and not plan.skips:
            write_barrier(plan, writer)

    def _parameter_gather(self) -> ParameterGather:
        return ParameterGather(
            plan=self.plan,
            index=self.index,
            writer=self.writer,
            shared=self.gradients,
            experts=self.expert_gradients,
        )

    def _mean(self, updated: float) -> None:
        """Reduce what is left, await it, and make the sums means."""
        self.expert_gradients.flush(self.writer)
        self.writer.wait(*self.expert_gradients.reductions)
        self.gradients.finish(self.writer, updated)
        self.gradients.reductions.clear()
        self.expert_gradients.reductions.clear()

    def _update(self, share: OptimizerShare, stages: tuple[int, ...]) -> None:
        """The optimizer, of what the rank holds of these virtual stages."""
        plan = self.plan
        norm = plan.communication.collective("all_reduce", 8.0, plan.groups["world"], scaled=False)
        write_optimizer(
            self.writer,
            share,
            plan.costs.of_update(),
            plan.local,
            update=Update(plan=plan, index=self.index, stages=stages).write,
            norm=norm if plan.ends == "together" else None,
            offload=self.gradients.offload,
            sent=self.reduces,
            skips=plan.skips,
            check_s=update_checks_s(plan, self.index),
        )

    def _share(self, held: float, updated: float) -> OptimizerShare:
        """What this rank updates, and what of it and of the ``held`` parameters it casts and clears."""
        plan, stages = self.plan, self.plan.held_stages(self.index)
        # nanotron's rule may leave a stage with nothing but the loss
        body = sum(plan.parameters[s].body for s in stages) / (held or 1.0)
        if self.sharding is None:
            by_slice = plan.scenario.software.gradients.casts_by_slice and self.sharded
            slices = slice_kernels(plan, stages) if by_slice else None
            return OptimizerShare(
                held=held, body=body, updated=updated, cast=updated, cleared=held, slices=slices
            )
        cast = 0.0 if self.sharding.rule.master_only else updated
        return OptimizerShare(held=held, body=body, updated=updated, cast=cast, cleared=0.0)
