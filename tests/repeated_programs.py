"""Programs of repeated blocks, and the law that they take what their ops take one by one."""

from __future__ import annotations

from hand_made_programs import LINKS
from hypothesis import strategies as st
from oracles.expanded import expanded
from small_scenarios import changed, layouts

from stepsim.sim.engine.accounting import iter_spans, rank_time
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.ranks import Degradation
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Programs
from stepsim.sim.scenario.models import Scenario

SMS = 400  # more than all the collectives of a class together can hold


def assert_same_times(programs: Programs) -> None:
    """Start and end of every op, and the step, to 1e-9 of the step."""
    short, full = replay(programs), replay(expanded(programs))
    tolerance = 1e-9 * full.makespan_s
    assert abs(short.makespan_s - full.makespan_s) <= tolerance
    assert abs(short.step_s - full.step_s) <= tolerance
    for mine, other in zip(iter_spans(short), iter_spans(full), strict=True):
        assert (mine.rank, mine.stream, mine.name, mine.action) == (
            other.rank,
            other.stream,
            other.name,
            other.action,
        )
        assert abs(mine.start_s - other.start_s) <= tolerance, (mine, other)
        assert abs(mine.end_s - other.end_s) <= tolerance, (mine, other)
    for r in range(len(programs.classes)):
        time = rank_time(short, r)
        told_s = (
            sum(map(sum, (time.parts.values(), time.exposed.values(), time.late.values()))) + time.bubble_s
        )
        assert abs(told_s - (short.makespan_s if programs.ends == "together" else told_s)) <= tolerance


OVERLAPS = {
    "launch_blocking": False,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "reduction": "buckets",
    "bucket_elements": 1e5,
}
"""Buckets that even a small model fills, so that most runs have blocks that open."""


seconds = st.floats(0.01, 3.0)
host = st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0])


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    names = draw(st.sets(st.sampled_from(sorted(LINKS))))
    return Transfer(
        draw(st.sampled_from([0.0, 0.1, 0.5])),
        draw(st.floats(0.0, 60.0)),
        draw(st.floats(20.0, 200.0)),
        tuple((name, draw(st.floats(0.2, 2.0))) for name in sorted(names)),
        draw(st.sampled_from([0, 0, 20, 30])),
    )


@st.composite
def degraded(draw: st.DrawFn) -> tuple[Scenario, Degradation]:
    """A small job of tensor-parallel groups with slow GPUs and weak links, and hosts from none to slow."""
    run: Scenario = draw(layouts(tp=draw(st.sampled_from([2, 4]))))
    host_s = draw(st.sampled_from([None, None, 0.0, 3e-5]))
    software = draw(st.sampled_from([{}, OVERLAPS]))
    software = {**software, **({} if host_s is None else {"host_s_per_kernel": host_s})}
    rank = st.integers(0, run.world_size - 1)
    slow = draw(st.dictionaries(rank, st.sampled_from([1.25, 2.0]), min_size=1, max_size=3))
    weak = draw(st.dictionaries(st.tuples(rank, st.sampled_from(sorted(LINKS))), st.just(0.5), max_size=2))
    return changed(run, software=software), Degradation(slow=slow, link_share=weak)
