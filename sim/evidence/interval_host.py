"""How long a step would take if each launch cost the host the most that it may cost.

A framework has one price of a launch, but published prices differ by more than twice: by the Python code
around a launch, by its allocations, by how processes are bound to cores. Layers of experts launch
hundreds of small kernels, and their hosts wait for the number of rows in every layer and so lose their lead
over the GPU. Hosts of dense layers keep it: the GPU waits only where all launches take longer than all
kernels, as on Grace with 8-bit GEMMs and context parallelism. Knows how long launches and kernels of such
layers take alone; replays nothing, and fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...schedules.orders.action import ActionKind
from ..program.solo import solo_ends
from ..result.step import IntervalPart

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan
    from ..program.program import Block

SLOWER_HOST = "slower host"
"""The kind of its cause. Its ``sigma`` is no residual: it is the logarithm of how many times as long the
whole step would take."""

MOST_LAUNCH_S = 6.2e-5
"""The longest launch that a published training shows whose GPU waits for its host, on x86. Megatron-LM's own
test of dense layers with tp 4 on a DGX H100, 215 ms a step, asked for it
(docs/decisions/0147-launches-in-megatron-core.md) until attention's module was counted by itself, and asks
for 41 us since; those with pipelines of two and four stages, 78 and 90 ms, ask for 69 and 63 by the same
counts, and a forward of attention that took 2.35 ms for 60
(docs/decisions/0164-what-attention-costs-the-host.md). TraceLens has 56 us on an H100, with what the profiler
itself takes; others are 24, 40 and 42 us (calibration/cases/constants.py;
docs/decisions/0087-launches-counted.md). A module of TransformerEngine around a single launch takes longer
still: 115 to 140 us forward (NVIDIA/TransformerEngine pull request 1191). On Grace each may take as many
times as long as one of a loop does (``Node.loop_factor``), which is the most that was measured there."""

MOST_DENSE_LAUNCH_S = 4.3e-5
"""The longest launch of dense layers that more than one step shows: nanotron's, on hosts of H100. Others say
40 and 42 us (docs/decisions/0087-launches-counted.md); the tests behind ``MOST_LAUNCH_S`` have layers so
small that what a step does besides counts as theirs."""


def slower_hosts(step_time_s: float, plan: StepPlan, microbatches: int) -> Iterator[IntervalPart]:
    """How much longer a step of ``microbatches`` may get because of its hosts. Nothing where graphs or a
    compiler launch the layers, or where launches have the highest price already. Of dense layers, only those
    made of TransformerEngine's modules count, whose price no measured step has shown."""
    host, kernels = plan.scenario.software.host, plan.scenario.software.kernels
    if kernels.torch_compile or not host.host_s_per_kernel:
        return
    dense = plan.scenario.model.moe is None
    if dense and host.launches_per_product <= 1:
        return
    node = plan.cluster.node
    most_s = MOST_DENSE_LAUNCH_S if dense else MOST_LAUNCH_S
    slower = most_s / host.host_s_per_kernel * node.loop_factor / node.launch_factor
    longer_s = longer_at_most_s(plan, slower, microbatches) if slower > 1.0 else 0.0
    if longer_s > 0:
        share = longer_s / step_time_s
        yield IntervalPart(
            name=f"software.host.host_s_per_kernel {host.host_s_per_kernel:g}: layers wait for hosts"
            " whose launches take as long as any published",
            share=share,
            sigma=math.log1p(share) / share,
            source="launches of 24 to 62 us, of dense layers 24 to 43;"
            " docs/decisions/0132-hosts-of-experts-in-intervals.md",
            kind=SLOWER_HOST,
        )


def longer_at_most_s(plan: StepPlan, slower: float, microbatches: int) -> float:
    """Seconds that hosts of layers of experts, or of a dense model's, would add to a step of ``microbatches``
    if each launch took so many times as long, on the rank that would lose most: each part of a layer between
    two waits of its host takes what the slower of host and GPU does, and so do all layers of a virtual stage
    together where hosts wait for nothing. A backward that a schedule splits counts as a whole one."""
    known_s: dict[Block, float] = {}
    each_s = [_longer_s(plan, stage, slower, known_s) for stage in range(plan.shape.stages)]
    ranks = range(plan.shape.ranks)
    most_s = max(sum(each_s[stage] for stage in plan.held_stages(index)) for index in ranks)
    return microbatches / plan.ways * most_s


def _longer_s(plan: StepPlan, stage: int, slower: float, known_s: dict[Block, float]) -> float:
    """What a microbatch would take longer on a virtual stage, forward and back. ``known_s`` is what was found
    of blocks for other stages, which hold the same ones."""
    if plan.scenario.model.moe is None:
        return _dense_longer_s(plan, stage, slower, known_s)
    seconds = 0.0
    for run in plan.stages[stage].runs:
        if not run.kind.experts:
            continue
        for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
            block = plan.blocks.layer_of(kind, run)
            if block not in known_s:
                known_s[block] = sum(_added_s(part, plan, slower) for part in block.parts or (block,))
            seconds += run.count * known_s[block]
    return seconds


def _dense_longer_s(plan: StepPlan, stage: int, slower: float, solo_s: dict[Block, float]) -> float:
    gpu_s = host_s = 0.0
    for run in plan.stages[stage].runs:
        for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
            block = plan.blocks.layer_of(kind, run)
            if block not in solo_s:
                solo_s[block] = solo_ends(block, sms=plan.cluster.gpu.sms)[0]
            gpu_s += run.count * solo_s[block]
            host_s += run.count * block.host_s
    return max(gpu_s, slower * host_s) - max(gpu_s, host_s)


def _added_s(part: Block, plan: StepPlan, slower: float) -> float:
    gpu_s = solo_ends(part, sms=plan.cluster.gpu.sms)[0]
    return max(gpu_s, slower * part.host_s) - max(gpu_s, part.host_s)
