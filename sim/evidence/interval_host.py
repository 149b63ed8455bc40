"""What a step with routed experts would take if launching their layers cost its host what it costs at most.

A launch is priced once for a framework, and what is published of it differs by more than twice: by what runs
around it in Python, by what it allocates, by how processes are bound to cores. Dense layers hardly show it,
since their GPUs are the slower; layers of experts have hundreds of small launches, and their hosts wait for
the rows of every layer and so lose their lead. Knows what launches and kernels of such layers take alone;
replays nothing, and fits nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...schedules.orders.action import actions_of
from ..lowering.actions import action_blocks, block_owners
from ..lowering.layers.kinds import LayerRun
from ..program.solo import solo_ends
from ..result.step import IntervalPart

if TYPE_CHECKING:
    from ...schedules.orders.action import Action
    from ..lowering.plan import StepPlan
    from ..program.program import Block

SLOWER_HOST = "slower host"
"""The kind of its cause, of which ``sigma`` is all that the step would be longer by, in the logarithm."""

MOST_LAUNCH_S = 5.6e-5
"""The longest launch of eager PyTorch that is published of a training whose GPU waits for its host: on an
H100, by TraceLens, with what the profiler itself takes. Others are 24, 40 and 42 us (calibration/cases/
constants.py; docs/decisions/0087-launches-counted.md). A module of TransformerEngine around a single launch
takes longer still: 115 to 140 us forward (NVIDIA/TransformerEngine pull request 1191), and 37 at 2.46 times
less than on Grace (its issue 2053)."""


def slower_hosts(step_time_s: float, plan: StepPlan, microbatches: int) -> Iterator[IntervalPart]:
    """The part of a step of ``microbatches`` by which hosts of its layers of experts may hold it up; none
    where graphs or a compiler launch them, or their launches are priced at the most already."""
    host, kernels = plan.scenario.software.host, plan.scenario.software.kernels
    if plan.scenario.model.moe is None or kernels.torch_compile or not host.host_s_per_kernel:
        return
    slower = MOST_LAUNCH_S / host.host_s_per_kernel
    longer_s = longer_at_most_s(plan, slower, microbatches) if slower > 1.0 else 0.0
    if longer_s > 0:
        share = longer_s / step_time_s
        yield IntervalPart(
            name=f"software.host.host_s_per_kernel {host.host_s_per_kernel:g}: layers of experts wait for"
            " hosts whose launches take as long as any published",
            share=share,
            sigma=math.log1p(share) / share,
            source="launches of 24 to 56 us; docs/decisions/0132-hosts-of-experts-in-intervals.md",
            kind=SLOWER_HOST,
        )


def longer_at_most_s(plan: StepPlan, slower: float, microbatches: int) -> float:
    """Seconds that hosts of layers of experts would add to a step of ``microbatches`` if each launch took so
    many times as long, on the rank that would lose most: each part of a layer between two waits of its host
    takes what the slower of host and GPU does."""
    added: dict[tuple[Block, float], float] = {}
    longer_s = 0.0
    for order in plan.orders:
        counts = Counter(action._replace(microbatch=0) for action in actions_of(order))
        seconds = sum(count * _longer_s(action, plan, slower, added) for action, count in counts.items())
        longer_s = max(longer_s, seconds)
    return longer_s * microbatches / plan.scenario.num_microbatches


def _longer_s(
    action: Action, plan: StepPlan, slower: float, added: dict[tuple[Block, float], float]
) -> float:
    """What one action would take longer."""
    stage, seconds = plan.stages[action.stage], 0.0
    for (block, count), owner in zip(
        action_blocks(action, stage, plan.blocks), block_owners(action, stage), strict=True
    ):
        if isinstance(owner, LayerRun) and owner.kind.experts:
            if (block, slower) not in added:
                parts = block.parts or (block,)
                added[block, slower] = sum(_added_s(part, plan, slower) for part in parts)
            seconds += count * added[block, slower]
    return seconds


def _added_s(part: Block, plan: StepPlan, slower: float) -> float:
    gpu_s = solo_ends(part, sms=plan.cluster.gpu.sms)[0]
    return max(gpu_s, slower * part.host_s) - max(gpu_s, part.host_s)
