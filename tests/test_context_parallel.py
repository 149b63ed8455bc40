"""Context parallelism: every way moves the bytes of its closed form and attends to every pair once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from context_runs import LAYERS, MICROBATCHES, run_of
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from refusals import refused_at
from small_scenarios import every_op, lowered, payloads

from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.program.program import Collective, Compute, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

SHAPES = [(1, None), (2, None), (4, None), (8, None), (4, 2), (8, 2), (8, 4), (4, 4)]
"""cp and how many of its ranks exchange heads."""


def attention_flops(run: Scenario) -> float:
    """Of one rank's step, counting every kernel that runs."""
    return sum(
        count * op.work.flops
        for op, count in every_op(lowered(run).programs.classes[0])
        if isinstance(op.work, Compute) and op.work.kind == "attention"
    )


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a"])
@pytest.mark.parametrize(("cp", "a2a"), SHAPES)
def test_ranks_share_the_work_evenly(comm: str, cp: int, a2a: int | None) -> None:
    whole = attention_flops(run_of(comm, 1))
    assert attention_flops(run_of(comm, cp, a2a)) == pytest.approx(whole / cp)


def expected_bytes(comm: str, cp: int, a2a: int) -> dict[str, float]:
    """Payload by kind of one rank's step: forward and backward of every layer and microbatch."""
    local = 1024 / cp * 512 * 2  # of one of Q, K, V, O in 16 bit
    ring, expected = cp // a2a, {}
    if a2a > 1:  # Q, K, V and O, and their gradients
        expected["all_to_all"] = 8 * local
    kv = 2 * local  # heads for tokens leaves it the same
    if ring > 1 and comm == "all_gather":
        expected |= {"all_gather": 2 * ring * kv, "reduce_scatter": ring * kv}
    elif ring > 1:  # forward and backward pass keys on, and backward as many gradients
        expected["neighbours"] = 3 * (ring - 1) * kv
    return {kind: LAYERS * MICROBATCHES * size for kind, size in expected.items()}


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a"])
@pytest.mark.parametrize(("cp", "a2a"), SHAPES)
def test_bytes_are_those_of_the_closed_form(comm: str, cp: int, a2a: int | None) -> None:
    by_software = cp if comm == "a2a" else 1
    if a2a is not None and comm == "a2a":
        comm = "p2p"  # the rest of a hierarchy
    program = lowered(run_of(comm, cp, a2a)).programs.classes[0]
    assert payloads(program, "cp") == pytest.approx(expected_bytes(comm, cp, a2a or by_software))


@pytest.mark.parametrize("comm", ["p2p", "all_gather"])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_torch_sends_all_heads_of_keys_and_gradients_in_32_bit(comm: str, cp: int) -> None:
    run = run_of(comm, cp, num_query_groups=2).with_({"software.exchange.cp_engine": "torch"})
    kv = 2 * 1024 / cp * 512 * 2  # of 8 heads, though keys have 2
    keys = 2 * cp * kv if comm == "all_gather" else 2 * (cp - 1) * kv
    found = payloads(lowered(run).programs.classes[0], "cp")
    gradients = found["neighbours"] - (keys if comm == "p2p" else 0.0) * LAYERS * MICROBATCHES
    assert gradients == pytest.approx(LAYERS * MICROBATCHES * cp * 2 * kv)
    if comm == "all_gather":
        assert found["all_gather"] == pytest.approx(LAYERS * MICROBATCHES * keys)


def test_torch_shares_the_work_as_a_ring_does() -> None:
    run = run_of("all_gather", 4).with_({"software.exchange.cp_engine": "torch"})
    assert attention_flops(run) == pytest.approx(attention_flops(run_of("p2p", 4)))


def test_torch_refuses_windows() -> None:
    run = run_of("all_gather", 4, sliding_window=64)
    with refused_at("model.sliding_window"):
        lowered(run.with_({"software.exchange.cp_engine": "torch"}))


def ring_ops(gpu: str, cp: int, attention: str = "cudnn") -> list[Op]:
    """Ops of a layer of a rank, forward and backward, as often as they are in it."""
    software = {
        "preset": "megatron-core-2025",
        "kernels": {"attention": attention},
        "host": {"host_s_per_kernel": 1e-5, "launches_per_collective": 4},
    }
    run = run_of("p2p", cp, gpu=gpu, interconnect="ib-ndr400-x8", software=software)
    stage = lowered(run).plan
    (run_of_layers,) = stage.stages[0].runs
    kinds = (ActionKind.FORWARD, ActionKind.BACKWARD)
    return [op for kind in kinds for op in stage.blocks.layer_of(kind, run_of_layers).ops]


COPIES = [
    "KV packed",
    "softmax sums cast",
    "attention output begun",
    "attention correction",
    "half of softmax sums",
    "KV copy",
    "dQ copy",
    "dKV copy",
    "dQ add",
    "dKV add",
]


@pytest.mark.parametrize("attention", ["cudnn", "fa2"])
def test_a_ring_packs_corrects_and_copies(attention: str) -> None:
    """Two ranks: each kernel of torch's that TransformerEngine runs around its two tiles; what runs beside
    forward's costs the host alone. A half of a sequence that is the first axis is no copy."""
    ops = ring_ops("H100-SXM5-80GB", 2, attention)
    names, host_s = Counter(op.name for op in ops), {op.name: op.host_s for op in ops}
    assert {name: names[name] for name in COPIES} == dict.fromkeys(COPIES, 1)
    assert not [name for name in names if name.startswith("half of") and name != "half of softmax sums"]
    assert host_s["softmax sums cast"] == pytest.approx(4 * host_s["KV packed"])


def test_copies_move_a_tensor_twice() -> None:
    bytes_of = {
        op.name: op.work.bytes for op in ring_ops("B200-SXM-180GB", 2) if isinstance(op.work, Compute)
    }
    output, keys = 1024 / 2 * 512 * 2, 2 * 1024 / 2 * 512 * 2
    assert bytes_of["KV packed"] == bytes_of["KV copy"] == 2 * keys
    assert bytes_of["attention output begun"] == 2 * output
    assert bytes_of["dQ copy"] == 2 * output


def test_four_ranks_correct_three_times_and_add_what_a_tile_saw() -> None:
    """Beside forward's tiles two kernels for the first sums and three corrections; then a cast."""
    ops = ring_ops("H100-SXM5-80GB", 4)
    host_s = {op.name: op.host_s for op in ops}
    assert host_s["softmax sums cast"] == pytest.approx((1 + 2 + 3) * host_s["KV packed"])
    keys, queries = 2 * 1024 / 4 * 512 * 2, 1024 / 4
    added = sorted(op.work.bytes for op in ops if op.name == "dKV add" and isinstance(op.work, Compute))
    assert added == [3 * keys / 2, 3 * keys, 3 * keys]
    (half,) = (
        op.work.bytes for op in ops if op.name == "half of softmax sums" and isinstance(op.work, Compute)
    )
    assert half == 4 * queries * 8


@pytest.mark.parametrize(
    ("gpu", "cp", "calls"),
    [("H100-SXM5-80GB", 2, 1), ("H100-SXM5-80GB", 4, 2), ("B200-SXM-180GB", 2, 2), ("B200-SXM-180GB", 4, 2)],
)
def test_a_ring_sends_and_receives_in_one_call_where_two_ranks_batch(gpu: str, cp: int, calls: int) -> None:
    ops = ring_ops(gpu, cp)
    (launch_s,) = {op.host_s for op in ops if op.name == "KV packed"}
    for op in ops:
        if op.name == "KV exchange":
            assert op.host_s == pytest.approx(calls * 4 * launch_s)


def test_a_ring_hides_what_a_gather_shows() -> None:
    """At long sequences attention outlasts the exchange of keys, so the ring is no slower than the gather."""
    ring, gathered = (simulate(run_of(comm, 8, seq_length=65536)) for comm in ("p2p", "all_gather"))
    assert ring.exposed_communication_s["cp"] < gathered.exposed_communication_s["cp"]


@pytest.mark.slow
@examples(12)
@given(
    shape=st.sampled_from([(2, None), (4, None), (4, 2), (4, 4)]),
    comm=st.sampled_from(["p2p", "all_gather"]),
    tp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2]),
    slow=st.dictionaries(st.integers(0, 7), st.sampled_from([1.3, 2.0]), max_size=2),
)
def test_folded_is_unfolded(
    shape: tuple[int, int | None], comm: str, tp: int, dp: int, pp: int, slow: dict[int, float]
) -> None:
    step = lowered(
        run_of(comm, *shape, tp=tp, dp=dp, pp=pp, schedule="1f1b" if pp > 1 else "none", num_layers=4)
    )
    ranks = ranks_of(step)
    degradation = Degradation(slow={rank % ranks.world: factor for rank, factor in slow.items()})
    classes = partition_of(ranks, degradation).rank
    folded = replay(programs_of_classes(step.programs, ranks, classes, degradation))
    whole = replay(programs_of_classes(step.programs, ranks, np.arange(ranks.world), degradation))
    assert folded.makespan_s == pytest.approx(whole.makespan_s, rel=1e-9)


def test_what_cannot_be_cut_is_refused() -> None:
    with refused_at("parallelism.cp_a2a", "3", "cp = 4"):
        run_of("p2p", 4, 3)
    with refused_at("parallelism.cp_a2a", "16", "8 heads"):
        run_of("p2p", 16, 16)
    with refused_at("parallelism.cp", "cp 16", "8 heads", "a2a"):
        lowered(run_of("a2a", 16))
    with refused_at("parallelism.cp", "cp 2", "unfused"):
        lowered(
            run_of("p2p", 2, software={"preset": "megatron-core-2025", "kernels": {"attention": "unfused"}})
        )


def test_every_exchange_is_on_the_streams_of_its_axis() -> None:
    program = lowered(run_of("p2p", 8, 2)).programs.classes[0]
    used = {
        (op.stream, op.work.communicator)
        for op, _ in every_op(program)
        if isinstance(op.work, Collective) and op.category == "cp"
    }
    assert used == {("cp", "cp.heads"), ("cp", "cp.ring")}


def test_torch_casts_gradients_of_queries_and_keys_once_they_are_home() -> None:
    """From 32 bit to 16, at the end of a backward: queries, and keys and values of as many heads."""
    run = run_of("p2p", 4).with_({"software.exchange.cp_engine": "torch"})
    plan = lowered(run).plan
    (layers,) = plan.stages[0].runs
    ops = plan.blocks.layer_of(ActionKind.BACKWARD, layers).ops
    (cast,) = (op.work.bytes for op in ops if op.name == "dQ and dKV cast" and isinstance(op.work, Compute))
    assert cast == 3 * (1024 / 4) * 512 * (4 + 2)
