"""How updated parameters come back to ranks that hold them whole: at once, or in buckets ahead of the layers.

Where within an order a stage is gathered is schedules/p2p/megatron_hooks.py's, for chunks of Megatron's.

This is ZeRO-1 and the distributed optimizer, once a step; what ZeRO-3 and FSDP gather around each block is
written in sharding/.

References:
    Megatron-LM distributed/param_and_grad_buffer.py, start_param_sync (--overlap-param-gather).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..program.program_builder import ProgramBuilder
from .stage_parameters import NO_ELEMENTS, Elements
from .updates.gradients import Gradients

if TYPE_CHECKING:
    from .plan import StepPlan


@dataclass(frozen=True, kw_only=True)
class ParameterGather:
    """Gathers the updated parameters of one pipeline rank, in the groups that reduced their gradients."""

    plan: StepPlan
    index: int
    writer: ProgramBuilder
    shared: Gradients
    experts: Gradients

    def ahead(self) -> dict[int, list[tuple[int, ...]]]:
        """Append all gathers in the order of the forwards. Returns, for each virtual stage, the ops that
        each of its layers waits for."""
        held = self.plan.held_stages(self.index)
        return {s: self.of_stage(s) for s in (sorted(held) if self.plan.two_way else held)}

    def of_stage(self, s: int) -> list[tuple[int, ...]]:
        """Append the gathers of a virtual stage, behind all compute so far. Returns the ops that each of
        its layers waits for."""
        plan, parameters = self.plan, self.plan.parameters[s]
        e, narrow = float(plan.local.element_bytes), plan.local.weights.gathered
        units = [(Elements(shared=parameters.embedding), e)] * bool(plan.stages[s].embedding)
        units += [(parameters.layer(kind), narrow) for kind in plan.stages[s].kinds]
        if plan.stages[s].heads:
            table = 0.0 if plan.stages[s].embedding else parameters.embedding
            units.append((Elements(shared=parameters.head + table), e))
        return self._in_buckets(units)

    def at_once(self) -> tuple[int, ...]:
        """Append all gathers at once. Returns the ops to wait for. Parameters of layers may be quantised."""
        plan = self.plan
        held, stages = plan.held_elements(self.index), plan.held_stages(self.index)
        ends = sum(plan.parameters[s].head + plan.parameters[s].embedding for s in stages)
        narrow = plan.local.weights.gathered
        shared = ends * plan.local.element_bytes + (held.shared - ends) * narrow
        return self.gather(Elements(shared=shared, experts=held.experts * narrow))

    def _in_buckets(self, units: list[tuple[Elements, float]]) -> list[tuple[int, ...]]:
        """For each unit, its elements and their bytes, the gathers that bring it: a bucket at a time."""
        gathers: list[tuple[int, ...]] = []
        bucket, size, count = NO_ELEMENTS, NO_ELEMENTS, 0
        for i, (elements, each_bytes) in enumerate(units, 1):
            bucket, size, count = bucket + elements, size + elements.times(each_bytes), count + 1
            if bucket.total >= self.shared.bucket_elements or i == len(units):
                gathers += [self.gather(size)] * count
                bucket, size, count = NO_ELEMENTS, NO_ELEMENTS, 0
        return gathers

    def gather(self, sizes_bytes: Elements) -> tuple[int, ...]:
        """Append gathers, of experts in their own group; none where no rank has another's share."""
        gathers = ((self.shared, sizes_bytes.shared), (self.experts, sizes_bytes.experts))
        return tuple(
            group.gather_parameters(self.writer, size) for group, size in gathers if size and group.shards > 1
        )
