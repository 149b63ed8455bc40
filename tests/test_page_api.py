"""What the page's endpoints answer: the commands' own documents, refusals by field, and no process left."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_client import SMALL, TOKEN, changed, events, page
from starlette.testclient import TestClient

from stepsim.page import tasks
from stepsim.page.app import application
from stepsim.page.fields import fields
from stepsim.page.points import chosen
from stepsim.page.requests import MemoryRequest, PredictRequest, TraceRequest
from stepsim.page.tasks import TASKS
from stepsim.page.workers import PageWorkers
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.report.memory.document import memory_document
from stepsim.sim.report.trace import write_trace
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with page() as one:
        yield one


def without_clock(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs from run to run."""
    return {key: value for key, value in result.items() if key not in ("timing", "scenario")}


def as_json(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(document, default=float))


def test_the_page_predicts_what_run_does(client: TestClient) -> None:
    found = events(client, "predict", document=SMALL, topology=True, timeline=True)
    expected = simulate(load_scenario(SMALL))
    assert without_clock(found["result"]["result"]) == without_clock(as_json(expected.to_dict()))
    rows = found["schedule"]["schedule"]["rows"]
    assert sum(len(row["boxes"]) for row in rows) == len(expected.actions)
    assert all(svg["svg"].startswith("<?xml") for svg in (found["timeline"], found["topology"]))


@pytest.mark.slow
def test_a_trace_in_parts_is_that_of_run(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = simulate(tasks.scenario_asked(PredictRequest(document=SMALL)))
    reply = client.post("/api/trace", json={"document": SMALL})
    parts = [one for one in map(json.loads, reply.text.splitlines()) if one["event"] == "trace"]
    write_trace(result, tmp_path / "trace.json")
    assert "".join(one["text"] for one in parts) == (tmp_path / "trace.json").read_text()
    assert {one["ranks"] for one in parts} == {None}
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(tasks, "MOST_TRACED", 10)
    tasks.trace(TraceRequest(document=SMALL), said.append)
    write_trace(result, tmp_path / "first.json", rank=0)
    first = [one for one in said if one["event"] == "trace"]
    assert "".join(one["text"] for one in first) == (tmp_path / "first.json").read_text()
    assert {one["ranks"] for one in first} == {result.ranks[0].name}


def test_the_last_steps_are_kept() -> None:
    """What is asked beside an answer is of the same step; faults make it another one, and old ones go."""
    tasks._kept().clear()
    asked = PredictRequest(document=SMALL)
    first = tasks.step_of(asked, lambda message: None)
    assert tasks.step_of(MemoryRequest(document=SMALL), lambda message: None) is first
    struck = tasks.step_of(asked, lambda message: None, ["gpu_throttle gpu/3 slow_factor=1.5"])
    assert struck.step_time_s > first.step_time_s
    for batch in (32, 48):
        tasks.step_of(PredictRequest(document=changed(SMALL, "training.global_batch", batch)), lambda _: None)
    assert len(tasks._kept()) == tasks.KEPT
    again = tasks.step_of(asked, lambda message: None)
    assert again is not first
    assert without_clock(again.to_dict()) == without_clock(first.to_dict())


def test_a_fault_strikes_the_step(client: TestClient) -> None:
    line = "gpu_throttle gpu/3 slow_factor=1.5"
    found = events(client, "predict", document=SMALL, faults=[line])
    expected = simulate(load_scenario(SMALL), faults=[line])
    assert found["result"]["result"]["step_time_s"] == pytest.approx(expected.step_time_s)
    assert found["result"]["result"]["faults"] is not None
    who, rows = found["result"]["who"], found["result"]["result"]["faults"]["who_waits"]
    assert [who.count(number) for number in range(len(rows))] == [row["ranks"] for row in rows]
    assert rows[who[3]]["relation"] == "struck"


def test_the_page_shows_the_bill_of_memory(client: TestClient) -> None:
    found = events(client, "memory", document=SMALL)
    expected = as_json(memory_document(simulate(load_scenario(SMALL))))
    assert found["memory"]["memory"]["stages"] == expected["stages"]


@pytest.mark.slow
def test_a_plan_is_the_commands(client: TestClient) -> None:
    """Points first; the answer is that of plan(), whose replays these processes repeat."""
    keep = {"parallelism.tp": 4, "parallelism.cp": 1, "training.micro_batch": 1, "training.recompute": "none"}
    reply = client.post("/api/plan", json={"document": SMALL, "fix": keep, "top": 3, "points": 50})
    heard = [json.loads(line) for line in reply.text.splitlines()]
    order = [one["event"] for one in heard if one["event"] != "progress"]
    assert order == ["points", "points", "plan"]  # those near the own layout first
    found, points = heard[-1], next(one for one in reversed(heard) if one["event"] == "points")
    assert [one.get("preview", False) for one in heard if one["event"] == "points"] == [True, False]
    expected = plan(SMALL, fix=keep, top=3, audit=0, jobs=1).to_dict()
    assert found["plan"]["choices"] == as_json(expected)["choices"]
    assert points["legal"] == expected["space"]["legal"]
    assert len(points["number"]) == len(points["bound_s"]) == points["shown"] <= 50
    assert points["same"]["parallelism.tp"] == 4
    for choice in found["plan"]["choices"]:  # no point is slower than what was replayed of its layout
        assert choice["step_time_s"] >= min(points["bound_s"]) * (1 - 1e-9)


def test_a_plan_may_be_over_all_axes(client: TestClient) -> None:
    """As ``--axes`` says it; a word that is none is refused."""
    keep = {"parallelism.tp": 4, "parallelism.pp": 1, "training.micro_batch": 1, "training.recompute": "none"}
    own = changed(SMALL, "software", "megatron-core-2025")
    asked = {"document": own, "fix": keep, "top": 1, "points": 5}
    found = {
        axes: events(client, "plan", **asked, axes=axes)["plan"]["plan"]["space"]["legal"]
        for axes in ("layout", "all")
    }
    assert found["all"] > found["layout"] > 0
    reply = client.post("/api/plan", json={**asked, "axes": "some"})
    assert "axes" in reply.text
    assert "layout" in reply.text


def test_one_number_in_place_of_a_plan(client: TestClient) -> None:
    vary = {"training.seq_length": [1024, 2048]}
    found = events(client, "plan", document=SMALL, find="seq_length", vary=vary)["found"]["found"]
    assert {one["value"] for one in found["tried"]} <= {1024, 2048}
    assert found["value"] == 2048  # the largest of them fits


def test_a_sweep_has_every_point(client: TestClient) -> None:
    weeks = {**SMALL, "faults": {"presets": ["llama3-2024"]}, "run": {"work": "1 d"}}
    axes = ["recovery.spares.warm=0..2"]
    found = events(client, "sweep", document=weeks, axes=axes, replications=2)["sweep"]["sweep"]
    assert [one["values"]["recovery.spares.warm"] for one in found["points"]] == ["0", "1", "2"]


def test_streams_are_those_within_the_window(client: TestClient) -> None:
    result = simulate(load_scenario(SMALL))
    first, last = 0.4 * result.makespan_s, 0.42 * result.makespan_s
    found = events(client, "streams", document=SMALL, window=[first, last])["streams"]["streams"]
    expected = sum(span.end_s >= first and span.start_s <= last for span in result.iter_spans())
    assert found["whole"]
    assert sum(len(row["boxes"]) for row in found["rows"]) == expected > 0


def test_a_copy_reads_back_as_the_same(client: TestClient) -> None:
    text = events(client, "export", document=SMALL, to="yaml")["export"]["text"]
    assert load_scenario(yaml.safe_load(text)) == load_scenario(SMALL)
    assert events(client, "export", document=SMALL, to="megatron-lm")["status"] == 200
    assert events(client, "export", document=SMALL, to="nothing")["status"] == 422


@given(
    bound=st.lists(st.floats(0, 10), min_size=1, max_size=60),
    most=st.integers(0, 30),
    seed=st.integers(0, 99),
)
def test_the_points_that_are_drawn(bound: list[float], most: int, seed: int) -> None:
    """Each once, no more than wanted, and half of them the fastest that fit."""
    bound_s = np.array(bound)
    fits = np.random.default_rng(seed).random(len(bound))
    numbers = chosen(bound_s, fits, most)
    bounded = np.flatnonzero(bound_s > 0)
    assert len(set(numbers.tolist())) == len(numbers) == min(most, len(bounded))
    assert (bound_s[numbers] > 0).all()
    proposed = sorted(bound_s[i] for i in bounded if fits[i] >= 0.5)
    drawn = sorted(bound_s[i] for i in numbers if fits[i] >= 0.5)
    assert drawn[: most // 2] == proposed[: most // 2] or len(numbers) == len(bounded)


def test_the_page_simulates_weeks_as_faults_does(client: TestClient) -> None:
    weeks = {**SMALL, "faults": {"presets": ["llama3-2024"]}, "run": {"work": "1 d", "replications": 2}}
    found = events(client, "faults", document=weeks)
    assert found["status"] == 200
    assert "faults" in found


@pytest.mark.parametrize(
    ("field", "value"),
    [("parallelism.tp", 3), ("cluster.gpu", "H9000"), ("training.nothing", 1), ("model", None)],
)
def test_mistakes_are_told_by_field(client: TestClient, field: str, value: object) -> None:
    found = events(client, "predict", document=changed(SMALL, field, value))
    assert found["status"] == 422
    assert field.split(".")[0] in {one["path"].split(".")[0] for one in found["error"]["problems"]}


def test_too_much_work_is_refused(client: TestClient) -> None:
    large = changed(changed(SMALL, "training.global_batch", 4_000_000), "parallelism", {"pp": 16})
    assert events(client, "predict", document=large)["status"] == 422


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=8),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip
PATHS = st.sampled_from(
    [one["path"] for one in fields()] + ["cluster", "training", "x", "faults.events", "model.moe"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, value=VALUES)
def test_mutated_documents_end_cleanly(client: TestClient, path: str, value: object) -> None:
    reply = client.post(
        "/api/predict",
        content=json.dumps({"document": changed(SMALL, path, value), "schedule": False}),
        headers={"content-type": "application/json"},
    )
    assert reply.status_code in (200, 400, 422), reply.text
    last = json.loads(reply.text.splitlines()[-1])
    assert last["event"] in ("result", "error")
    assert "defect" not in last, last


@pytest.mark.slow
@given(
    body=st.recursive(
        VALUES, lambda inner: st.dictionaries(st.text(max_size=9), inner, max_size=3), max_leaves=6
    )
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_requests_end_cleanly(client: TestClient, body: object) -> None:
    for task in ("predict", "memory", "faults"):
        reply = client.post(
            f"/api/{task}", content=json.dumps(body), headers={"content-type": "application/json"}
        )
        assert reply.status_code in (400, 422)
        assert reply.json()["event"] == "error"


def test_the_catalogue_has_every_choice(client: TestClient) -> None:
    found = events(client, "catalogue")["catalogue"]
    for kind in ("models", "gpus", "software", "faults"):
        assert len(found[kind]) > 5
    paths = [one["path"] for one in found["fields"]]
    assert len(paths) == len(set(paths))
    assert {
        "training.seq_length",
        "parallelism.tp",
        "cluster.gpus",
        "software.kernels.flash_attention",
    } <= set(paths) | {"software.kernels.flash_attention"}
    load_scenario(found["first"])


def test_many_ask_at_once_and_no_process_is_left() -> None:
    before = {one.pid for one in multiprocessing.active_children()}
    pool = PageWorkers(size=2)
    client = TestClient(application(TOKEN, pool), base_url="http://127.0.0.1:8710")
    headers = {"x-stepsim-token": TOKEN}
    with client, ThreadPoolExecutor(50) as threads:
        asked = [
            threads.submit(
                client.post, "/api/predict", json={"document": SMALL, "schedule": False}, headers=headers
            )
            for _ in range(50)
        ]
        statuses = [one.result().status_code for one in asked]
        pids = {one.pid for one in multiprocessing.active_children() if one.pid} - before
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 2
    assert pids
    assert not any(alive(pid) for pid in pids)


def test_a_worker_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = TASKS["predict"]
    monkeypatch.setitem(TASKS, "predict", replace(usual, limit_s=0.0))
    with page(size=1) as client:
        assert events(client, "predict", document=SMALL)["status"] == 504
        monkeypatch.setitem(TASKS, "predict", usual)
        assert events(client, "predict", document=SMALL)["status"] == 200


def alive(pid: int) -> bool:
    """Whether a process runs, some time after it should have ended."""
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
