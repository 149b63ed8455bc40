"""Jobs and machines of which ranks fold, and what folding leaves as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from small_scenarios import layouts

from stepsim.sim.fold.ranks import Degradation
from stepsim.sim.fold.refine import Edges
from stepsim.sim.result.step import ActionSpan
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster

LINKS = ("nvlink.out", "nvlink.in", "nic.out", "nic.in")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, Edges]:
    """A few start colours, and labelled edges that may be many between the same two vertices."""
    count = draw(st.integers(1, 12))
    vertex = st.integers(0, count - 1)
    drawn = draw(st.lists(st.tuples(vertex, vertex, st.integers(0, 2)), max_size=30))
    columns = [np.array([edge[i] for edge in drawn], dtype=np.int64) for i in range(3)]
    colours = np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), dtype=np.int64)
    return colours, Edges(vertex=columns[0], neighbour=columns[1], label=columns[2])


Times = dict[tuple[str, int, int], tuple[float, float]]


def spans_by_rank(spans: Iterable[ActionSpan], classes: np.ndarray) -> list[Times]:
    """When every action of every rank begins and ends: as that of its class does."""
    by_class: dict[int, Times] = {}
    for span in spans:
        by_class.setdefault(span.rank, {})[span.kind, span.stage, span.microbatch] = span.start_s, span.end_s
    return [by_class[int(number)] for number in classes]


def same_times(ours: Times, theirs: Times) -> None:
    assert ours.keys() == theirs.keys()
    for action, times in ours.items():
        assert times == pytest.approx(theirs[action], rel=1e-9, abs=1e-12), action


FABRICS: tuple[dict[str, Any], ...] = (
    {"kind": "rail-optimized", "nodes_per_leaf": 1, "oversubscription": 2},
    {"kind": "rail-optimized", "nodes_per_leaf": 2, "oversubscription": 8},
    {"kind": "rail-optimized", "nodes_per_leaf": 1, "oversubscription": 2, "pxn": True},
    {"kind": "rail-optimized", "nodes_per_leaf": 1, "ecmp": "hashed", "seed": 3},
    {"kind": "fat-tree", "nodes_per_leaf": 1, "oversubscription": 4},
    {"kind": "fat-tree", "nodes_per_leaf": 2, "oversubscription": 1.5, "ecmp": "hashed"},
    {"kind": "fat-tree"},
    {"kind": "dragonfly", "nodes_per_leaf": 1, "routers_per_group": 4, "global_links": 4},
    {"kind": "torus"},
)

PLACEMENTS: tuple[dict[str, Any] | None, ...] = (None, {"kind": "scattered", "seed": 7})


@st.composite
def machines(draw: st.DrawFn) -> tuple[Scenario, Degradation]:
    """A small job on some fabric, and what is wrong with it: GPUs, links of GPUs, links between switches."""
    run = draw(
        layouts(
            gpus_per_node=draw(st.sampled_from([1, 2, 4])),
            fabric=draw(st.sampled_from(FABRICS)),
            placement=draw(st.sampled_from(PLACEMENTS)),
        )
    )
    rank = st.integers(0, run.world_size - 1)
    slow = draw(st.dictionaries(rank, st.sampled_from([1.25, 2.0]), max_size=2))
    weak = draw(st.dictionaries(st.tuples(rank, st.sampled_from(LINKS)), st.just(0.5), max_size=2))
    links = build_cluster(run).topology.links
    between = [
        number
        for number in range(len(links))
        if links.kinds(np.array([number]))[0] in ("uplink", "core", "local", "global", "torus")
        and links.ends(number) is not None
    ]
    damaged = st.dictionaries(st.sampled_from(between), st.sampled_from([0.5, 0.1]), max_size=2)
    fabric = draw(damaged) if between else {}
    return run, Degradation(slow=slow, link_share=weak, fabric_share=fabric)
