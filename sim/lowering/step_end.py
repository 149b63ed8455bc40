"""The end of a pipeline rank's step: what is left of the gradients, the optimizer, parameters back, overhead.

Knows in which order these come, and what a step that updates after each backward does of them in between.
What an update is made of is in updates/, how gradients are reduced in reductions.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..program import program
from ..program.program_builder import ProgramBuilder
from ..scenario.sharding import gradients_last
from .host_rendezvous import update_checks_s, write_barrier
from .logged_losses import write_logged_losses
from .optimizers import update_width, updated_parameters
from .orthogonalise import Update
from .parameter_gather import ParameterGather
from .parameter_slices import slice_kernels
from .plan import StepPlan
from .reductions import expert_gradients_of, gradients_of, reduce_shared_table
from .stage_parameters import NO_ELEMENTS
from .updates.gradients import Gradients
from .updates.optimizer import OptimizerShare, write_optimizer
from .weight_casts import weight_cast_kernels

if TYPE_CHECKING:
    from .sharded_actions import ShardedActions


def end_of(plan: StepPlan, index: int, writer: ProgramBuilder, sharding: ShardedActions | None) -> StepEnd:
    """The end of the step of pipeline rank ``index``, which ``writer`` writes."""
    groups, experts = plan.groups, plan.local.experts is not None
    sharded = plan.scenario.parallelism.zero >= 1
    shards = groups["fsdp"].ranks > 1 or (experts and groups["efsdp"].ranks > 1)
    whole = sharding is None or sharding.rule.gathers == "never"
    return StepEnd(
        plan=plan,
        index=index,
        writer=writer,
        gradients=gradients_of(plan, index),
        expert_gradients=expert_gradients_of(plan, index),
        sharding=sharding,
        reduces=groups["dp"].ranks > 1 or (experts and groups["edp"].ranks > 1),
        sharded=sharded,
        gathers=sharded and shards and whole,
    )


@dataclass(kw_only=True)
class StepEnd:
    """The end of the step of pipeline rank ``index``.

    ``reduces``: its gradients are shared with other ranks; ``sharded``: its optimizer updates only a share;
    ``gathers``: it needs updated parameters from other ranks.
    """

    plan: StepPlan
    index: int
    writer: ProgramBuilder
    gradients: Gradients
    expert_gradients: Gradients
    sharding: ShardedActions | None
    reduces: bool
    sharded: bool
    gathers: bool

    def write(self, unreduced: Iterable[int], deferred: float) -> None:
        """Append the end of the step, after all actions. The gradients of ``unreduced`` virtual stages are
        still to be reduced, and so are ``deferred`` elements of the embedding and the head."""
        plan, writer = self.plan, self.writer
        held, updated = plan.held_elements(self.index), updated_parameters(plan, self.index)
        if self.reduces and self.sharding is None and plan.ends != "streaming":
            elements = sum((plan.parameters[s].elements for s in unreduced), start=NO_ELEMENTS)
            self.gradients.ready += elements.shared + deferred
            self.expert_gradients.ready += elements.experts
            self._mean(updated)
        reduce_shared_table(plan, self.index, writer)
        if plan.ends != "streaming":
            self._update(self._share(held.total, updated), plan.held_stages(self.index))
        gathers = self.gathers and not plan.scenario.software.gradients.overlap_param_gather
        if gathers and not plan.skips:
            writer.wait(*self.parameter_gather().at_once())
        own = plan.profile.steps
        fixed = own.remaining * (plan.scenario.software.host.step_fixed_s + own.fixed_s)
        writer.compute("step overhead", program.Compute(fixed, "fixed"), category="optimizer")
        if plan.scenario.software.host.step_barrier and not plan.skips:
            write_barrier(plan, writer)
        write_logged_losses(plan, writer)

    def after_backward(self, stage: int) -> None:
        """Update a virtual stage by itself: its replicas agree before each update (PipeDream's DDP)."""
        whole = self.plan.parameters[stage].total
        if self.reduces:
            self.reduce_stage(stage)
            self._mean(whole)
        self._update(self._share(whole, whole), (stage,))

    def reduce_stage(self, stage: int) -> None:
        """Reduce all gradients of a virtual stage, a bucket after the other, last layers first."""
        parameters, kinds = self.plan.parameters[stage], self.plan.stages[stage].kinds
        layers = [parameters.layer(kind) for kind in reversed(kinds)]
        rest = parameters.elements.shared - sum(each.shared for each in layers)
        for each in layers:
            self.gradients.add(self.writer, each.shared)
            self.expert_gradients.add(self.writer, each.experts)
        self.gradients.ready += rest
        self.gradients.flush(self.writer, last=True)
        self.expert_gradients.flush(self.writer)

    def parameter_gather(self) -> ParameterGather:
        """What gathers the parameters that other ranks have updated, at once or in buckets."""
        return ParameterGather(
            plan=self.plan,
            index=self.index,
            writer=self.writer,
            shared=self.gradients,
            experts=self.expert_gradients,
        )

    def _mean(self, updated: float) -> None:
        """Append the reduction of gradients that are left, the wait for all reductions, and what makes means
        of their sums."""
        self.expert_gradients.flush(self.writer)
        self.writer.wait(*self.expert_gradients.reductions)
        self.gradients.finish(self.writer, updated)
        self.gradients.reductions.clear()
        self.expert_gradients.reductions.clear()

    def _update(self, share: OptimizerShare, stages: tuple[int, ...]) -> None:
        """Append the optimizer, for what the rank holds of these virtual stages."""
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
        in_layers = sum(plan.parameters[s].body for s in stages)
        body = in_layers / (held or 1.0)
        width = update_width(plan)
        cast = updated if width == 4 and not plan.local.autocast else 0.0
        caches = plan.scenario.software.kernels.caches_mlp_weights
        quantised = in_layers if caches else sum(plan.parameters[s].beside_mlps for s in stages)
        casts = weight_cast_kernels(plan, stages)
        if self.sharding is None:
            by_slice = plan.scenario.software.gradients.casts_by_slice and self.sharded
            slices = slice_kernels(plan, stages) if by_slice else None
            return OptimizerShare(
                body=body,
                quantised=quantised,
                updated=updated,
                width=width,
                cast=cast,
                cleared=held if gradients_last(plan.scenario, None) else 0.0,
                weight_casts=casts,
                slices=slices,
            )
        cast = 0.0 if self.sharding.rule.master_only else cast
        return OptimizerShare(
            body=body,
            quantised=quantised,
            updated=updated,
            width=width,
            cast=cast,
            cleared=0.0,
            weight_casts=casts,
        )
