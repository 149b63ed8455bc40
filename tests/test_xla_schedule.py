"""XLA's collectives of sharded parameters: joined up to thresholds, beside as many GEMMs as it counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import every_op, lowered

from stepsim.sim.lowering.sharding.combined import combined
from stepsim.sim.lowering.sharding.hiding import Hiding
from stepsim.sim.lowering.sharding.units import Piece, Unit
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Op
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.scenario.sharding import PRODUCTS_EACH
from stepsim.sim.simulate import simulate

LAYERS, WIDTH = 4, 2048


def run(*, dp: int = 16, shard: int | None = None, **software: Any) -> Scenario:
    document = {
        "model": {"num_layers": LAYERS, "hidden_size": WIDTH, "num_attention_heads": 16, "vocab_size": 32000}
        | {"ffn_hidden_size": 8192, "mlp": "gelu", "position": "rope"},
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": dp, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"tp": 1, "dp": dp, "zero": 3} | ({"fsdp_shard_size": shard} if shard else {}),
        "training": {"seq_length": 2048, "global_batch": 2 * dp, "micro_batch": 1, "precision": "bf16"},
        "software": {"preset": "generic-jax", **software},
    }
    return scenario_from_document(document, "run")


def messages(one: Scenario, kind: str) -> list[float]:
    program = lowered(one).programs.classes[0]
    return [
        op.work.transfer.bytes
        for op, times in every_op(program)
        if isinstance(op.work, Collective) and op.work.kind == kind
        for _ in range(times)
    ]


@given(st.lists(st.floats(1.0, 1e9), min_size=1), st.floats(1.0, 1e9))
def test_joining_loses_nothing_and_exceeds_the_limit_with_single_tensors_alone(
    sizes: list[float], most: float
) -> None:
    groups = combined(sizes, most)
    assert sum(groups) == pytest.approx(sum(sizes))
    assert all(group <= most or group in sizes for group in groups)


def test_matrices_are_gathered_one_by_one_or_joined() -> None:
    """A layer has four matrices of 8 MiB and two of 32, each gathered both ways, in two microbatches."""
    apart = run(sharding={"combine_gather_bytes": 1.0})
    by_default = run()
    whole = run(sharding={"combine_gather_bytes": math.inf})
    for one, calls in ((apart, 6), (by_default, 4), (whole, 1)):
        layers = [size for size in messages(one, "all_gather") if size < 32000 * WIDTH * 2]
        assert len(layers) == calls * 2 * 2 * LAYERS
        assert sum(messages(one, "all_gather")) == pytest.approx(sum(messages(whole, "all_gather")))


def test_a_head_in_fp32_needs_a_gpu_with_tf32() -> None:
    software = {"head_fp32": True, "attention": "unfused"}
    old = {"cluster.gpu": "V100-SXM2-32GB", "training.precision": "fp16"}
    assert simulate(run(kernels=software)).step_time_s > 0
    with pytest.raises(NotSupported) as refused:
        simulate(run(kernels=software).with_(old))
    assert refused.value.field == "software.kernels.head_fp32"


def test_branches_of_an_mlp_are_matrices_of_their_own() -> None:
    """Seven of Llama's layer: q, k, v, the projection, gate, up and down."""
    document = run(sharding={"combine_gather_bytes": 1.0}).with_({"model.mlp": "swiglu"})
    layers = [size for size in messages(document, "all_gather") if size < 32000 * WIDTH * 2]
    assert len(layers) == 7 * 2 * 2 * LAYERS


def test_gradients_are_reduced_in_the_type_of_the_products() -> None:
    narrow, wide = run(), run(gradients={"reduce_grad_bytes": 4})
    assert 2 * sum(messages(narrow, "reduce_scatter")) == pytest.approx(sum(messages(wide, "reduce_scatter")))


def test_shards_of_a_layer_are_reduced_over_replicas_as_one() -> None:
    one = run(dp=32, shard=8)
    layers = [size for size in messages(one, "all_reduce") if 1e6 < size < 32000 * WIDTH * 2 / 8]
    assert len(layers) == 2 * LAYERS


@pytest.mark.parametrize("most", [1.0, math.inf])
def test_reductions_of_layers_that_are_no_loop_become_one_up_to_a_size(most: float) -> None:
    def reduced(**told: Any) -> list[float]:
        sizes = messages(run(dp=32, shard=8, sharding={"combine_reduce_bytes": most, **told}), "all_reduce")
        return [size for size in sizes if size > 8]  # all but the norm's

    loop, unrolled = reduced(), reduced(unrolled=True)
    assert sum(loop) == pytest.approx(sum(unrolled))
    assert len(unrolled) == (len(loop) if most == 1.0 else 2)  # microbatches


def row(*products: int, collectives: int = 6) -> tuple[list[Piece], list[tuple[Op, ...]]]:
    pieces = [
        Piece((), Unit(name="layer", elements=1.0, forward_products=each, backward_products=2 * each))
        for each in products
    ]
    gather = Collective("all_gather", "dp", Transfer(1.0, 0.0, math.inf))
    ops = tuple(Op(f"gather {i}", "dp", "dp", gather) for i in range(collectives))
    return pieces, [ops] * len(pieces)


@given(st.integers(1, 40), st.booleans(), st.booleans())
def test_each_gather_is_waited_for_or_runs_beside_what_has_products_for_it(
    products: int, in_turn: bool, backward: bool
) -> None:
    pieces, gathers = row(products, products, products)
    hiding = Hiding(products_each=PRODUCTS_EACH, in_turn=in_turn, waits=False)
    beside, awaited = hiding.gathers(pieces, gathers, backward=backward)
    assert sum(map(len, beside)) + sum(map(len, awaited)) == sum(map(len, gathers))
    room = math.ceil((2 if backward else 1) * products / PRODUCTS_EACH)
    hosts = beside if in_turn else beside[:-1]  # beside the last nothing that follows is gathered
    assert [len(ops) for ops in hosts] == [min(6 - in_turn, room)] * len(hosts)
    if in_turn:
        assert all(awaited), "the first product of a layer has nothing to run beside its gather"
    else:
        assert len(awaited[0]) == len(gathers[0])


def test_a_schedule_by_measured_times_hides_more_than_one_that_counts() -> None:
    told = {"gathers_ahead": True, "combine_gather_bytes": 1.0, "combine_scatter_bytes": 1.0}
    counted, measured = run(sharding=told), run(sharding={**told, "profile_guided": True})
    assert simulate(measured).step_time_s < simulate(counted).step_time_s


def test_fewer_and_larger_collectives_are_hidden_where_many_are_not() -> None:
    told = {"gathers_ahead": True, "combine_scatter_bytes": math.inf}
    many = run(sharding={**told, "combine_gather_bytes": 1.0, "combine_scatter_bytes": 1.0})
    few = run(sharding={**told, "combine_gather_bytes": math.inf})
    assert simulate(few).step_time_s < simulate(many).step_time_s


def kernels(one: Scenario) -> dict[str, Op]:
    return {op.name: op for op, _ in every_op(lowered(one).programs.classes[0])}


def test_an_embedding_of_one_hot_rows_is_a_product_both_ways() -> None:
    product, look_up = run(), run(kernels={"one_hot_embedding": False})
    assert "embedding wgrad" in kernels(product)
    assert "embedding gradient" in kernels(look_up)
    assert simulate(product).step_time_s > simulate(look_up).step_time_s


def test_a_head_of_fp32_takes_longer() -> None:
    assert simulate(run(kernels={"head_fp32": True})).step_time_s > simulate(run()).step_time_s
