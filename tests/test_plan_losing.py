"""Alternatives that lose by much are told by steps in which nobody shares a link, and not by long replays."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from rich.console import Console
from small_plans import answer, small
from small_scenarios import BARE_HOST

from stepsim.sim.brief.search import Search
from stepsim.sim.plan.search import searching
from stepsim.sim.plan.search.alternatives import Loser
from stepsim.sim.plan.search.layout_plan import LayoutPlan
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.report.plan.table import print_plan

FIX = {
    "parallelism.tp": 2,
    "parallelism.cp": 2,
    "parallelism.pp": 2,
    "parallelism.zero": 1,
    "parallelism.stage_split": "uniform",
    "parallelism.sequence_parallel": False,
    "schedule": "interleaved",
    "training.micro_batch": 1,
}
VARY: dict[str, list[Any]] = {"parallelism.vpp": [2, 4], "training.recompute": ["none", "full"]}
NODES = {
    "software": {"preset": "megatron-core-2024", "host": {"host_s_per_kernel": 2.4e-5} | BARE_HOST},
    "cluster__gpus": 16,
    "cluster__gpus_per_node": 2,
    "training__seq_length": 4096,
}
"""Context parallelism crosses hosts, so that its blocks share the network with messages."""


def planned(**asked: Any) -> LayoutPlan:
    return plan(small(**NODES), fix=FIX, vary=VARY, **{"top": 1, "audit": 0, "jobs": 1, **asked})


def full_recomputation(found: LayoutPlan) -> Loser:
    return next(one for one in found.lost if one.name == "full recomputation")


@pytest.mark.slow
@examples(15)
@given(st.data())
def test_no_step_is_shorter_than_without_shared_links(data: st.DataObject) -> None:
    def drawn(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    vpp = drawn(1, 2)
    changes = NODES | {
        "cluster__gpus_per_node": drawn(2, 4),
        "model__num_layers": 16,
        "software": drawn("megatron-core-2024", "mlperf-6.0", "torchtitan-2024", "generic-jax"),
        "parallelism__tp": drawn(1, 2),
        "parallelism__cp": drawn(2, 4),
        "parallelism__pp": 2,
        "parallelism__vpp": vpp,
        "parallelism__zero": drawn(0, 1),
        "schedule": "interleaved" if vpp > 1 else drawn("1f1b", "zb-h1"),
        "training__micro_batch": drawn(1, 2),
        "training__seq_length": drawn(4096, 16384),
        "training__recompute": drawn("none", "full"),
    }
    try:
        step_s = Search().step_of(run := small(**changes)).step_time_s
    except ValueError:
        return  # the software does not do that
    assert 0.9 * step_s < Search().least_of(run).step_time_s <= step_s * (1 + 1e-9)


def test_less_is_shared_where_nobody_shares_a_link() -> None:
    layout = {
        "parallelism__cp": 2,
        "schedule": "interleaved",
        "parallelism__vpp": 4,
        "training__micro_batch": 1,
    }
    run = small(**{**NODES, **layout})
    step_s = Search().step_of(run).step_time_s
    assert 0.95 * step_s < Search().least_of(run).step_time_s < 0.9999 * step_s


def test_what_loses_by_much_is_told_by_how_much_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    exact = planned()
    monkeypatch.setattr(searching, "LONG", 0)
    found = planned()
    replayed, told = full_recomputation(exact), full_recomputation(found)
    assert (replayed.at_least, told.at_least) == (False, True)
    assert told.settings == replayed.settings
    assert searching.LOSES < 0.98 * replayed.factor < told.factor < replayed.factor
    assert told.why.startswith("host +")  # its job waits for its hosts
    assert len(found.replays) < len(exact.replays)
    assert answer(found) == answer(planned(jobs=2))
    assert next(one for one in found.to_dict()["lost"] if one["name"] == told.name)["at_least"]
    out = io.StringIO()
    print_plan(found, Console(file=out, width=200), "small")
    assert f"at least {math.floor(100 * told.factor) / 100:.2f}" in out.getvalue()


def test_a_factor_that_is_a_bound_is_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    monkeypatch.setattr(searching, "LONG", 0)
    found = planned()
    lost = [replace(one, factor=1.2961) if one.at_least else one for one in found.lost]
    out = io.StringIO()
    print_plan(replace(found, lost=tuple(lost)), Console(file=out, width=200), "small")
    assert "at least 1.29 ×" in out.getvalue()


@pytest.mark.parametrize("name", ["LOSES", "LONG"])
def test_what_loses_by_little_or_has_a_short_replay_is_replayed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, name, 1e9)
    assert not full_recomputation(planned()).at_least


def test_what_has_to_be_known_exactly_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What misses a deadline has no factor, and a step that is no longer may meet it."""
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    monkeypatch.setattr(searching, "LONG", 0)
    run = small(**NODES, training__tokens=1e9)
    found = plan(run, fix=FIX, vary=VARY, top=1, audit=0, jobs=1, deadline_s=1e12)
    assert not full_recomputation(found).at_least
