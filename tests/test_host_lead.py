"""How far a host is ahead of its GPU, in closed form, and what it holds in buffers by that."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.engine.host_lead import host_lead_s
from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.state.in_flight import QUEUE, QUEUED_BY_COLLECTIVE, in_flight_bytes
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Block, Collective, Compute, Op, Program, Programs, RepeatedBlocks

SUM = Collective("all_reduce", "tp", Transfer(0.0, 1e6, math.inf))


def layer(seconds: float, host_s: float) -> Block:
    return Block("layer", (Op("kernel", "compute", "compute", Compute(seconds, "gemm"), host_s=host_s),))


def lead_s(*ops: Op) -> float:
    programs = Programs(
        classes=(Program(ops=ops),), communicators={}, links=({},), sms=100, corun_slowdown=0.0
    )
    return host_lead_s(replay(programs), 0)


def repeated(layers: int, seconds: float, host_s: float, after: tuple[int, ...] = ()) -> Op:
    work = RepeatedBlocks(((layer(seconds, host_s), layers),))
    return Op("forward", "compute", "compute", work, after, host_s=work.host_s)


@given(layers=st.integers(2, 40), seconds=st.floats(2.0, 9.0), host_s=st.floats(0.1, 1.0))
def test_a_faster_host_is_ahead_by_what_the_gpu_has_left(layers: int, seconds: float, host_s: float) -> None:
    """All is issued at ``layers`` x host_s; the GPU began at host_s and has done a part."""
    done = (layers - 1) * host_s / (layers * seconds)
    expected = layers * host_s * (1 - done)
    assert lead_s(repeated(layers, seconds, host_s)) == pytest.approx(expected)


@given(layers=st.integers(2, 40), host_s=st.floats(1.0, 9.0), share=st.floats(0.01, 0.9))
def test_a_slower_host_is_a_layer_ahead_at_most(layers: int, host_s: float, share: float) -> None:
    assert lead_s(repeated(layers, share * host_s, host_s)) <= host_s * (1 + 1e-9)


def test_a_host_runs_ahead_while_its_gpu_waits_for_others() -> None:
    """The GPU waits 100 s for a message; the host issues 8 layers of 2 s meanwhile."""
    late = Op("late", "pp", "pp", Collective("x", "x", Transfer(100.0, 0.0, math.inf)))
    assert lead_s(late, repeated(8, 0.5, 2.0, after=(0,))) == pytest.approx(16.0)


def test_what_a_host_is_ahead_counts_at_the_ends_of_forwards() -> None:
    """The backward is issued 16 s ahead of its GPU; nothing of a forward is."""
    late = Op("late", "pp", "pp", Collective("x", "x", Transfer(100.0, 0.0, math.inf)))
    ops = late, repeated(8, 0.5, 2.0, after=(0,))
    assert lead_s(ops[0], ops[1]._replace(action="0B0")) == 0.0
    assert lead_s(ops[0], ops[1]._replace(action="0F0")) == pytest.approx(16.0)


def test_a_host_that_waits_for_the_message_is_not_ahead_of_it() -> None:
    late = Op("late", "pp", "pp", Collective("x", "x", Transfer(100.0, 0.0, math.inf)), host_sync=True)
    assert lead_s(late, repeated(8, 0.5, 2.0, after=(0,))) <= 2.0


def forward(check_s: float) -> Block:
    """20 launches of 1 ms, two of them collectives of 1 MB with a check each."""
    kernels = [Op("kernel", "compute", "compute", Compute(1e-3, "gemm"), host_s=1e-3)] * 18
    return Block("layer", (*kernels, *[Op("sum", "tp", "tp", SUM, host_s=1e-3 + check_s)] * 2))


QUEUED = 18 + 2 * QUEUED_BY_COLLECTIVE
"""Entries of the queue that this block takes, whatever its calls cost the host."""


def test_hosts_that_are_not_checked_fill_the_queue() -> None:
    assert in_flight_bytes(forward(0.0), 1e-3) == pytest.approx(2e6 * QUEUE / QUEUED)
    assert in_flight_bytes(forward(0.0), 1e-3, lead_s=0.0) == in_flight_bytes(forward(0.0), 1e-3)


@given(lead_layers=st.floats(0.0, 200.0))
def test_hosts_that_are_checked_hold_what_they_are_ahead(lead_layers: float) -> None:
    """And what the block at hand moves."""
    block = forward(5e-3)
    held = in_flight_bytes(block, 1e-3, 5e-3, lead_layers * block.host_s)
    assert held == pytest.approx(2e6 * min(QUEUE / QUEUED, max(1.0, lead_layers)))
