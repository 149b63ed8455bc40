"""Bounds of a step from few replicas: the replay of all ranks lies between them, whatever is slow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bounded_jobs import LARGE, step_s, wrong
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import layouts, lowered, scenario
from struck_steps import TWIN
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.bounded import bounds as bounds_module
from stepsim.sim.bounded import conditions
from stepsim.sim.bounded.bounds import bounded
from stepsim.sim.bounded.conditions import why_exact
from stepsim.sim.bounded.graph import graph_of
from stepsim.sim.bounded.layer_edges import NEVER, edges_of_block
from stepsim.sim.bounded.max_plus import _beside, _Window, max_plus
from stepsim.sim.bounded.member_slack import member_slack_s
from stepsim.sim.bounded.programs import from_above, from_below, paces
from stepsim.sim.bounded.replicas import replicas_of
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded, unfolded
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Block, Collective, Compute, Op, Work
from stepsim.sim.simulate import simulate

MEETS = ("dp", "world", "edp", "hsdp")

MANY = 1_000_000
"""Classes of ranks that nobody replays."""


def any_choice(
    draw: st.DataObject, one: Lowered, degradation: Degradation, alone: bool
) -> tuple[float, float]:
    """Both bounds of any replicas, and any groups of them."""
    ranks = ranks_of(one)
    replicas = replicas_of(one.plan.process_groups, ranks, degradation)
    assert replicas is not None
    order = draw.draw(st.permutations(range(replicas.count)))
    cut = draw.draw(st.integers(1, replicas.count))
    groups = [np.array([u]) for u in order[: cut - 1]] + [np.array(order[cut - 1 :])]
    above = step_s(from_above(one.programs, ranks, replicas, groups), alone)
    graph = graph_of(replay(folded(one).programs), MEETS, ("tp", "world"))
    chosen = np.array(order[:cut])
    _, spread = paces(ranks, replicas, chosen)
    below = step_s(from_below(one.programs, ranks, replicas, chosen), alone)
    return below - member_slack_s(graph, spread.max(axis=0).tolist()), above


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_without_contention_any_replicas_bound_the_step(data: st.DataObject) -> None:
    one = lowered(data.draw(layouts(dp=4, **data.draw(st.sampled_from([{}, LARGE])))))
    degradation = data.draw(wrong(one.plan.scenario.world_size))
    if why_exact(one, degradation):
        return
    lower, upper = any_choice(data, one, degradation, alone=True)
    exact = step_s(unfolded(one, degradation).programs, alone=True)
    assert lower <= exact * (1 + 1e-9)
    assert upper >= exact * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_step_is_between_its_bounds(data: st.DataObject) -> None:
    one = lowered(data.draw(layouts(dp=4, **data.draw(st.sampled_from([{}, LARGE])))))
    degradation = data.draw(wrong(one.plan.scenario.world_size))
    if why_exact(one, degradation):
        return
    bounds = bounded(one, degradation, replay(folded(one).programs), classes=MANY)
    assert bounds is not None
    found = bounds.bounds
    exact = step_s(unfolded(one, degradation).programs)
    assert found.lower_s <= exact * (1 + 1e-9)
    assert found.upper_s >= exact * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "seed"), [(1, 0), (8, 1)])
def test_the_step_of_many_replicas_is_between_its_bounds(every: int, seed: int) -> None:
    """All ranks a little different, or one in eight slow: few of 32 replicas stand for all."""
    one = lowered(scenario(**{**TWIN, **LARGE, "dp": 32, "microbatches": 4}))
    random, world = np.random.default_rng(seed), one.plan.scenario.world_size
    struck = random.choice(world, size=world // every, replace=False).tolist()
    factors = 1 + 0.02 * random.standard_normal(world) if every == 1 else random.uniform(1.1, 1.5, world)
    degradation = Degradation(slow={rank: float(factors[rank]) for rank in struck})
    bounds = bounded(one, degradation, replay(folded(one).programs), classes=MANY)
    assert bounds is not None
    found = bounds.bounds
    assert found.replicas < found.of == 32
    assert found.lower_s <= step_s(unfolded(one, degradation).programs) <= found.upper_s


def test_a_pass_over_a_healthy_step_is_its_replay() -> None:
    one = lowered(scenario(**TWIN))
    record = replay(folded(one).programs)
    found = max_plus(graph_of(record, MEETS, ()), np.ones((1, 4)))
    assert found.begin_s[-1] == pytest.approx(record.step_s, rel=1e-9)


@pytest.mark.parametrize(
    ("start_s", "ends_s"),
    [(0.0, 2.0), (1.0, 2.5), (2.0, 3.0)],
    ids=["all of it beside", "half of it beside", "behind"],
)
def test_a_kernel_loses_sms_as_long_as_a_collective_holds_them(start_s: float, ends_s: float) -> None:
    """A kernel of a second, that runs at half of its speed until two seconds are over."""
    window = _Window(np.array([0.0]), np.array([2.0]))
    found = _beside([window], np.array([start_s]), np.array([start_s + 1.0]), 0.5)
    assert found == pytest.approx([ends_s])


def block(*ops: tuple[float | str, str, tuple[int, ...]]) -> Block:
    """Kernels of so many seconds, and collectives by communicator; their streams, and what they await."""
    none = Transfer(latency_s=0.0, bytes=1.0, ceiling_bytes_per_s=1.0)
    works: list[Work] = [
        Collective("all_gather", what, none) if isinstance(what, str) else Compute(what, "gemm")
        for what, _, _ in ops
    ]
    return Block(
        "layer",
        tuple(
            Op("op", stream, "compute", work, after=after)
            for work, (_, stream, after) in zip(works, ops, strict=True)
        ),
    )


def test_edges_are_what_runs_before_the_first_and_after_the_last_collective() -> None:
    found = edges_of_block(
        block((1.0, "compute", ()), ("tp", "tp", (0,)), (10.0, "compute", (1,)), ("tp", "tp", (2,)))
    )
    assert (found.head_s, found.tail_s, found.through_s) == (1.0, 0.0, NEVER)


def test_kernels_beside_a_collective_are_a_way_past_it() -> None:
    """The collective of op 1 is awaited by op 3 alone, beside whose way there is op 2."""
    found = edges_of_block(
        block((1.0, "compute", ()), ("tp", "tp", (0,)), (10.0, "compute", ()), (100.0, "compute", (1,)))
    )
    assert (found.head_s, found.tail_s, found.through_s) == (1.0, 100.0, 111.0)


def test_blocks_without_collectives_of_the_group_await_nobody() -> None:
    found = edges_of_block(block((1.0, "compute", ()), ("cp", "cp", (0,)), (10.0, "compute", (1,))))
    assert (found.head_s, found.tail_s, found.through_s) == (NEVER, NEVER, 11.0)
    gathers = edges_of_block(block(("tp", "tp", ()), (5.0, "compute", (0,))))
    row = found.then(gathers).then(found)
    assert (row.head_s, row.tail_s, row.through_s) == (11.0, 16.0, NEVER)


def test_a_step_is_sooner_by_no_more_than_the_edges_of_its_layers() -> None:
    """Equal factors leave nothing; a way through stages that differ may be the slowest in any one of them."""
    one = lowered(scenario(**{**TWIN, "tp": 2, "sequence_parallel": True}))
    graph = graph_of(replay(folded(one).programs), MEETS, ("tp", "world"))
    stages = len(one.programs.classes)
    alone_s, every_s = (
        member_slack_s(graph, [0.3] + [0.0] * (stages - 1)),
        member_slack_s(graph, [0.3] * stages),
    )
    assert member_slack_s(graph, [0.0] * stages) == 0.0
    assert alone_s < every_s
    assert 0.0 < every_s < 0.1 * max_plus(graph, np.ones((1, stages))).step_s


@pytest.mark.parametrize(
    ("given_", "fields"),
    [
        (Degradation(slow={0: 1.3}, later=((0.1, Degradation()),)), {}),
        (Degradation(slow={0: float("inf")}), {}),
        (Degradation(slow={0: 1.3}, link_share={(3, "nic.out"): 0.5}), {}),
        (Degradation(slow={0: 1.3}), {"dp": 1}),
        (
            Degradation(slow={0: 1.3}),
            {"gpus_per_node": 2, "fabric": {"kind": "fat-tree", "oversubscription": 8}},
        ),
    ],
    ids=["within the step", "stops", "weak link", "one replica", "shared links"],
)
def test_what_has_no_bounds_is_replayed_in_full(given_: Degradation, fields: dict[str, Any]) -> None:
    assert why_exact(lowered(scenario(**{**TWIN, **fields})), given_)
    assert not why_exact(lowered(scenario(**TWIN)), Degradation(slow={0: 1.3}))


def lines(world: int) -> list[str]:
    factors = np.random.default_rng(3).uniform(1.01, 1.3, world)
    return [f"gpu_throttle gpu/{gpu} slow_factor={factor}" for gpu, factor in enumerate(factors.tolist())]


def test_a_run_tells_bounds_and_the_exact_one_is_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "MOST_CLASSES", 8)
    monkeypatch.setattr(bounds_module, "MOST_EVENTS", 0)
    run = scenario(**{**TWIN, "dp": 8, "microbatches": 16})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(run.to_document()))
    faults = [part for line in lines(run.world_size) for part in ("--fault", line)]

    def told(*options: str) -> dict[str, Any]:
        ran = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml"), "--json", *faults, *options])
        assert ran.exit_code in (0, 1), ran.output
        document: dict[str, Any] = json.loads(ran.stdout)
        return document

    few, every = told(), told("--exact")
    lower, upper = few["step_time_bounds_s"]
    assert few["bounded"]["of"] == 8
    assert few["classes"] < every["classes"] == run.world_size
    assert lower <= every["step_time_s"] <= upper < 1.01 * lower
    assert every["step_time_bounds_s"] == [every["step_time_s"]] * 2
    assert every["bounded"] is None


def test_a_tolerance_is_a_share() -> None:
    with pytest.raises(ValueError, match="2"):
        simulate(scenario(**TWIN), tolerance=2.0)


@pytest.mark.slow
def test_each_fault_is_left_out_where_that_is_asked_for() -> None:
    run = scenario(**TWIN)
    many = lines(9)
    none, all_ = (simulate(run, faults=many, each_fault=each).faults for each in (None, True))
    assert none is not None
    assert all_ is not None
    assert not none.without_s
    assert len(all_.without_s) == 9
