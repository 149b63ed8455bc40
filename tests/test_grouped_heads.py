"""Queries that share keys are copied out of their product, and gradients of such heads into its gradient."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from small_scenarios import lowered, scenario

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
