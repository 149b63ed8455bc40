"""Refinement from a healthy partition finds what refinement from scratch does."""

from __future__ import annotations

import numpy as np
import pytest
from folded_jobs import graphs, machines
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.fold.fabric import fabric_of
from stepsim.sim.fold.partition import partition, partition_of, start_colours
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.fold.refine import Edges, refine
from stepsim.sim.fold.refine_from import refine_from
from stepsim.sim.scenario.models import Scenario


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return len(np.unique(np.stack([a, b]), axis=1).T) == len(np.unique(a)) == len(np.unique(b))


@given(graphs(), st.data())
def test_refining_again_finds_what_refining_anew_does(
    drawn: tuple[np.ndarray, Edges], data: st.DataObject
) -> None:
    colours, edges = drawn
    stable = refine(colours, edges)
    apart = data.draw(st.lists(st.integers(0, 2), min_size=len(colours), max_size=len(colours)))
    start = stable * 3 + np.array(apart)
    assert refine_from(stable, start, edges).tolist() == refine(start, edges).tolist()


@given(graphs(), graphs())
def test_new_edges_refine_as_if_they_had_been_there(
    drawn: tuple[np.ndarray, Edges], more: tuple[np.ndarray, Edges]
) -> None:
    colours, edges = drawn
    inside = (more[1].vertex < len(colours)) & (more[1].neighbour < len(colours))
    new = Edges(
        vertex=more[1].vertex[inside], neighbour=more[1].neighbour[inside], label=more[1].label[inside] + 3
    )
    all_ = Edges(
        vertex=np.concatenate([edges.vertex, new.vertex]),
        neighbour=np.concatenate([edges.neighbour, new.neighbour]),
        label=np.concatenate([edges.label, new.label]),
    )
    stable = refine(colours, edges)
    assert refine_from(stable, colours, all_, new).tolist() == refine(stable, all_).tolist()


@pytest.mark.slow
@settings(max_examples=50)
@given(machines())
def test_a_degraded_job_folds_as_if_refined_anew(drawn: tuple[Scenario, Degradation]) -> None:
    run, degradation = drawn
    step = lowered(run)
    ranks = ranks_of(step)
    fabric = fabric_of(step, ranks, degradation)
    found = partition_of(ranks, degradation, fabric)
    whole = partition(ranks, start_colours(ranks, degradation), fabric)
    assert same(partition_of(ranks, Degradation()).rank, ranks.signature)
    assert same(found.rank, whole.rank)
    assert same(found.link, whole.link)


def test_what_a_fault_does_not_touch_keeps_its_class() -> None:
    """Replicas without the slow GPU stay one class a stage and shard."""
    ranks = ranks_of(lowered(scenario(tp=4, pp=4, dp=16, schedule="1f1b", gpus_per_node=8)))
    found = partition_of(ranks, Degradation(slow={5: 1.5})).rank
    assert np.bincount(found).max() == 15 * 3
    with pytest.raises(AssertionError):
        assert same(found, ranks.signature)
