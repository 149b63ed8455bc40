"""Folding is exact: one replayed rank of a class does what every rank of it does in the whole job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from folded_jobs import LINKS, graphs, same_times, spans_by_rank
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, lowered, scenario

from stepsim.sim.engine.accounting import action_spans
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.fold.refine import Edges, refine
from stepsim.sim.program.check import program_problems
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def is_equitable(colours: np.ndarray, edges: Edges) -> bool:
    """Whether vertices of one colour see the same multiset of labels and colours."""
    sees: dict[int, list[tuple[int, int]]] = {v: [] for v in range(len(colours))}
    for v, neighbour, label in zip(edges.vertex, edges.neighbour, edges.label, strict=True):
        sees[int(v)].append((int(label), int(colours[neighbour])))
    views = {(int(colours[v]), tuple(sorted(seen))) for v, seen in sees.items()}
    return len(views) == len(set(colours.tolist()))


@given(graphs())
def test_refinement_gives_the_coarsest_equitable_partition(drawn: tuple[np.ndarray, Edges]) -> None:
    """Against splitting by sorted multisets until nothing splits, written apart."""
    colours, edges = drawn
    found = refine(colours, edges)
    assert is_equitable(found, edges)
    expected: list[object] = colours.tolist()
    while True:
        seen: list[list[tuple[int, object]]] = [[] for _ in expected]
        for v, n, label in zip(edges.vertex, edges.neighbour, edges.label, strict=True):
            seen[v].append((int(label), expected[n]))
        refined = [(own, tuple(sorted(others))) for own, others in zip(expected, seen, strict=True)]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(refined))}
        after: list[object] = [numbers[name] for name in refined]
        if len(set(after)) == len(set(expected)):
            break
        expected = after
    assert found.tolist() == [sorted(set(after), key=after.index).index(name) for name in after]


@given(graphs(), st.integers(0, 3))
def test_refinement_does_not_depend_on_chance(drawn: tuple[np.ndarray, Edges], seed: int) -> None:
    assert refine(*drawn, seed=seed).tolist() == refine(*drawn).tolist()


# Folded against unfolded -------------------------------------------------------------------------------


@st.composite
def degraded(draw: st.DrawFn) -> tuple[Scenario, Degradation]:
    """A small job and what is wrong with it: slow GPUs, weak links; often several of a kind."""
    run = draw(layouts())
    rank = st.integers(0, run.world_size - 1)
    slow = draw(st.dictionaries(rank, st.sampled_from([1.25, 2.0]), max_size=3))
    weak = draw(st.dictionaries(st.tuples(rank, st.sampled_from(LINKS)), st.just(0.5), max_size=3))
    return run, Degradation(slow=slow, link_share=weak)


@pytest.mark.slow
@examples(20)
@given(degraded())
def test_folded_is_unfolded(drawn: tuple[Scenario, Degradation]) -> None:
    run, degradation = drawn
    step = lowered(run)
    ranks = ranks_of(step)
    classes, each = partition_of(ranks, degradation).rank, np.arange(ranks.world)
    folded = replay(programs_of_classes(step.programs, ranks, classes, degradation))
    whole = replay(programs_of_classes(step.programs, ranks, each, degradation))
    assert folded.makespan_s == pytest.approx(whole.makespan_s, rel=1e-9)
    by_class, by_rank = action_spans(folded), action_spans(whole)
    for ours, theirs in zip(spans_by_rank(by_class, classes), spans_by_rank(by_rank, each), strict=True):
        same_times(ours, theirs)


@pytest.mark.slow
@examples(20)
@given(layouts())
def test_without_degradation_a_class_is_a_pipeline_rank(run: Scenario) -> None:
    """And then nothing is rewritten."""
    step = lowered(run)
    ranks = ranks_of(step)
    classes = partition_of(ranks, Degradation()).rank
    assert classes.tolist() == ranks.signature.tolist()
    again = programs_of_classes(step.programs, ranks, classes, Degradation())
    assert replay(again).step_s == replay(step.programs).step_s


@pytest.mark.slow
@examples(15)
@given(degraded())
def test_folded_programs_can_run(drawn: tuple[Scenario, Degradation]) -> None:
    run, degradation = drawn
    step = lowered(run)
    ranks = ranks_of(step)
    programs = programs_of_classes(step.programs, ranks, partition_of(ranks, degradation).rank, degradation)
    assert program_problems(programs) == ()


def test_one_slow_gpu_unfolds_what_it_touches() -> None:
    """Its tensor-parallel peers wait for it, its pipeline too; replicas without it stay together."""
    run = scenario(tp=4, pp=4, dp=4, schedule="1f1b", gpus_per_node=8, zero=1)
    step = lowered(run)
    ranks = ranks_of(step)
    classes = partition_of(ranks, Degradation(slow={5: 1.5})).rank
    assert len(set(classes.tolist())) < ranks.world / 2
    assert (classes == classes[5]).sum() == 1
    slowed = replay(programs_of_classes(step.programs, ranks, classes, Degradation(slow={5: 1.5})))
    healthy = replay(step.programs)
    assert healthy.step_s < slowed.step_s < 1.5 * healthy.step_s * (1 + 1e-9)


def test_a_partition_that_is_too_coarse_would_show() -> None:
    """The test above can fail: with all slow and healthy ranks in one class the step differs."""
    run = scenario(tp=2, pp=2, dp=2, schedule="1f1b")
    step = lowered(run)
    ranks, degradation = ranks_of(step), Degradation(slow={1: 2.0})
    coarse = programs_of_classes(step.programs, ranks, ranks.signature, degradation)
    whole = programs_of_classes(step.programs, ranks, np.arange(8), degradation)
    assert replay(coarse).step_s != pytest.approx(replay(whole).step_s, rel=1e-3)
    assert replace(whole, communicators={}) != whole


def test_copies_of_stages_fold_where_they_are_all_of_their_group() -> None:
    """With dp 1 each stage and its copy are a group of two, and a slow rank sets every one apart."""
    fabric = {"kind": "rail-optimized", "oversubscription": 2.0, "nodes_per_leaf": 1}
    fields = {"pp": 4, "schedule": "dualpipe", "microbatches": 8, "gpus_per_node": 1, "fabric": fabric}
    run = scenario(**fields, software="megatron-2021")
    slow = ["gpu_throttle gpu/1 slow_factor=1.3"]
    one, all_ = simulate(run, faults=slow), simulate(run, faults=slow, fold=False)
    assert len(one.ranks) == 4
    assert one.step_time_s == pytest.approx(all_.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {"software": "megatron-core-2024", "tp": 4, "sequence_parallel": True, "dp": 2, "zero": 1},
        {"software": "megatron-2022-sp", "tp": 2, "dp": 2},
        {"software": "llama3-meta-2024", "schedule": "zb-v", "vpp": 2, "tp": 2, "dp": 2},
        {"software": "deepseek-hai-2024", "schedule": "dualpipe", "microbatches": 8, "dp": 2, "zero": 1},
    ],
)
def test_every_rank_by_itself_gives_the_same_figures(fields: dict[str, object]) -> None:
    """Step time, bubble, exposed communication, spans and memory of ``--no-fold``, where kernels outlast
    their launches.
    """
    sizes = {"hidden_size": 4096, "ffn_hidden_size": 16384, "num_attention_heads": 32, "seq_length": 2048}
    run = scenario(**{"pp": 4, "schedule": "1f1b", "gpu": "H100-SXM5-80GB", **sizes, **fields})
    one, all_ = simulate(run), simulate(run, fold=False)
    assert (len(one.ranks), len(all_.ranks)) == (4, run.world_size)
    assert one.step_time_s == pytest.approx(all_.step_time_s, rel=1e-9)
    assert one.bubble_fraction == pytest.approx(all_.bubble_fraction, rel=1e-9)
    assert one.exposed_communication_s == pytest.approx(dict(all_.exposed_communication_s), rel=1e-9)
    stages = np.array([rank.pp for rank in all_.ranks])
    by_class, by_rank = (
        spans_by_rank(one.actions, stages),
        spans_by_rank(all_.actions, np.arange(len(stages))),
    )
    for ours, theirs in zip(by_class, by_rank, strict=True):
        same_times(ours, theirs)
    assert [stage.terms for stage in one.memory] == [pytest.approx(stage.terms) for stage in all_.memory]
    with pytest.raises(ValueError, match="at most 4,096"):
        simulate(scenario(tp=4, pp=4, dp=512, schedule="1f1b"), fold=False)
