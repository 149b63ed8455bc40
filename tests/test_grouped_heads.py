"""Queries that share keys are copied out of their GEMM, and gradients of such heads into its gradient."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from small_scenarios import lowered, scenario

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

COPY, JOIN = "queries in a row", "join gradients of QKV"


def copies(*, groups: int, rope: bool, preset: str = "megatron-core-2025", **fields: Any) -> Counter[str]:
    run = scenario(software=preset, num_attention_heads=8, num_query_groups=groups, **fields)
    step = simulate(run.with_({"model.position": "rope" if rope else "learned"}))
    return Counter(span.name for span in step.iter_spans() if span.name in (COPY, JOIN))


@pytest.mark.parametrize(
    ("groups", "rope", "names"),
    [
        (8, False, set()),
        (8, True, {JOIN}),
        (4, False, {COPY, JOIN}),
        (4, True, {COPY, JOIN}),
        (1, False, {JOIN}),  # heads of one group lie evenly apart: a reshape makes a view
        (1, True, {JOIN}),
    ],
)
def test_heads_that_lie_side_by_side_are_not_copied(groups: int, rope: bool, names: set[str]) -> None:
    assert set(copies(groups=groups, rope=rope)) == names


@pytest.mark.parametrize(("tp", "names"), [(2, {COPY, JOIN}), (4, {JOIN})])
def test_groups_are_counted_on_a_rank(tp: int, names: set[str]) -> None:
    assert set(copies(groups=4, rope=True, tp=tp)) == names


def test_what_splits_by_itself_is_as_it_says() -> None:
    assert not copies(groups=4, rope=True, preset="torchtitan-2025")
    assert set(copies(groups=8, rope=False, preset="megatron-2021")) == {JOIN}


def test_a_copy_reads_and_writes() -> None:
    """Queries forward; gradients of queries, keys and values backward: 8 heads of 64, 4 and 4."""
    run = scenario(software="megatron-core-2025", num_attention_heads=8, num_query_groups=4)
    local = lowered(run).plan.local
    sizes = {span.name: span.bytes for span in simulate(run).iter_spans() if span.name in (COPY, JOIN)}
    a_head = local.tokens * local.head_dim * local.element_bytes
    assert sizes == {COPY: 2 * 8 * a_head, JOIN: 2 * (8 + 4 + 4) * a_head}


def test_each_layer_copies_once_each_way() -> None:
    found = copies(groups=4, rope=True)
    assert found[COPY] == found[JOIN] > 0


def test_heads_turned_inside_their_product_are_not_copied() -> None:
    """One kernel each way reads and writes queries, keys and values."""
    turned = Counter(span.name for span in simulate(turned_in_product()).iter_spans())
    assert not {COPY, JOIN} & set(turned)
    assert turned["rope"] == turned["rope backward"] > 0


def turned_in_product(**model: Any) -> Scenario:
    software = {"preset": "megatron-core-2025", "kernels": {"fused_qkv_rope": True}}
    heads = {"num_attention_heads": 8, "num_query_groups": 4}
    return scenario(**{"software": software, "position": "rope", **heads, **model})


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"position": "learned"}, "model.position is learned"),
        ({"qk_norm": True}, "model.qk_norm is true"),
    ],
)
def test_what_stands_between_the_product_and_positions_is_refused(model: dict[str, Any], told: str) -> None:
    """Megatron core's attention asserts that it can (transformer/attention.py, split_qkv)."""
    with pytest.raises(ScenarioError) as refused:
        turned_in_product(**model)
    assert [problem.path for problem in refused.value.problems] == ["software.kernels.fused_qkv_rope"]
    assert told in str(refused.value)


def test_latent_attention_never_asks_for_heads_turned_in_a_product() -> None:
    """Its class has a forward of its own (Megatron core transformer/multi_latent_attention.py)."""
    latents = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    latent = {"attention": "mla", "num_query_groups": 8, "kv_channels": 48, "mla": latents}
    assert turned_in_product(position="learned", **latent).model.mla


def test_what_turns_heads_inside_their_product_moves_values_too() -> None:
    """Bytes of all three, read and written; 2 bytes at a time, it takes longer than these on B200."""
    kernels = {"fused_qkv_rope": True}
    run = scenario(
        gpu="B200-SXM-180GB",
        software={"preset": "mlperf-5.1", "kernels": kernels},
        num_attention_heads=8,
        num_query_groups=4,
        position="rope",
    )
    local = lowered(run).plan.local
    spans = {span.name: span for span in simulate(run).iter_spans() if span.name.startswith("rope")}
    whole = local.tokens * (8 + 4 + 4) * local.head_dim * local.element_bytes
    assert {span.bytes for span in spans.values()} == {2 * whole}
    took = {name: span.end_s - span.start_s for name, span in spans.items()}
    assert took["rope backward"] > took["rope"]
