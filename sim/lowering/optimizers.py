"""What one rank's optimizer updates, what it keeps for that, and what the update moves.

Most optimizers work element by element, so that each rank has an even share of them under ZeRO. Muon wants
whole matrices: it gives them whole to ranks, or gathers what is evenly cut (orthogonalise.py writes that).

Sources:
    Megatron-LM core/optimizer/layer_wise_optimizer.py (whole matrices to the least loaded rank, the largest
        first; embedding, head, norms and biases as the distributed optimizer shards them; updated parameters
        are all-gathered), muon.py (which parameters it takes).
    Liu et al. 2025, arXiv:2502.16982, Distributed Muon (even shards; each rank orthogonalises every matrix of
        which it holds a part).
    microsoft/dion dion/muon.py and Megatron-LM core/optimizer/fully_shard_v2_muon.py (sharded parameters: the
        shards of a matrix meet on one rank, which orthogonalises it and sends each rank its part back).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..scenario.optimizers import WEIGHT_PASSES, Optimizer, get_optimizer
from ..scenario.sharding import sharding_rule
from .parameters import OF_EXPERTS, Parameter, count_of, matrices_of
from .stage_parameters import Elements
from .updates.newton_schulz import iteration

if TYPE_CHECKING:
    from ..scenario.models import Scenario
    from ..scenario.software.software import Software
    from .plan import StepPlan
    from .stage_parameters import StageParameters

ORTHOGONAL_BYTES = 4
"""For each element of a matrix: what is orthogonalised is written in BF16, and the result read."""


@dataclass(frozen=True, kw_only=True)
class UpdatedPart:
    """Elements that one rank updates by one optimizer; ``width`` is the size of an element in bytes.

    ``factors``: for an optimizer with factored states (Adafactor), the elements of its row and column sums,
    and of the states of tensors that have neither rows nor columns.
    """

    optimizer: Optimizer
    elements: float
    factors: float = 0.0
    momentum: bool | None = None
    width: int = 4

    def state_bytes(self, software: Software, *, master: float = 0.0) -> float:
        """Bytes of optimizer state that stay from step to step. ``master`` is the bytes of an FP32 weight
        that is kept for each element beside it."""
        return self.elements * (master + self._states(software)) + float(self.width) * self.factors

    def traffic(self, software: Software) -> tuple[float, int]:
        """Bytes read and written by the update, and its kernels."""
        row = self.optimizer
        each = WEIGHT_PASSES * self.width + 2 * self._states(software)
        each += ORTHOGONAL_BYTES if row.orthogonalizes else 0
        if software.kernels.optimizer_implementation == "fused" and row.launches:
            return self.elements * each, row.launches
        sums = 2.0 * self.width * self.factors
        return self.elements * (each * row.eager_passes) + sums, row.eager_launches

    def _states(self, software: Software) -> int:
        """Bytes of the states of an element."""
        moment = software.gradients.moment_bytes
        return self.optimizer.state_bytes(moment, momentum=self.momentum, most_bytes=self.width)


def parts_of(plan: StepPlan, stages: Iterable[int]) -> tuple[UpdatedPart, ...]:
    """What the fullest rank that holds these virtual stages updates, by optimizer."""
    held = [plan.parameters[stage] for stage in stages]
    spec, shards = plan.scenario.training.optimizer, shard_ranks(plan)
    row, width = spec.row, update_width(plan)
    elements = Elements.of_all(one.elements for one in held)
    even = elements.shared / shards[0] + elements.experts / shards[1]
    if not row.orthogonalizes:
        factors = sum(_factors(one, shards[0]) for one in held) if row.factors else 0.0
        momentum = spec.momentum
        part = UpdatedPart(optimizer=row, elements=even, factors=factors, momentum=momentum, width=width)
        return (part,)
    groups = tuple(by_group(matrices_of_layers(held), shards))
    evenly = sum(count_of(matrices) / ranks for matrices, ranks in groups)
    rest = UpdatedPart(optimizer=get_optimizer(row.others), elements=max(0.0, even - evenly), width=width)
    if keeps_whole(plan.scenario):
        evenly = float(sum(max(map(count_of, packed(*group))) for group in groups))
    return UpdatedPart(optimizer=row, elements=evenly, width=width), rest


def update_width(plan: StepPlan) -> int:
    """Bytes of an element as it is updated: 4, or 2 for 16-bit weights without FP32 masters."""
    return plan.scenario.software.gradients.update_bytes(plan.scenario.training.precision)


def updated_parameters(plan: StepPlan, index: int) -> float:
    """How many parameters a rank of that pipeline rank updates: its ZeRO share of those it holds."""
    return sum(part.elements for part in parts_of(plan, plan.held_stages(index)))


def shard_ranks(plan: StepPlan) -> tuple[int, int]:
    """Ranks over which the state of a parameter is sharded, and that of an expert's."""
    if plan.scenario.parallelism.zero == 0:
        return 1, 1
    return plan.groups["fsdp"].ranks, plan.groups["efsdp"].ranks


def _factors(one: StageParameters, ranks: int) -> float:
    """Elements of factored states: for a matrix, a sum for each row of the rank's shard and one for each
    column; for a vector, its shard."""
    found = 0.0
    for each, count in one.each():
        if each.is_matrix:
            rows, columns = each.shape
            found += count * each.count * (rows / ranks + columns)
        else:
            found += count * each.elements / ranks
    return found


# Matrices --------------------------------------------------------------------------------------------


def keeps_whole(scenario: Scenario) -> bool:
    """Whether each matrix is whole on the rank that updates it (Megatron's layer-wise sharding)."""
    spec = scenario.training.optimizer
    return spec.row.orthogonalizes and spec.sharding != "gathered" and sharding_rule(scenario) is None


def matrices_of_layers(held: Iterable[StageParameters]) -> tuple[Parameter, ...]:
    """The matrices of the layers of these stages one by one, layer after layer: what is orthogonalised."""
    return tuple(
        replace(each, count=1)
        for one in held
        for count, listed in one.of_layers.values()
        for _ in range(count)
        for each in matrices_of(listed)
        for _ in range(each.count)
    )


def by_group(
    matrices: tuple[Parameter, ...], shards: tuple[int, int]
) -> Iterator[tuple[tuple[Parameter, ...], int]]:
    """Matrices that all data-parallel ranks hold, then those of experts, each list with the ranks that
    share it."""
    for experts, ranks in zip((False, True), shards, strict=True):
        found = tuple(each for each in matrices if (each.replicated_over == OF_EXPERTS) == experts)
        if found:
            yield found, ranks


def orthogonalized(plan: StepPlan, matrices: tuple[Parameter, ...], ranks: int) -> Counter[Parameter]:
    """The matrices that the busiest of the ``ranks`` which share ``matrices`` orthogonalises."""
    if ranks == 1:
        return Counter(matrices)
    if sharding_rule(plan.scenario) is not None:  # a batch of one matrix a rank, of each shape
        return Counter({each: -(-count // ranks) for each, count in Counter(matrices).items()})
    share = packed if keeps_whole(plan.scenario) else touched
    return max((Counter(own) for own in share(matrices, ranks)), key=_work)


def _work(matrices: Counter[Parameter]) -> float:
    return sum(
        count * sum(product.flops for product in iteration(*each.shape)) for each, count in matrices.items()
    )


@lru_cache(maxsize=256)
def packed(matrices: tuple[Parameter, ...], ranks: int) -> tuple[tuple[Parameter, ...], ...]:
    """Whole matrices assigned to ranks: the largest first, each to the rank with the fewest elements so
    far."""
    loads = [(0, rank) for rank in range(min(ranks, len(matrices)))]
    own: list[list[Parameter]] = [[] for _ in loads]
    for each in sorted(matrices, key=lambda each: -each.elements):
        load, rank = loads[0]
        own[rank].append(each)
        heapq.heapreplace(loads, (load + each.elements, rank))
    return tuple(map(tuple, own))


@lru_cache(maxsize=256)
def touched(matrices: tuple[Parameter, ...], ranks: int) -> tuple[tuple[Parameter, ...], ...]:
    """For each rank, the matrices of which it holds a piece, if all matrices in a row are cut into equal
    parts."""
    share = count_of(matrices) / ranks
    own: list[list[Parameter]] = [[] for _ in range(ranks)]
    start = 0
    for each in matrices:
        first, last = int(start / share), math.ceil((start + each.elements) / share) - 1
        for rank in range(first, min(last, ranks - 1) + 1):
            own[rank].append(each)
        start += each.elements
    return tuple(tuple(one) for one in own if one)
