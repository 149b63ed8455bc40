"""How many slices of parameters a rank updates, where each is cast by kernels of its own.

Megatron core's distributed optimizer cuts every bucket into equal shares, one for each data-parallel rank,
wherever parameters begin. It updates all that a rank has in few kernels, but casts it to the model's type a
parameter at a time: a share that crosses from one parameter to the next has two slices. Buckets of equal
layers are cut alike, so that one rank has a crossing in all of them, and every other rank waits for its host.

References:
    Megatron-LM core/optimizer/distrib_optimizer.py (_build_model_gbuf_param_range_map,
    _copy_main_params_to_model_params), core/distributed/param_and_grad_buffer.py (a buffer for each type,
    whose buckets form from the last parameter back).
    TransformerEngine pytorch/tensor/utils.py (cast_master_weights_to_fp8: to 16 bit, maximum, cast).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from .gather_chain import buckets_of
from .optimizers import shard_ranks
from .parameters import OF_EXPERTS, Parameter
from .tensors import tensors_of
from .updates.optimizer import SliceKernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import StepPlan


def slice_kernels(plan: StepPlan, stages: Iterable[int]) -> SliceKernels:
    """What a rank that holds these virtual ``stages`` launches around its update."""
    local = plan.local
    recipe = local.recipe if local.quantised_weights else None
    # Scaled by the tensor: made 16 bit here, and cast from that. Blocks are quantised when gathered.
    apart = recipe is not None and not recipe.early
    launches, more_bytes = 1, 0.0
    if recipe and apart:
        launches, more_bytes = 1 + recipe.launches, local.element_bytes + recipe.cast - recipe.stored
    bucket = plan.scenario.software.gradients.bucket(plan.groups["dp"].ranks)
    shared, experts = shard_ranks(plan)
    gradients, casts = ([np.zeros(shared, np.int64), np.zeros(experts, np.int64)] for _ in range(2))
    for stage, times in _alike(plan, stages):
        for (of_experts, in_layer), sizes in _by_buffer(tuple(tensors_of(plan, stage)), apart=apart):
            slices = times * slices_of(sizes, bucket, len(casts[of_experts]))
            gradients[of_experts] += slices
            casts[of_experts] += (launches if in_layer else 1) * slices
    most = [sum(int(one.max(initial=0)) for one in each) for each in (gradients, casts)]
    return SliceKernels(gradients=most[0], cast=most[1], more_bytes=more_bytes)


def _alike(plan: StepPlan, stages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """One of each group of equal ``stages``, and how many the group has."""
    first: dict[tuple[int, int], int] = {}
    count: Counter[int] = Counter()
    for stage in stages:
        held = id(plan.parameters[stage]), id(plan.stages[stage].runs)  # those of equal stages are one
        count[first.setdefault(held, stage)] += 1
    yield from count.items()


@lru_cache(maxsize=256)
def slices_of(sizes: tuple[int, ...], bucket_elements: float, ranks: int) -> NDArray[np.int64]:
    """For parameters of these ``sizes`` in the order of a forward, the slices of each rank.

    >>> slices_of((4, 4), 8, 2).tolist(), slices_of((3, 5), 8, 2).tolist(), slices_of((3, 5), 5, 2).tolist()
    ([1, 1], [2, 1], [2, 2])
    """
    edges = np.zeros(ranks + 1, dtype=np.int64)
    numbered = zip(buckets_of(sizes, bucket_elements), sizes, strict=True)
    for _, members in groupby(numbered, key=lambda one: one[0]):
        ends = np.cumsum([size for _, size in members])
        share = -(-int(ends[-1]) // ranks)
        np.add.at(edges, np.concatenate(([0], ends[:-1])) // share, 1)
        np.add.at(edges, (ends - 1) // share + 1, -1)
    return np.cumsum(edges)[:ranks]


def _by_buffer(
    tensors: tuple[tuple[Parameter, bool], ...], *, apart: bool
) -> Iterator[tuple[tuple[bool, bool], tuple[int, ...]]]:
    """Sizes of the tensors of each buffer: of experts or not, matrices of layers ``apart`` from others."""
    buffers: dict[tuple[bool, bool], list[int]] = {}
    for one, in_layer in tensors:
        key = one.replicated_over == OF_EXPERTS, apart and in_layer and one.is_matrix
        buffers.setdefault(key, []).append(one.elements)
    yield from ((key, tuple(sizes)) for key, sizes in buffers.items())
