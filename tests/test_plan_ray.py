"""Plans over a Ray cluster: the answer is that of one machine, whatever becomes of workers and nodes."""

from __future__ import annotations

import json
import os
import platform
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_plans import FIX, answer, interrupted, small
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.defects import is_of_the_user
from stepsim.sim.plan.questions import sensitivity as asked
from stepsim.sim.plan.questions.find import find
from stepsim.sim.plan.questions.sweep import sweep
from stepsim.sim.plan.search.on_ray import RETRIES, ClusterError, OnRay, connected
from stepsim.sim.plan.search.plan import Means, plan, wishes_of
from stepsim.sim.scenario.load import load_scenario


@pytest.fixture(scope="module", autouse=True)
def ray_by_itself() -> Iterator[pytest.MonkeyPatch]:
    """Ray reads these when it is imported: with a token of its own it leaves the home folder alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # workers know what is defined here
        patch.delenv("RAY_ADDRESS", raising=False)
        yield patch


@pytest.fixture(scope="module")
def two_nodes(ray_by_itself: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two nodes of one core each, to which this process is not connected."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        ray_by_itself.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def ray(two_nodes: Any) -> Iterator[Any]:
    """Ray, connected to the two nodes."""
    import ray as connected_ray

    with connected(wanted=True):
        yield connected_ray


def same() -> str:
    return "the same everywhere"


def square(number: int) -> int:
    return number * number


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_of_two_nodes_gives_the_answer_of_one_worker_and_of_two(ray: Any) -> None:
    spread = answer(plan(small(), fix=FIX, audit=4, ray=True))
    assert spread == answer(plan(small(), fix=FIX, audit=4, jobs=1))
    assert spread == answer(plan(small(), fix=FIX, audit=4, jobs=2))
    assert spread == answer(plan(small(), fix=FIX, audit=4, jobs=1, ray=True))
    assert ray.is_initialized()  # a connection that was there before stays


@pytest.mark.cluster
def test_results_come_in_order_from_both_nodes_and_stop_early(ray: Any, tmp_path: Path) -> None:
    def noted(number: int) -> tuple[int, str]:
        time.sleep(0.2)
        (tmp_path / str(number)).touch()
        return number, str(ray.get_runtime_context().get_node_id())

    workers = OnRay(noted, same)
    found = [*workers.run(range(12))]
    assert [number for number, _ in found] == [*range(12)]
    assert len({node for _, node in found}) == 2
    results = workers.run(range(100, 200))
    next(results)
    results.close()
    at_work: list[tuple[int, str]] = []
    for _ in range(50):
        at_work += workers.spared()
        time.sleep(0.05)
    workers.close()
    begun = {int(path.name) for path in tmp_path.iterdir()} - {*range(12), 100}
    assert {number for number, _ in at_work} == begun  # each ended, and was handed over
    assert len(at_work) == len(begun) <= 3


@pytest.mark.cluster
def test_no_more_tasks_run_at_a_time_than_jobs(ray: Any, tmp_path: Path) -> None:
    def alone(number: int) -> int:
        (tmp_path / "busy").mkdir()  # fails where there is another
        time.sleep(0.2)
        (tmp_path / "busy").rmdir()
        return number

    assert [*OnRay(alone, same, jobs=1).run(range(10))] == [*range(10)]


@pytest.mark.cluster
def test_a_worker_keeps_what_it_found_for_its_next_task(ray: Any) -> None:
    class Found:
        def __init__(self) -> None:
            self.before: list[int] = []

        def __call__(self, number: int) -> tuple[int, list[int]]:
            time.sleep(0.05)
            self.before.append(number)
            return os.getpid(), [*self.before]

    found = [*OnRay(Found(), same).run(range(10))]
    longest = dict(found)  # the last of each
    assert sorted(number for before in longest.values() for number in before) == [*range(10)]
    again = [*OnRay(Found(), same).run(range(2))]
    assert all(len(before) <= 2 for _, before in again)  # another function begins anew


@pytest.mark.cluster
def test_what_a_lost_worker_did_is_done_by_another(ray: Any, tmp_path: Path) -> None:
    def dies_once(number: int) -> int:
        if number == 3 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert [*OnRay(dies_once, same).run(range(6))] == [*range(6)]
    assert (tmp_path / "died").exists()


@pytest.mark.cluster
@pytest.mark.slow
def test_what_a_lost_node_did_is_done_by_another(two_nodes: Any, ray: Any) -> None:
    def where(number: int) -> tuple[int, str]:
        time.sleep(0.2)
        return number, str(ray.get_runtime_context().get_node_id())

    lost = two_nodes.add_node(num_cpus=1)
    workers = OnRay(where, same)
    assert any(lost.node_id in {node for _, node in workers.run(range(6))} for _ in range(100))
    found = []
    for number, node in workers.run(range(12)):
        found.append((number, node))
        if number == 2:
            two_nodes.remove_node(lost, allow_graceful=False)
    assert [number for number, _ in found] == [*range(12)]


@pytest.mark.cluster
def test_a_task_that_takes_its_workers_with_it_is_an_error_that_says_so(ray: Any) -> None:
    def dies(_: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(ClusterError, match=f"lost, {RETRIES + 1} in turn"):
        [*OnRay(dies, same).run([1])]


@pytest.mark.cluster
def test_errors_of_tasks_arrive_as_they_were_raised(ray: Any) -> None:
    """Whether it is the user's is told by where it was raised, which was not here."""

    def refuses(number: int) -> int:
        return load_scenario("llama3-8b-h100", {"cluster.gpus": number}).cluster.gpus

    with pytest.raises(ValueError, match=r"cluster\.gpus") as error:
        [*OnRay(refuses, same).run([-1])]
    assert is_of_the_user(error.value)
    with pytest.raises(ValueError, match="invalid literal") as error:
        [*OnRay(int, same).run(["odd"])]
    assert not is_of_the_user(error.value)


@pytest.mark.cluster
def test_nodes_that_would_give_another_answer_are_named(ray: Any, tmp_path: Path) -> None:
    here = os.getpid()
    with pytest.raises(ClusterError, match=rf"node {platform.node()} .*version"):
        [*OnRay(square, lambda: "here" if os.getpid() == here else "there").run([1])]

    def reads() -> str:
        if os.getpid() != here:
            raise ValueError("fabric.yaml: no such file")
        return "read"

    with pytest.raises(ClusterError, match=f"node {platform.node()}: fabric.yaml"):
        [*OnRay(square, reads).run([1])]


@pytest.mark.cluster
def test_nodes_that_lack_a_module_are_an_error_that_says_so(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_this_machine.py").write_text("def same(number): return number\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import of_this_machine  # type: ignore[import-not-found]

    with pytest.raises(ClusterError, match="'of_this_machine'"):
        [*OnRay(of_this_machine.same, same).run([1])]


@pytest.mark.cluster
@pytest.mark.slow
def test_nodes_without_stepsim_are_an_error_that_says_so(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    (tmp_path / "stepsim").mkdir()
    (tmp_path / "stepsim" / "__init__.py").write_text("raise ImportError('none here')\n", encoding="utf-8")
    ray.init(log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(tmp_path)}})
    try:
        with pytest.raises(ClusterError, match=r"version: .*import"):
            [*OnRay(square, same).run([1])]
    finally:
        ray.shutdown()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_search_that_is_interrupted_goes_on_where_it_was(ray: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    whole = plan(small(), fix=FIX, audit=4, jobs=1)
    half = whole.certificate.replayed // 2

    def interrupts(said: str) -> None:
        if said.startswith(f"replayed {half:,},"):
            raise KeyboardInterrupt

    cut = plan(small(), fix=FIX, audit=4, ray=True, journal=path, progress=interrupts)
    assert cut.certificate.interrupted
    before = path.read_text(encoding="utf-8").splitlines()
    assert len(before) > half
    resumed = plan(small(), fix=FIX, audit=4, ray=True, journal=path)
    assert answer(resumed) == answer(whole)
    assert resumed.remembered >= half
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[: len(before)] == before
    keys = [json.loads(line)["key"] for line in lines[1:]]
    assert len(keys) == len(set(keys))
    again = plan(small(), fix=FIX, audit=4, ray=True, journal=path)
    assert answer(again) == answer(whole)
    assert path.read_text(encoding="utf-8").splitlines() == lines


@pytest.mark.cluster
@pytest.mark.slow
def test_ctrl_c_prints_the_best_so_far_and_leaves_the_cluster(two_nodes: Any, tmp_path: Path) -> None:
    _, told, err = interrupted(tmp_path, "--ray", lines=4)
    assert told["certificate"]["interrupted"]
    assert not told["certificate"]["optimal"]
    assert told["choices"]
    assert "this is the best so far" in err
    with connected(wanted=True):
        assert [*OnRay(square, same).run([3])] == [9]


@pytest.mark.cluster
@pytest.mark.slow
def test_sweeps_and_searches_share_a_connection(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    made: list[str] = []
    init = ray.init

    def counted(**options: Any) -> Any:
        made.append("a connection")
        return init(**options)

    monkeypatch.setattr(ray, "init", counted)
    axes = {"training.seq_length": [512, 1024]}
    for replan in (False, True):
        spread = sweep(small(), axes, replan=replan, ray=True)
        assert spread.points == sweep(small(), axes, replan=replan, jobs=1).points
    assert len(made) == 2
    wishes = wishes_of(top=1, objective="step-time", deadline_s=40 * 86400.0, budget=None, fits=0.9, audit=0)
    tokens = small(training__tokens=1e12)
    sought = find("gpus", tokens, FIX, {"cluster.gpus": [8, 16]}, wishes, means=Means(ray=True))
    assert sought == find("gpus", tokens, FIX, {"cluster.gpus": [8, 16]}, wishes, means=Means(jobs=1))
    assert len(made) == 3
    monkeypatch.setattr(asked, "faster_parts", lambda _: {"twice the NIC": {"cluster.what_if.nic": 2.0}})
    faster = asked.sensitivity(small(), means=Means(ray=True))
    assert faster == asked.sensitivity(small(), means=Means(jobs=1))
    assert len(made) == 4
    assert not ray.is_initialized()


@pytest.mark.cluster
def test_an_address_that_is_none_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    done = CliRunner().invoke(app, ["plan", "llama3-8b-h100", "--ray", "--fix", "parallelism"])
    assert done.exit_code == 2
    assert "no Ray cluster at nowhere (RAY_ADDRESS): " in done.stderr


@pytest.mark.parametrize("command", [["plan"], ["sweep", "--set", "cluster.gpus=64"], ["sensitivity"]])
def test_without_ray_the_error_names_the_extra(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    name, *options = command
    done = CliRunner().invoke(app, [name, "llama3-8b-h100", *options, "--ray"])
    assert done.exit_code == 2
    assert "--ray needs ray: pip install 'stepsim[cluster]'" in done.stderr
