"""How many kernels make the copies of weights in the GEMMs' type.

TransformerEngine casts each matrix by itself: a module when its first microbatch comes, and experts one after
another, however their GEMMs run. What a cast moves is the recipe's; this is how often it starts.

References:
    NVIDIA/TransformerEngine pytorch/module/base.py (get_weight_workspace, quantize_weight), module/
    grouped_linear.py (one workspace for each expert's weight), pytorch/csrc/quantizer.cpp (a maximum, then
    the cast); benchmarks/linear/README_nvfp4_quant_overhead.md in YigongQin's copy at 10b25e74 ("weights are
    cast per expert", as in ops/fused/grouped_mlp.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .stage_parameters import MLP_MATRICES
from .tensors import tensors_of

if TYPE_CHECKING:
    from .plan import StepPlan


def weight_cast_kernels(plan: StepPlan, stages: Iterable[int]) -> int:
    """Kernels that cast, once a step, the weights of a rank that holds these virtual ``stages``.

    Weights that each forward casts (``caches_mlp_weights``) are not among them.
    """
    recipe = plan.local.recipe
    if recipe is None:
        return 0
    if recipe.fused_multi:
        return 2
    elsewhere = {"router"}  # whose GEMM stays in 16 bit
    if not plan.scenario.software.kernels.caches_mlp_weights:
        elsewhere |= set(MLP_MATRICES)
    matrices = sum(
        in_layer and one.is_matrix and one.name not in elsewhere
        for stage in stages
        for one, in_layer in tensors_of(plan, stage)
    )
    made_again = not plan.local.quantised_weights and recipe.maximum > 0
    return matrices * (2 if made_again else 1)
