"""Folding is exact on the routes of the fabric too: oversubscribed, hashed, damaged links, any placement."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from folded_jobs import machines, same_times, spans_by_rank
from hypothesis import assume, given
from law_examples import examples
from small_scenarios import lowered, scenario

from stepsim.sim.engine.accounting import action_spans, iter_spans
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.can_bind import can_bind
from stepsim.sim.fold.fabric import fabric_of
from stepsim.sim.fold.fold import folded
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.network.paths import Paths
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.file import read_program, write_program
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate


@pytest.mark.slow
@examples(15)
@given(machines())
def test_folded_is_unfolded(drawn: tuple[Scenario, Degradation]) -> None:
    """Of jobs that have ranks alike: more than half have none, and their replay would be repeated."""
    run, degradation = drawn
    step = lowered(run)
    ranks = ranks_of(step)
    fabric = fabric_of(step, ranks, degradation)
    classes, each = partition_of(ranks, degradation, fabric).rank, np.arange(ranks.world)
    assume(len(np.unique(classes)) < ranks.world)
    few = replay(programs_of_classes(step.programs, ranks, classes, degradation, fabric))
    whole = replay(programs_of_classes(step.programs, ranks, each, degradation, fabric))
    assert few.makespan_s == pytest.approx(whole.makespan_s, rel=1e-9)
    by_class, by_rank = spans_by_rank(action_spans(few), classes), spans_by_rank(action_spans(whole), each)
    for mine, its in zip(by_class, by_rank, strict=True):
        same_times(mine, its)
    ours, theirs = spans_by_class(few), spans_by_class(whole)
    for number, own in zip(classes.tolist(), theirs, strict=True):
        assert ours[number][0] == own[0]
        assert np.allclose(ours[number][1], own[1], rtol=1e-9, atol=1e-12)


def spans_by_class(record: Record) -> list[tuple[list[tuple[str, str, str]], list[float]]]:
    """What every kernel and communication of each class is, and when each ends, stream by stream."""
    found: list[list[tuple[str, str, str, float]]] = [[] for _ in record.programs.classes]
    for span in iter_spans(record):
        found[span.rank].append((span.stream.split(" ")[0], span.name, span.action, span.end_s))
    for spans in found:
        spans.sort()
    return [([span[:3] for span in spans], [span[3] for span in spans]) for spans in found]


def hashed() -> Scenario:
    """A job whose flows collide."""
    return scenario(
        tp=2, pp=2, dp=4, schedule="1f1b", gpus_per_node=2, interconnect="ib-ndr400-x8", hidden_size=1024,
        ffn_hidden_size=8192,
        fabric={"kind": "fat-tree", "nodes_per_leaf": 2, "oversubscription": 8, "ecmp": "hashed"},
    )  # fmt: skip


def test_a_partition_that_ignores_links_would_show() -> None:
    """The test above can fail: with all ranks of a stage in one class a hashed job takes another time."""
    step = lowered(hashed())
    ranks = ranks_of(step)
    fabric = fabric_of(step, ranks, Degradation())
    whole = programs_of_classes(step.programs, ranks, np.arange(ranks.world), Degradation(), fabric)
    coarse = programs_of_classes(step.programs, ranks, ranks.signature, Degradation(), fabric)
    assert replay(coarse).step_s != pytest.approx(replay(whole).step_s, rel=1e-3)


def test_a_damaged_cable_unfolds_what_crosses_it() -> None:
    """Half of one uplink of a spread: its leaf's ring suffers, the rings of other leaves stay together."""
    run = scenario(
        dp=4, pp=4, schedule="1f1b", gpus_per_node=1, interconnect="ib-ndr400-x8",
        fabric={"kind": "fat-tree", "nodes_per_leaf": 2},
    )  # fmt: skip
    step = lowered(run)
    links = build_cluster(run).topology.links
    cable = next(n for n in range(len(links)) if links.kinds(np.array([n])) == ["uplink"])
    healthy, hurt = folded(step), folded(step, Degradation(fabric_share={cable: 0.1}))
    assert len(healthy.ranks) == 4
    assert healthy.programs.paths.capacity == {}
    assert 4 < len(hurt.ranks) < 16
    assert list(hurt.programs.paths.capacity) == ["leaf 0 -> spines 0"]
    assert replay(hurt.programs).step_s > replay(healthy.programs).step_s


@pytest.mark.slow
@examples(8)
@given(machines())
def test_folded_programs_can_run_and_be_written(drawn: tuple[Scenario, Degradation]) -> None:
    run, degradation = drawn
    ready = folded(lowered(run), degradation)
    assert program_problems(ready.programs) == ()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.json"
        write_program(ready.programs, path, ranks=ready.ranks)
        again = read_program(path)
    assert again.ranks == ready.ranks
    assert again.programs.paths == ready.programs.paths
    assert replay(again.programs).step_s == replay(ready.programs).step_s


def test_too_many_classes_are_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"16 classes.*16 ranks.*8 .*ecmp"):
        simulate(hashed(), max_classes=8)
    assert len(simulate(hashed(), max_classes=16).ranks) == 16


@pytest.mark.parametrize(
    ("oversubscription", "binds"), [(1, False), (2, True), ([1, 1], False), ([1, 2], True), ([2, 1], True)]
)
def test_a_healthy_tree_slows_nothing_where_as_much_is_above_a_switch_as_below(
    oversubscription: Any, binds: bool
) -> None:
    """On either level: 64 leaves in two pods, joined by cores."""
    fabric = {"kind": "fat-tree", "levels": 3, "nodes_per_leaf": 1, "oversubscription": oversubscription}
    run = scenario(dp=64, gpus_per_node=1, interconnect="ib-ndr400-x8", fabric=fabric)
    assert can_bind(build_cluster(run)) is binds


def test_a_class_has_the_communicators_of_its_own_that_cross_the_fabric() -> None:
    crossed = {(0, "dp", "ring"): (("leaf 0", 1.0),), (0, "ep", "pairs"): (), (1, "tp", "ring"): ()}
    paths = Paths(collectives=crossed)
    assert [paths.routed(r) for r in range(3)] == [{"dp", "ep"}, {"tp"}, set()]
