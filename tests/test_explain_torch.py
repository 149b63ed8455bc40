"""A real run on CPUs with gloo, traced by torch's profiler and explained end to end, beside its scenario."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import traced_job
import yaml
from small_jobs import command, told

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("traced-job")]  # which runs once


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trace of each process."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("traces")
    script = [sys.executable, traced_job.__file__]
    runs = [
        subprocess.Popen([*script, str(rank), str(folder)], stderr=subprocess.DEVNULL)
        for rank in range(traced_job.WORLD)
    ]
    assert [run.wait(timeout=300) for run in runs] == [0] * traced_job.WORLD
    return folder


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["traceEvents"]
    return found


def test_steps_are_those_of_the_host(traces: Path) -> None:
    found = told(traces)
    assert [trace["rank"] for trace in found["traces"]] == [0, 1]
    for trace in found["traces"]:
        assert trace["device"] == "CPU"
        marks = {
            e["name"]: e["dur"] * 1e-6
            for e in events(Path(trace["file"]))
            if e.get("cat") == "user_annotation" and str(e["name"]).startswith("ProfilerStep#")
        }
        assert len(marks) == traced_job.STEPS
        took = {f"ProfilerStep#{step['name']}": step["step_s"] for step in trace["steps"]}
        assert took == pytest.approx(marks, abs=1e-6)
    parts = sum(part["measured_s"] for part in found["parts"])
    assert parts == pytest.approx(found["step_s"], rel=1e-6)


def test_ops_are_those_of_the_model(traces: Path) -> None:
    """Forward: a GEMM a layer; backward: two, but for the first layer's inputs; two messages a layer and a
    barrier.
    """
    layers = traced_job.LAYERS
    counts = {one["kind"]: one["measured"] for one in told(traces)["ops"]}
    assert counts["GEMM"] == layers + 2 * layers - 1
    assert counts["communication"] == 2 * layers + 1
    assert counts["optimizer"] > 0
    assert counts["pointwise"] > layers


def test_the_process_that_sleeps_is_found(traces: Path) -> None:
    """Rank 0 waits for the other's first message while that sleeps, and is hardly waited for."""
    ranks = {one["rank"]: one for one in told(traces)["ranks"]}
    assert ranks[1]["caused_s"] > 2 * ranks[0]["caused_s"]
    assert ranks[0]["waited_s"] > 2 * ranks[1]["waited_s"]


def test_a_trace_beside_its_scenario_has_a_prediction_for_every_part(traces: Path, tmp_path: Path) -> None:
    """Two ranks of data parallelism: messages are dp's, and every part has a prediction beside it."""
    job = {
        "model": {
            "num_layers": traced_job.LAYERS,
            "hidden_size": traced_job.HIDDEN,
            "num_attention_heads": 4,
            "ffn_hidden_size": traced_job.HIDDEN,
            "vocab_size": 512,
            "mlp": "gelu",
        },
        "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 2},
        "parallelism": {"tp": 1, "pp": 1},
        "training": {"global_batch": 2, "micro_batch": 1, "seq_length": 512, "precision": "fp32"},
        "software": "torchtitan-2024",
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    found = told(traces, path)
    parts = {part["name"]: part for part in found["parts"]}
    assert "exposed dp" in parts
    differences = sum(part["difference_s"] for part in found["parts"])
    assert differences == pytest.approx(found["step_s"] - found["predicted_step_s"], rel=1e-6)
    assert found["step_s"] > found["predicted_step_s"]
    assert command("explain", traces, path, "--waterfall", tmp_path / "fall.svg")
