"""Jobs that share a fabric: closed forms of what each gets, laws of folding and of phases, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_scenarios import scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.brief.step import brief_step
from stepsim.sim.lowering.lower import lower
from stepsim.sim.neighbours import beside, jobs_of
from stepsim.sim.plan.space import space_of
from stepsim.sim.result.neighbours import StepNeighbours
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

PER_NODE = 8
SHARED = {"kind": "fat-tree", "nodes_per_leaf": 2, "oversubscription": 4}
"""Two hosts below a leaf, whose ways up carry a quarter of what both send."""

RAILS = {**SHARED, "kind": "rail-optimized"}

JOB: dict[str, Any] = {"dp": 16, "gpus_per_node": PER_NODE, "hidden_size": 1024, "ffn_hidden_size": 4096}
"""Two hosts that reduce all gradients at the end of the step, in one all-reduce that nothing hides."""


def gpus_on(*hosts: int) -> list[int]:
    return [PER_NODE * host + gpu for host in hosts for gpu in range(PER_NODE)]


@contextmanager
def placed(
    ours: dict[str, Any], own: tuple[int, ...], *others: tuple[dict[str, Any], tuple[int, ...], float]
) -> Iterator[Scenario]:
    """A job on its ``own`` hosts beside others, each with its hosts and its offset in seconds."""
    with TemporaryDirectory() as folder:
        named = []
        for number, (job, hosts, offset_s) in enumerate(others):
            path = Path(folder) / f"other-{number}.yaml"
            path.write_text(yaml.safe_dump(scenario(**job).to_document()))
            named.append({"scenario": str(path), "hosts": list(hosts), "offset": f"{offset_s} s"})
        place = {"kind": "explicit", "gpus": gpus_on(*own)}
        yield scenario(**{"fabric": SHARED, **ours}, placement=place, neighbours=named)


def shared(*args: Any) -> StepNeighbours:
    with placed(*args) as job:
        found = simulate(job).neighbours
    assert found is not None
    return found


@pytest.mark.parametrize("oversubscription", [4, 8])
def test_two_jobs_on_one_link_get_half_each(oversubscription: int) -> None:
    """Of a leaf's two hosts one is ours and one is theirs. A ring of n GPUs sends 2 (n - 1) / n bytes for
    each byte of gradients from host to host. The leaf's way up is 2 h / o for NICs of h bytes/s in a host:
    alone the ring has all of it, beside the other half of it, so that each is late by V o / h - V o / (2 h).
    """
    fabric = {**SHARED, "oversubscription": oversubscription}
    with placed({**JOB, "fabric": fabric}, (0, 2), (JOB, (1, 3), 0.0)) as job:
        found = simulate(job).neighbours
        cluster = build_cluster(job)
        parameters = lower(job, cluster).plan.held_parameters(0)
    assert found is not None
    sent_bytes = 2 * 15 / 16 * 4 * parameters  # FP32 gradients
    late_s = sent_bytes * oversubscription / (2 * cluster.interconnect.host_bytes_per_s)
    assert found.step_time_s - found.alone_s == pytest.approx(late_s, rel=1e-3)
    assert found.others[0].step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
    assert found.others[0].alone_s == pytest.approx(found.alone_s, rel=1e-9)


def test_three_jobs_on_one_link_get_a_third_each() -> None:
    """The same with three hosts below a leaf: alone 3 h / o, and a third of that beside two others."""
    fabric = {**SHARED, "nodes_per_leaf": 3, "oversubscription": 12}
    others = [(JOB, (1, 4), 0.0), (JOB, (2, 5), 0.0)]
    with placed({**JOB, "fabric": fabric}, (0, 3), *others) as job:
        found = simulate(job).neighbours
        cluster = build_cluster(job)
        parameters = lower(job, cluster).plan.held_parameters(0)
    assert found is not None
    way_up = 3 * cluster.interconnect.host_bytes_per_s / 12
    late_s = 2 * 15 / 16 * 4 * parameters * (3 - 1) / way_up
    assert found.step_time_s - found.alone_s == pytest.approx(late_s, rel=1e-3)


@pytest.mark.parametrize(("own", "its"), [((0, 1), (2, 3)), ((0, 1), (4, 6))])
def test_jobs_that_share_no_link_are_as_alone(own: tuple[int, ...], its: tuple[int, ...]) -> None:
    """One job stays below its leaf."""
    found = shared(JOB, own, (JOB, its, 0.0))
    assert found.step_time_s == pytest.approx(found.alone_s, rel=1e-12)
    assert found.others[0].step_time_s == pytest.approx(found.others[0].alone_s, rel=1e-12)


def test_a_fabric_that_holds_all_slows_nobody() -> None:
    found = shared({**JOB, "fabric": {"kind": "fat-tree", "nodes_per_leaf": 2}}, (0, 2), (JOB, (1, 3), 0.0))
    assert found.slowdown == found.others[0].slowdown == 1.0


def test_jobs_take_turns_where_their_phases_let_them() -> None:
    """Their all-reduces take less than half of a step: half a step apart they do not meet, however the first
    of their steps that meets ours began before it.
    """
    alone_s = shared(JOB, (0, 2), (JOB, (1, 3), 0.0)).alone_s
    for offset_s in (0.5 * alone_s, 3.5 * alone_s):
        found = shared(JOB, (0, 2), (JOB, (1, 3), offset_s))
        assert found.slowdown == pytest.approx(1.0, rel=1e-9)
        assert found.others[0].slowdown == pytest.approx(1.0, rel=1e-9)


def test_steps_of_a_shorter_job_follow_one_another() -> None:
    """It has many steps in one of ours, all of which take from our all-reduce."""
    once = shared(JOB, (0, 2), ({**JOB, "microbatches": 1, "hidden_size": 512}, (1, 3), 0.0))
    again = shared({**JOB, "hidden_size": 4096}, (0, 2), (JOB, (1, 3), 0.0))
    assert again.slowdown > 1.0
    assert again.others[0].alone_s < again.alone_s / 3
    assert once.slowdown > 1.0


def small_jobs() -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(
        [
            {**JOB, "microbatches": 2},
            {**JOB, "dp": 2, "pp": 8, "schedule": "1f1b", "microbatches": 8},
            {**JOB, "dp": 4, "tp": 4, "zero": 1, "microbatches": 1},
            {**JOB, "dp": 8, "tp": 2, "microbatches": 2, "software": "megatron-core-2025"},
        ]
    )


@settings(max_examples=8, deadline=None)
@given(
    ours=small_jobs(),
    theirs=small_jobs(),
    offset_s=st.sampled_from([0.0, 0.002, 0.011]),
    fabric=st.sampled_from([SHARED, {**SHARED, "ecmp": "hashed", "seed": 3}, RAILS]),
    hosts=st.permutations(range(4)),
)
def test_folded_is_unfolded_and_never_faster(
    ours: dict[str, Any],
    theirs: dict[str, Any],
    offset_s: float,
    fabric: dict[str, Any],
    hosts: list[int],
) -> None:
    own, its = (hosts[0], hosts[1]), (hosts[2], hosts[3])
    with placed({**ours, "fabric": fabric}, own, (theirs, its, offset_s)) as job:
        jobs = jobs_of(lower(job, build_cluster(job)))
        few, whole = beside(jobs), beside(jobs, fold=False)
    assert few.record.step_s == pytest.approx(whole.record.step_s, rel=1e-9)
    assert (
        few.record.step_s >= jobs[0].alone_s * 0.99  # sharing may reorder messages
    )  # sharing may reorder, and gain little (docs/faults.md)
    assert len(few.folded.ranks) <= 16


def test_equal_neighbours_fold_into_one_another() -> None:
    """Two jobs that sit alike are one class; as two kinds they are two."""
    for offset_s, classes in ((0.0, 2), (0.01, 3)):
        fabric = {**SHARED, "nodes_per_leaf": 3, "oversubscription": 12}
        others = [(JOB, (1, 4), 0.0), (JOB, (2, 5), offset_s)]
        with placed({**JOB, "fabric": fabric}, (0, 3), *others) as job:
            jobs = jobs_of(lower(job, build_cluster(job)))
            assert beside(jobs).classes == classes


def test_faults_strike_the_job_at_their_time_of_its_step() -> None:
    """Half as fast for 2 ms, our job is late by 1 ms where the jobs do not meet. Where they do, the neighbour
    takes the link meanwhile and is done the earlier: the link is never idle, so ours ends as before.
    """
    fault = "gpu_throttle gpu/3 slow_factor=2 at=2ms duration=2ms"
    alone_s = shared(JOB, (0, 2), (JOB, (1, 3), 0.0)).alone_s
    for offset_s, late_s in ((0.5 * alone_s, 1e-3), (0.0, 0.0)):
        with placed(JOB, (0, 2), (JOB, (1, 3), offset_s)) as job:
            found = simulate(job, faults=[fault]).faults
        assert found is not None
        assert found.step_time_s - found.healthy_step_time_s == pytest.approx(late_s, rel=1e-3, abs=1e-8)


def test_the_document_and_the_table_have_both_jobs(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(scenario(**JOB).to_document()))
    other = {"scenario": "other.yaml", "hosts": [1, 3], "offset": "1 ms"}
    document = scenario(
        **JOB, fabric=SHARED, placement={"kind": "explicit", "gpus": gpus_on(0, 1)}
    ).to_document()
    document["cluster"] |= {"placement": {"kind": "explicit", "gpus": gpus_on(0, 2)}, "neighbours": [other]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml"), "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["neighbours"]["step_time_s"] == found["step_time_s"]
    assert found["neighbours"]["others"][0]["hosts"] == [1, 3]
    assert found["neighbours"]["others"][0]["offset_s"] == 1e-3
    assert found["neighbours"]["slowdown"] > 1.01
    assert CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml")]).exit_code == 0
    refused = CliRunner().invoke(
        app, ["run", str(tmp_path / "job.yaml"), "--save-program", str(tmp_path / "p.json")]
    )
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("hosts", "field"),
    [
        ([1, 2], "cluster.neighbours[0].hosts"),  # host 1 is ours
        ([2], "cluster.neighbours[0]"),
        ([2, 2], "cluster.neighbours[0]"),
    ],
)
def test_every_host_has_one_job(hosts: list[int], field: str) -> None:
    with refused_at(field):
        scenario(**JOB, neighbours=[{"scenario": "llama3-8b-h100", "hosts": hosts}])


def test_a_job_of_one_host_has_no_neighbours() -> None:
    with refused_at("cluster.neighbours"):
        scenario(dp=8, gpus_per_node=8, neighbours=[{"scenario": "llama3-8b-h100", "hosts": [2, 3]}])


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({**JOB, "gpu": "A100-SXM4-40GB"}, ("cluster.gpu",)),
        ({**JOB, "gpus_per_node": 4}, ("gpus_per_node",)),
        ({**JOB, "dp": 32}, ("4 hosts",)),
    ],
)
def test_one_fabric_joins_like_hosts(other: dict[str, Any], names: tuple[str, ...]) -> None:
    with (
        placed(JOB, (0, 2), (other, (1, 3), 0.0)) as job,
        pytest.raises(ValueError, match="neighbours") as told,
    ):
        simulate(job)
    assert all(name in str(told.value) for name in names)


def test_a_neighbour_that_is_not_there() -> None:
    job = scenario(**JOB, neighbours=[{"scenario": "nowhere.yaml", "hosts": [2, 3]}])
    with pytest.raises(ScenarioError, match=r"no file 'nowhere\.yaml'"):
        simulate(job)


def test_what_knows_one_job_alone_refuses() -> None:
    job = scenario(**JOB, neighbours=[{"scenario": "llama3-8b-h100", "hosts": [2, 3]}])
    for ask in (brief_step, space_of):
        with refused_at("cluster.neighbours"):
            ask(job)


def test_random_placements_slow_where_leaves_are_shared() -> None:
    """With two leaves of two hosts, two jobs of two either have a leaf each, or share both: two ways of six
    and four. A job of four stages talks at other times than one that reduces at the end.
    """
    with placed(JOB, (0, 2), (JOB, (1, 3), 0.0)) as job:
        found = simulate(job, placements=12).neighbours
        again = simulate(job, placements=12).neighbours
    assert found is not None
    assert again == found
    alone = {round(one.alone_s, 6) for one in found.placements}
    assert len(alone) == 2  # below one leaf, or through the spines
    within = min(alone)
    for one in found.placements:
        assert one.slowdown >= 1 - 1e-9
        if round(one.alone_s, 6) == within:
            assert one.slowdown == pytest.approx(1.0)
    assert max(one.slowdown for one in found.placements) > 1.01


def test_placements_need_neighbours() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        simulate(scenario(**JOB), placements=2)
