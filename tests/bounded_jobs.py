"""Jobs of many replicas, and how far the bounds of their steps are from the step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.ranks import Degradation
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import (
    Binding,
    Collective,
    Compute,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
)
from stepsim.sim.program.uncontended import uncontended

LARGE: dict[str, Any] = {
    "hidden_size": 4096,
    "ffn_hidden_size": 16384,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "seq_length": 2048,
}
"""Kernels that take longer than their launches, so that communication contends with them."""


@st.composite
def wrong(draw: st.DrawFn, world: int) -> Degradation:
    """Some slow ranks, or every rank a little different."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        slow = {rank: max(0.8, 1 + 0.03 * float(random.standard_normal())) for rank in range(world)}
    else:
        struck = random.choice(world, size=min(world, draw(st.integers(1, 8))), replace=False)
        slow = {int(rank): float(random.choice([1.1, 1.3, 2.0])) for rank in struck}
    return Degradation(slow=slow)


def step_s(programs: Programs, alone: bool = False) -> float:
    return replay(uncontended(programs) if alone else programs).step_s


def replicas(*slow: float) -> Programs:
    """Replicas of two stages: the first sends 5 bytes after a kernel of a second, which takes ``slow`` times
    as long; the second gathers 40 bytes with those of the others, over the link that takes 10 bytes a second.
    """
    message = Transfer(0.0, 5.0, 10.0, (("nic", 1.0),))
    gathers = Transfer(0.0, 40.0, 10.0, (("nic.in", 1.0),))
    sends, receives = (
        Exchange((MessageEnd(send, 1 - r, "0F0", message),)) for r, send in ((0, True), (1, False))
    )
    first = Program(
        ops=(
            Op("kernel", "compute", "compute", Compute(1.0, "gemm")),
            Op("send", "pp", "pp", sends, after=(0,)),
        )
    )
    second = Program(
        ops=(
            Op("gather", "dp", "dp", Collective("all_gather", "dp", gathers)),
            Op("receive", "pp", "pp", receives),
        )
    )
    links = {"nvlink.out": 1.0, "nvlink.in": 1.0, "nic.out": 10.0, "nic.in": 10.0}
    count = len(slow)
    bindings = [
        Binding(slow=factor if stage == 0 else 1.0, peers={0: 2 * u, 1: 2 * u + 1})
        for u, factor in enumerate(slow)
        for stage in (0, 1)
    ]
    return Programs(
        classes=(first, second) * count,
        communicators={"dp": tuple(range(1, 2 * count, 2))} if count > 1 else {},
        links=(links,) * (2 * count),
        sms=100,
        corun_slowdown=0.0,
        bindings=tuple(bindings),
    )
