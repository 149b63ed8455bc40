"""Writes an optimizer's update of one rank: element by element, or with matrices orthogonalised on the way.

Muon's momentum is updated where its shard is. Then a matrix must be whole somewhere: it is already (whole
matrices to ranks, or no sharding), each rank gathers all of them (``gathered``), or shards travel to one rank
a matrix and its result back. Tensor parallelism cuts matrices besides: ``blockwise`` takes each part for a
matrix, ``duplicated`` gathers it on every rank, ``distributed`` all-reduces the products along the cut side.
Adafactor's sums by column are over all rows, so that ranks that hold some of them add theirs up.

Sources are those of optimizers.py and updates/newton_schulz.py; the gathered momentum of Distributed Muon is
in BF16, as Moonlight's authors publish it (toothacher17/Megatron-LM, branch moonshot/distributedmuon-impl,
core/optimizer/muon.py: what Newton-Schulz takes is cast to bfloat16, then all-gathered over data
parallelism), hence its 1.25 times the traffic of AdamW; what Dion exchanges is too. Megatron-FSDP sends FP32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...kernels.kernel import MemoryBound
from ..network.transfer import several
from ..program.program import Collective, Compute
from ..program.program_builder import ProgramBuilder
from ..scenario.optimizers import NEWTON_SCHULZ_STEPS
from ..scenario.sharding import sharding_rule
from .optimizers import (
    UpdatedPart,
    by_group,
    keeps_whole,
    matrices_of_layers,
    orthogonalized,
    parts_of,
    shard_ranks,
)
from .parameters import OF_EXPERTS, Parameter, count_of
from .sharding.communicators import EXPERT_SHARDS, SHARDS
from .updates.newton_schulz import iteration, newton_schulz_work, parted_iteration

if TYPE_CHECKING:
    from ..network.collectives import GroupPlacement
    from .plan import StepPlan

GATHERED_BYTES, EXCHANGED_BYTES, FP32_BYTES = 2, 2, 4
"""For each element of a momentum that travels: gathered over DP, exchanged by Dion, and sent by others."""

FIRST_HALF = 14 / 24
"""The part of the bytes of Muon's update that precedes the GEMMs: gradient, momentum, copy in BF16."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """The update of pipeline rank ``index``, of these virtual ``stages``."""

    plan: StepPlan
    index: int
    stages: tuple[int, ...]

    def write(self, writer: ProgramBuilder) -> None:
        """Append the whole update to the program."""
        for part in parts_of(self.plan, self.stages):
            if part.optimizer.orthogonalizes:
                self._momentum_and_matrices(writer, part)
                continue
            if part.optimizer.factors:
                self._sums(writer)
            self._kernel(writer, part)

    def _kernel(self, writer: ProgramBuilder, part: UpdatedPart, share: float = 1.0) -> None:
        """The kernels that update ``part``, or a ``share`` of their work."""
        costs, row = self.plan.costs.of_update(), part.optimizer
        moved, launches = part.traffic(self.plan.scenario.software)
        launches = max(1, round(share * launches))
        kernel = MemoryBound(hbm_bytes=share * moved, launches=launches)
        work = Compute(costs.seconds(kernel), "memory-bound", bytes=kernel.hbm_bytes)
        writer.compute(row.kernel, work, category="optimizer", host_s=launches * costs.host_s)

    def _momentum_and_matrices(self, writer: ProgramBuilder, part: UpdatedPart) -> None:
        plan = self.plan
        self._kernel(writer, part, FIRST_HALF)
        held = matrices_of_layers(plan.parameters[stage] for stage in self.stages)
        sharded = sharding_rule(plan.scenario) is not None
        for matrices, ranks in by_group(held, shard_ranks(plan)):
            if ranks > 1 and sharded:
                self._exchange(writer, matrices, ranks)
            elif ranks > 1 and not keeps_whole(plan.scenario):
                size = float(GATHERED_BYTES * count_of(matrices))
                self._collective(writer, "momentum all_gather", "all_gather", size, matrices)
            for each, count in orthogonalized(plan, matrices, ranks).items():
                self._orthogonalise(writer, each, count)
            if ranks > 1 and sharded:
                self._exchange(writer, matrices, ranks)
        self._kernel(writer, part, 1 - FIRST_HALF)

    # Over data parallelism --------------------------------------------------------------------------

    def _exchange(self, writer: ProgramBuilder, matrices: tuple[Parameter, ...], ranks: int) -> None:
        """Append the messages that bring the shards of ``matrices`` to the rank of each, or back."""
        own_fsdp = self.plan.scenario.software.sharding.implementation in ("fsdp2", "xla")
        each = EXCHANGED_BYTES if own_fsdp else FP32_BYTES
        size = float(each * count_of(matrices)) / ranks
        self._collective(writer, "momentum all_to_all", "all_to_all", size, matrices)

    def _collective(
        self,
        writer: ProgramBuilder,
        name: str,
        kind: str,
        size: float,
        matrices: Iterable[Parameter],
        calls: int = 1,
    ) -> None:
        """Append ``calls`` collectives of ``size`` bytes each over the ranks that share the state of
        ``matrices``."""
        plan = self.plan
        experts = any(each.replicated_over == OF_EXPERTS for each in matrices)
        communicator, placement = self._shard_group(experts=experts)
        transfer = several(plan.communication.collective(kind, size, placement), calls)
        work = Collective(kind, communicator, transfer, calls)
        stream = communicator if sharding_rule(plan.scenario) else "dp"
        host_s = calls * (plan.costs.of_update().host_collective_s + plan.communication.check_s(placement))
        writer.wait(writer.on_stream(name, stream, "dp", work, host_s=host_s))

    def _shard_group(self, *, experts: bool) -> tuple[str, GroupPlacement]:
        groups = self.plan.groups
        whole = groups["hsdp"].ranks == 1
        if experts:
            name = self.plan.edp_communicator(self.index) if whole else EXPERT_SHARDS
            return name, groups["efsdp"]
        return self.plan.dp_communicator(self.index) if whole else SHARDS, groups["fsdp"]

    def _sums(self, writer: ProgramBuilder) -> None:
        """Append the reductions of sums by column, of matrices whose rows are sharded, and two norms of each
        matrix."""
        plan = self.plan
        if shard_ranks(plan)[0] == 1:
            return
        held = [each for stage in self.stages for each in plan.parameters[stage].each()]
        matrices = [(each, count) for each, count in held if each.is_matrix]
        calls = sum(count * each.count for each, count in matrices)
        columns = sum(count * each.count * each.shape[1] for each, count in matrices)
        if calls:
            self._collective(writer, "column sums all_reduce", "all_reduce", 4.0 * columns / calls, (), calls)

    # Over tensor parallelism ------------------------------------------------------------------------

    def _orthogonalise(self, writer: ProgramBuilder, each: Parameter, count: int) -> None:
        """Append the orthogonalisation of ``count`` matrices like ``each``, one after the other."""
        plan, spec = self.plan, self.plan.scenario.training.optimizer
        steps = spec.ns_steps or NEWTON_SCHULZ_STEPS
        mode, axis, ranks = spec.tp_mode or "blockwise", *self._cut(each)
        rows, columns = each.shape
        whole, part = (columns, rows) if each.cut == 0 else (rows, columns)
        products, elements = iteration(rows, columns), each.elements
        if ranks > 1 and mode == "duplicated":
            products, elements = iteration(whole, part * ranks), ranks * elements
            self._over_tp(writer, axis, "all_gather", float(FP32_BYTES * elements), count)
        elif ranks > 1 and mode == "distributed":
            products = parted_iteration(whole, part)
            self._over_tp(writer, axis, "all_reduce", 2.0 * whole * whole, count * steps)
        work = newton_schulz_work(steps * products, elements, count, plan.costs.seconds)
        launches = count * (steps * len(products) + 3)
        writer.compute(
            "Newton-Schulz", work, category="optimizer", host_s=launches * plan.costs.of_update().host_s
        )

    def _cut(self, each: Parameter) -> tuple[str, int]:
        """The axis of tensor parallelism that cuts a matrix, and its ranks; 1 where none does."""
        par = self.plan.scenario.parallelism
        if "tp" in each.sharded_over:
            return "tp", par.tp
        return "etp", par.etp if "etp" in each.sharded_over else 1

    def _over_tp(self, writer: ProgramBuilder, axis: str, kind: str, size: float, calls: int) -> None:
        costs = self.plan.costs.of_update()
        work = Collective(kind, axis, several(costs.transfer(axis, kind, size), calls), calls)
        host_s = calls * (costs.host_collective_s + costs.check_s(axis))
        writer.wait(writer.on_stream(f"momentum {kind}", axis, axis, work, host_s=host_s))
