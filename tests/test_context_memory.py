"""Keys and values of other ranks: every way of context parallelism holds as much of them as it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from context_runs import run_of

from stepsim.sim.lowering.layers.context import received_bytes
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.simulate import simulate

LONG = {"seq_length": 65536, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 32}
"""Keys and values of the whole sequence: 1.07 GB."""

WHOLE = 65536 * 4096 * 2 * 2


def peak_bytes(comm: str, cp: int = 4, a2a: int | None = None) -> float:
    run = run_of(comm, cp, a2a, **LONG)
    return max(stage.peak_bytes - stage.terms["communication"] for stage in simulate(run).memory)


@pytest.mark.parametrize(
    ("comm", "a2a", "forward", "backward"),
    [
        ("all_gather", None, WHOLE, 2 * WHOLE),  # with their gradients
        (
            "p2p",
            None,
            WHOLE,
            WHOLE,
        ),  # four received in turn; two of keys, values and gradients: a quarter each
        ("a2a", None, WHOLE * 3 / 2 / 4, WHOLE * 3 / 2 / 4),  # queries, keys, values once more
    ],
)
def test_what_is_held_in_attention(comm: str, a2a: int | None, forward: float, backward: float) -> None:
    run = run_of(comm, 4, a2a, **LONG)
    assert received_bytes(local_shape_of(run), run.software) == (forward, backward)


@pytest.mark.parametrize(("comm", "keys"), [("all_gather", WHOLE), ("p2p", WHOLE / 2)])
def test_torch_holds_sums_in_32_bit(comm: str, keys: float) -> None:
    """Outputs twice; gradients of queries once, and of keys where they come and go."""
    run = run_of(comm, 4, **LONG).with_({"software.exchange.cp_engine": "torch"})
    own = WHOLE / 4
    expected = (keys + 2 * own, keys + own + 4 * own)
    assert received_bytes(local_shape_of(run), run.software) == expected


def test_hierarchical_holds_the_ring_of_its_heads() -> None:
    run = run_of("p2p", 8, 2, **LONG)
    local = local_shape_of(run)
    ring = received_bytes(replace(local, cp=4, cp_a2a=1, heads=16, kv_heads=16), run.software)
    exchange = local.tokens * local.qkv_width * 2
    assert received_bytes(local, run.software) == tuple(one + exchange for one in ring)


def test_gathered_keys_are_in_the_peak() -> None:
    gathered, ring, heads = (peak_bytes(comm) for comm in ("all_gather", "p2p", "a2a"))
    assert gathered > ring > heads
    overhead = 1 + run_of("p2p", 4).software.host.allocator_overhead
    assert gathered - ring == pytest.approx(WHOLE * overhead, rel=1e-6)


def test_a_rank_alone_receives_nothing() -> None:
    run = run_of("all_gather", 1, **LONG)
    assert received_bytes(local_shape_of(run), run.software) == (0.0, 0.0)
