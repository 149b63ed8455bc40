"""An action in pieces: forwards that wait for gathered parameters, backwards whose gradients are reduced
meanwhile.

Knows between which blocks of an action something is awaited or sent. The buckets are formed in
gather_chain.py, parameter_gather.py and updates/gradients.py; pipeline.py decides which actions are cut in
pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind
from ..program.program import Block
from ..program.program_builder import ProgramBuilder
from .actions import action_blocks, backward_pieces, block_owners, gradients_ready
from .gather_chain import GatherChain, forward_uses, uses_in_buckets
from .layers.kinds import LayerRun
from .parameter_gather import ParameterGather
from .plan import StepPlan
from .reductions import gathers_apart
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
    """What cuts the actions of one rank; ``end`` is the end of its step, which reduces its gradients."""
    plan = end.plan
    by_buckets = plan.scenario.software.gradients.reduction == "megatron-buckets"
    return ActionPieces(
        plan=plan,
        writer=end.writer,
        gradients=end.gradients,
        expert_gradients=end.expert_gradients,
        copies=copies,
        ends_last=by_buckets and end.sharded and gathers_apart(plan),
        run=run,
    )


@dataclass(kw_only=True)
class ActionPieces:
    """Cuts actions of one pipeline rank in pieces, and appends each piece by ``run``.

    ``ends_last``: gradients of the embedding and the head are not reduced with their bucket, but at the end
    of the step; ``deferred`` counts their elements.
    """

    plan: StepPlan
    writer: ProgramBuilder
    gradients: Gradients
    expert_gradients: Gradients
    copies: ActivationCopies | None
    ends_last: bool
    run: Run
    deferred: float = 0.0

    def beside(
        self, action: Action, blocks: CountedBlocks, gathers: list[tuple[int, ...]], *, reduces: bool
    ) -> None:
        """Append an action in pieces, while parameters are gathered or gradients are reduced."""
        plan, writer = self.plan, self.writer
        stage, parameters = plan.stages[action.stage], plan.parameters[action.stage]
        if reduces and action.kind is ActionKind.WEIGHT_GRAD and stage.embedding:
            self.gradients.add(writer, parameters.embedding, one=True)  # came with an input gradient
        ready: Iterable[Elements] = gradients_ready(action, stage, parameters)
        if reduces and self.ends_last:
            ready = self._without_ends(action, ready)
        if self.copies and reduces:  # which has its layers one by one
            counts = (count for _, count in action_blocks(action, stage, plan.blocks))
            ready = (each for each, count in zip(ready, counts, strict=True) for _ in range(count))
        elif reduces and action.kind is ActionKind.BACKWARD and not plan.scenario.software.host.cuda_graphs:
            blocks, ready = self._by_matrix(action, blocks, ready)  # a layer's graph gives all at once
        self._in_pieces(action, blocks, gathers, ready if reduces else repeat(NO_ELEMENTS))

    def behind_buckets(self, action: Action, gather: ParameterGather) -> None:
        """Append the first forward of a stage in pieces, each behind the buckets that hold its parameters."""
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
                if chain.awaits(one):
                    self.run(action, together)
                    together = []
                    chain.wait(one)
            together.append((block, 1))
        self.run(action, together)

    def _by_matrix(
        self, action: Action, blocks: CountedBlocks, ready: Iterable[Elements]
    ) -> tuple[CountedBlocks, Iterable[Elements]]:
        """``blocks`` of a backward and what each makes ``ready``, dense layers cut where a matrix has its
        gradient if a bucket holds less than a layer."""
        parameters, cut = self.plan.parameters[action.stage], list[tuple[tuple[Block, int], Elements]]()
        owners = block_owners(action, self.plan.stages[action.stage])
        for (block, count), elements, owner in zip(blocks, ready, owners, strict=True):
            pieces: tuple[tuple[Block, float], ...] = ()
            if isinstance(owner, LayerRun) and self.gradients.splits(elements.shared):
                pieces = backward_pieces(self.plan.blocks, parameters, owner)
            if not pieces:
                cut.append(((block, count), elements))
                continue
            for _ in range(count):
                cut += [((piece, 1), Elements(shared=own)) for piece, own in pieces]
        return tuple(each for each, _ in cut), [elements for _, elements in cut]

    def _without_ends(self, action: Action, ready: Iterable[Elements]) -> Iterator[Elements]:
        """``ready`` without the embedding and the head, whose elements are counted as ``deferred``."""
        stage = self.plan.stages[action.stage]
        counts = (count for _, count in action_blocks(action, stage, self.plan.blocks))
        for elements, owner, count in zip(ready, block_owners(action, stage), counts, strict=True):
            if isinstance(owner, str):
                self.deferred += count * elements.shared
                yield NO_ELEMENTS
            else:
                yield elements

    def _in_pieces(
        self, action: Action, blocks: CountedBlocks, gathers: list[tuple[int, ...]], ready: Iterable[Elements]
    ) -> None:
        """Each block waits for the next of ``gathers``; behind it, the gradients of its ``ready`` elements
        join their bucket."""
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
                self.gradients.add(self.writer, shared, one=elements.one)
                self.expert_gradients.add(self.writer, experts)
        self.run(action, together)
