"""What a step would take with another attention kernel than the one that is assumed.

A trainer whose source does not say which attention runs may run any that its GPU has: TransformerEngine
chooses by shape, release and environment, torch by what is installed. Knows what attention takes of a step
and what each kernel takes alone; replays nothing, and fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...kernels.cost import kernel_seconds
from ...kernels.kernel import Attention, Implementation
from ..result.step import IntervalPart

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan

SLOWER, FASTER = "slower kernel", "faster kernel"
"""The kinds of its causes. Their ``sigma`` is no residual: it is the logarithm of how many times as long, or
as short, the whole step would be."""

CHOICES: tuple[Implementation, ...] = ("fa2", "fa3", "cudnn", "aiter", "aiter_fp32")
"""Fused attention of trainers since 2023; the first FlashAttention is no choice of theirs any more."""

_EIGHT_BITS = ("fp8", "mxfp8")
"""Types of an attention that cuDNN alone has: who runs it has stated it."""


def assumed_attention(share: float, plan: StepPlan) -> Iterator[IntervalPart]:
    """The parts of a step, ``share`` of which is attention, by the slowest and the fastest kernel that might
    run in place of the assumed one."""
    kernels = plan.scenario.software.kernels
    if share <= 0 or not kernels.attention_assumed or kernels.attention not in CHOICES:
        return
    times = {name: _times(name, plan) for name in _others(kernels.attention, plan)}
    if not times:
        return
    for kind, pick in ((SLOWER, max), (FASTER, min)):
        name = pick(times, key=lambda one: times[one])
        change = share * (times[name] - 1.0)
        if change > 0 if kind == SLOWER else change < 0:
            yield IntervalPart(
                name=f"software.kernels.attention {kernels.attention}: assumed, {name} is the {kind}",
                share=share,
                sigma=abs(math.log1p(change)) / share,
                source=f"{plan.scenario.software.name}; the step with attention of {name}",
                kind=kind,
            )


def _others(assumed: str, plan: StepPlan) -> list[Implementation]:
    there = {curve.implementation for curve in plan.profile.attention}
    return [name for name in CHOICES if name in there and name != assumed]


def _times(implementation: Implementation, plan: StepPlan) -> float:
    """How many times as long as now all attention of the step would take."""
    before, after = list[float](), list[float]()  # added up exactly: kernels are in the order of pricing
    for kernel, seconds in plan.kernels.items():
        if isinstance(kernel, Attention):
            other = kernel if kernel.dtype in _EIGHT_BITS else replace(kernel, implementation=implementation)
            now_s = kernel_seconds(kernel, plan.cluster.gpu, plan.profile)
            before.append(seconds)
            after.append(seconds * kernel_seconds(other, plan.cluster.gpu, plan.profile) / now_s)
    return math.fsum(after) / math.fsum(before) if any(before) else 1.0
