"""What the page's endpoints answer: the commands' own documents, refusals by field, and no process left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_client import SMALL, TOKEN, changed, events, page
from starlette.testclient import TestClient

from stepsim.page.app import application
from stepsim.page.fields import fields
from stepsim.page.tasks import TASKS
from stepsim.page.workers import PageWorkers
from stepsim.sim.report.memory.document import memory_document
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


def test_predict_is_run(client: TestClient) -> None:
    found = events(client, "predict", document=SMALL, topology=True, timeline=True)
    expected = simulate(load_scenario(SMALL))
    assert without_clock(found["result"]["result"]) == without_clock(as_json(expected.to_dict()))
    rows = found["schedule"]["schedule"]["rows"]
    assert sum(len(row["boxes"]) for row in rows) == len(expected.actions)
    assert all(svg["svg"].startswith("<?xml") for svg in (found["timeline"], found["topology"]))


def test_a_fault_strikes_the_step(client: TestClient) -> None:
    line = "gpu_throttle gpu/3 slow_factor=1.5"
    found = events(client, "predict", document=SMALL, faults=[line])
    expected = simulate(load_scenario(SMALL), faults=[line])
    assert found["result"]["result"]["step_time_s"] == pytest.approx(expected.step_time_s)
    assert found["result"]["result"]["faults"] is not None


def test_memory_is_memory(client: TestClient) -> None:
    found = events(client, "memory", document=SMALL)
    expected = as_json(memory_document(simulate(load_scenario(SMALL))))
    assert found["memory"]["memory"]["stages"] == expected["stages"]


def test_faults_are_weeks(client: TestClient) -> None:
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
        pids = pool.pids
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 2
    assert pids
    assert not any(alive(pid) for pid in pids)


def test_a_worker_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = TASKS["predict"]
    monkeypatch.setitem(TASKS, "predict", replace(usual, limit_s=1e-4))
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
