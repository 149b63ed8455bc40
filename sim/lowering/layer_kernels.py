"""The kernels of one transformer layer of a scenario, as one rank runs them on a microbatch.

Knows where lowering writes a layer; leaves collectives out. What is in the list can be measured by itself:
each kernel comes with its shape, and a norm or an activation (not that of experts, whose rows are routed)
with the array that it works on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ...kernels.kernel import Kernel
from ..program.program import Compute

if TYPE_CHECKING:
    from ..scenario.models import Scenario
    from .layers.local_shape import LocalShape


_SAME = 1e-9
"""Shares of a GEMM that differ by less are the same."""


@dataclass(frozen=True, kw_only=True)
class LayerKernel:
    """``kernel`` takes ``seconds`` by the model; activations beside it are of ``dtype``.

    ``operation`` (rms_norm, layer_norm, swiglu, gelu, "" for others) works on ``rows`` x ``columns``.
    """

    name: str
    direction: Literal["forward", "backward"]
    kernel: Kernel
    seconds: float
    dtype: str
    operation: str = ""
    rows: int = 0
    columns: int = 0


def layer_kernels(scenario: Scenario) -> tuple[LayerKernel, ...]:
    """Kernels of one layer of the kind that the model has most, forward then backward, in issue order.

    Raises NotSupported naming the field that cannot be modelled.
    """
    from ...hardware.calibrated.overlay import calibrated_profile
    from ..scenario.machine import cluster_of
    from .layers.layer import backward_block, forward_block
    from .layers.layer_builder import LayerBuilder
    from .lower import make_plan

    cluster = cluster_of(scenario.cluster)
    plan = make_plan(scenario, cluster, calibrated_profile(cluster.gpu, scenario.calibration))
    runs = [run for stage in plan.stages for run in stage.runs]
    held = Counter({replace(run, count=1): 0 for run in runs})
    for run in runs:
        held[replace(run, count=1)] += run.count
    run = held.most_common(1)[0][0]
    local, found = plan.local.of(run.kind), []
    for build in (forward_block, backward_block):
        priced: list[tuple[Kernel, float]] = []

        def seconds(kernel: Kernel, priced: list[tuple[Kernel, float]] = priced) -> float:
            priced.append((kernel, plan.costs.seconds(kernel)))
            return priced[-1][1]

        costs = replace(plan.costs, seconds=seconds)
        builder = LayerBuilder(costs=costs, local=local, software=scenario.software)
        block = build(builder, run.recompute)
        ops = [op for op in block.ops if op.category == "compute"]
        done = 0.0
        for op, (kernel, cost_s) in zip(ops, priced, strict=True):
            # Chunks of an overlapped GEMM are priced as the whole, each for its share (LayerBuilder.part).
            share = op.work.seconds / cost_s if isinstance(op.work, Compute) and cost_s else 1.0
            if done < _SAME:
                found.append(_layer_kernel(op.name, build is forward_block, kernel, cost_s, local))
            done = done + share if done + share < 1.0 - _SAME else 0.0
    return tuple(found)


def _layer_kernel(name: str, forward: bool, kernel: Kernel, cost_s: float, local: LocalShape) -> LayerKernel:
    backward = "_backward" if name.endswith(" backward") else ""
    operation, rows, columns = "", 0, 0
    match name.removesuffix(" backward").removesuffix(" again"):
        case "norm":
            operation = ("rms_norm" if local.rms_norm else "layer_norm") + backward
            rows, columns = local.norm_tokens, local.hidden
        case "activation" if local.experts is None:
            operation = ("swiglu" if local.gate == 2 else "gelu") + backward
            rows, columns = local.tokens, local.ffn
    direction: Literal["forward", "backward"] = "forward" if forward else "backward"
    return LayerKernel(
        name=name,
        direction=direction,
        kernel=kernel,
        seconds=cost_s,
        dtype=local.dtype,
        operation=operation,
        rows=rows,
        columns=columns,
    )
