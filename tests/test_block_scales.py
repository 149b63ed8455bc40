"""Scales of blocks, laid out for cuBLAS in front of a GEMM: which kernels the host launches for that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from autocast_runs import COSTS
from precision_runs import B, F, H, S, run_of

from stepsim.kernels.kernel import Gemm
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder, LoopPrices
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.quantise import lay_out_scales
from stepsim.sim.program.program import Op

LOOP_S = 0.25
"""What a launch costs the host in a loop of C++, of one that costs a second from Python."""


def scales_in_front(precision: str, flag: str, *, weight: bool) -> list[Op]:
    """The ops in front of a GEMM of which one operand is a ``weight``, or none is."""
    run = run_of(precision, {"scales_laid_out": flag})
    costs = replace(COSTS, loop=LoopPrices(kernel=LOOP_S))
    builder = LayerBuilder(costs=costs, local=local_shape_of(run), software=run.software)
    recipe = builder.local.recipe
    assert recipe is not None
    lay_out_scales(builder, Gemm(m=B * S, n=F, k=H, dtype=recipe.gemm_dtype), weight=weight)
    return builder.ops


@pytest.mark.parametrize(
    ("precision", "flag", "weight", "launches"),
    [
        ("mxfp8", "each", True, 2),  # one for each operand
        ("mxfp8", "weights", True, 1),
        ("mxfp8", "weights", False, 0),
        # and one that multiplies the maxima of both, whose operands are laid out whatever else is
        ("nvfp4", "each", True, 3),
        ("nvfp4", "weights", False, 3),
    ],
)
def test_the_host_launches_a_kernel_for_each_operand_and_one_for_scales_of_tensors(
    precision: str, flag: str, weight: bool, launches: int
) -> None:
    found = scales_in_front(precision, flag, weight=weight)
    assert len(found) == (launches > 0)
    assert sum(op.host_s for op in found) == launches * LOOP_S
