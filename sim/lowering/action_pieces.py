"""An action in pieces: forwards behind the parameters that come back, backwards beside gradients that leave.

Knows between which blocks of an action something is awaited or sent. Which buckets there are is in
gather_chain.py, parameter_gather.py and updates/gradients.py; when an action is in pieces at all, the writer
of the step knows (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind
from ..program.program import Block
from ..program.program_builder import ProgramBuilder
from .actions import action_blocks, block_owners, gradients_ready
from .gather_chain import GatherChain, forward_uses, uses_in_buckets
from .parameter_gather import ParameterGather
from .plan import StepPlan
from .stage_parameters import NO_ELEMENTS, Elements
from .updates.gradients import Gradients

if TYPE_CHECKING:
    from .activation_offload import ActivationCopies
    from .step_end import StepEnd

CountedBlocks = tuple[tuple[Block, int], ...]
"""Blocks in the order in which they run, each with its count."""


Run = Callable[[Action, Iterable[tuple[Block, int]]], None]
"""Appends blocks of an action as one op."""


def pieces_of(end: StepEnd, copies: ActivationCopies | None, run: Run) -> ActionPieces:
    """The pieces of a rank's actions, whose gradients and parameters are those of the ``end`` of its step."""
    plan = end.plan
    # Megatron core's partition_buckets: what is not in 8 bits goes with the bucket of the first layers.
    narrow = plan.local.weights.gathered < plan.local.element_bytes
    by_buckets = plan.scenario.software.gradients.reduction == "megatron-buckets"
    return ActionPieces(
        plan=plan,
        writer=end.writer,
        gradients=end.gradients,
        expert_gradients=end.expert_gradients,
        copies=copies,
        ends_last=by_buckets and end.sharded and narrow,
        run=run,
    )


@dataclass(kw_only=True)
class ActionPieces:
    """Actions of one pipeline rank in pieces, each of which ``run`` appends. ``ends_last``: gradients of the
    model's ends do not leave with their bucket; ``put_off`` are their elements so far.
    """

    plan: StepPlan
    writer: ProgramBuilder
    gradients: Gradients
    expert_gradients: Gradients
    copies: ActivationCopies | None
    ends_last: bool
    run: Run
    put_off: float = 0.0

    def beside(
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
        if self.copies and reduces:  # which has its layers one by one
            counts = (count for _, count in action_blocks(action, stage, plan.blocks))
            ready = (each for each, count in zip(ready, counts, strict=True) for _ in range(count))
        self._in_pieces(action, blocks, gathers, ready if reduces else repeat(NO_ELEMENTS))

    def behind_buckets(self, action: Action, gather: ParameterGather) -> None:
        """Append a stage's first forward in pieces, each behind the buckets of parameters that it wants."""
        plan = self.plan
        bucket, local = self.gradients.bucket_elements, plan.local
        layers = plan.parameters[action.stage].layers.values()
        by_matrix = bucket < max((each.shared for _, each in layers), default=0.0)
        uses = tuple(forward_uses(plan, action.stage, by_matrix=by_matrix))
        row, sizes = uses_in_buckets(uses, bucket, local.element_bytes, local.weights.gathered)
        chain = GatherChain(writer=self.writer, gather=gather.gather, sizes=sizes)
        together: list[tuple[Block, int]] = []
        for block, buckets in row:
            for one in buckets:
                if chain.lacks(one):
                    self.run(action, together)
                    together = []
                    chain.wait(one)
            together.append((block, 1))
        self.run(action, together)

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

    def _in_pieces(
        self, action: Action, blocks: CountedBlocks, gathers: list[tuple[int, ...]], ready: Iterable[Elements]
    ) -> None:
        """Each block waits for the next of ``gathers``; gradients of ``ready`` elements leave after each."""
        together: list[tuple[Block, int]] = []
        awaited: tuple[int, ...] | None = None
        for (block, count), elements in zip(blocks, ready, strict=False):
            for _ in range(count):
                if gathers and (arriving := gathers.pop(0)) != awaited:
                    self.run(action, together)
                    together = []
                    self.writer.wait(*arriving)
                    awaited = arriving
                together.append((block, 1))
                shared, experts = elements.shared, elements.experts
                if self.gradients.fills(shared) or self.expert_gradients.fills(experts):
                    self.run(action, together)
                    together = []
                self.gradients.add(self.writer, shared)
                self.expert_gradients.add(self.writer, experts)
        self.run(action, together)
