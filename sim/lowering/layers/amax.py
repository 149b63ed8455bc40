"""The reduction of the maxima that scale 8-bit GEMMs: who takes part, and the block that it is.

Under delayed scaling TransformerEngine keeps the largest magnitude (amax) of each tensor that it quantises.
It reduces those of all layers of a virtual stage in one call, behind its forward and behind its backward:
ranks that hold parts of one tensor, and replicas that hold the same weights, must scale alike. The compute
stream waits for it. Releases before 1.6 did so as well, or beside what follows (NVTE_ASYNC_AMAX_REDUCTION).

References:
    TransformerEngine v0.8 pytorch/fp8.py, global_amax_reduction (async_op=False).
    TransformerEngine v1.6, reduce_and_update_fp8_tensors (pull request 575): torch.cat, the all-reduce,
    fused_amax_and_scale_update_after_reduction (one kernel: pull request 593).
    NeMo pull request 4833: one fp8_autocast around all layers.
    Megatron core parallel_state.py, get_amax_reduction_group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layer_builder import LayerBuilder

if TYPE_CHECKING:
    from ...program.program import Block
    from ...scenario.models import Scenario

AMAX_GROUPS = {"tensor": "amax.tp", "replicas": "amax"}
"""By ``exchange.amax_group``, the process group that reduces."""

_BYTES = 512.0  # some FP32 maxima a layer and direction: it is the latency that counts

_LAUNCHES = 2
"""Kernels beside the reduction, of some KB each, which count for the host alone: all maxima are joined before
it, their histories and scales written behind."""


def amax_group(scenario: Scenario) -> str | None:
    """The group over which maxima of 8-bit tensors are reduced; None where they are not, or by one rank."""
    software, par = scenario.software, scenario.parallelism
    delayed = scenario.training.precision == "fp8" and software.kernels.fp8_scaling == "delayed"
    among = software.exchange.amax_group
    ranks = par.tp * par.cp * (par.dp if among == "replicas" else 1)
    return AMAX_GROUPS.get(among) if delayed and ranks > 1 else None


def amax_reduction(builder: LayerBuilder) -> Block:
    """The reduction behind the layers of a virtual stage, forward or backward."""
    among = builder.software.exchange.amax_group
    category = "dp" if among == "replicas" else "tp"
    launches = builder.software.host.launches_per_collective + _LAUNCHES
    builder.collective(
        AMAX_GROUPS[among], "amax all_reduce", "all_reduce", _BYTES, category=category, launches=launches
    )
    return builder.block("amax reduction")
