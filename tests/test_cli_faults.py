"""``stepsim faults`` as a user meets it: the fixed JSON interface, files, sweeps, exit codes."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import drawn
import pytest
from typer.testing import CliRunner

from stepsim.cli.main import app

DOCUMENT = """
title: A small campaign
step_time: 10 s
cluster: {gpus: 512, gpus_per_node: 8}
faults:
  processes:
    - {kind: gpu_fatal, rate_per_unit_day: 0.01}
    - {kind: software_crash, mtbf: 12 h}
    - {kind: gpu_throttle, scope: node, rate_per_unit_day: 0.02, slow_factor: 1.3, duration: 3 h}
checkpoint: {storage: {every: 30 min, mode: blocking, stall: 1 min, load: 30 s}}
recovery: {spares: {warm: 2, cold: 4}}
run: {work: 5 d, replications: 6}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(DOCUMENT)
    return str(path)


def ran(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["faults", *words])
    assert done.exit_code == code, done.output
    return done.output


def document(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["faults", *words, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def test_the_json_document_keeps_its_keys_and_intervals(scenario: str) -> None:
    found = document(scenario)
    assert found["replications"] == 6
    assert found["ettr"]["low"] < found["ettr"]["mean"] < found["ettr"]["high"]
    assert found["wall_s"]["mean"] > 5 * 86400
    assert math.isclose(sum(found["waterfall"].values()), 1.0, rel_tol=1e-9)
    assert found["waterfall"]["useful"] == pytest.approx(found["ettr"]["mean"])
    assert math.isclose(sum(found["badput"].values()), 1.0, rel_tol=1e-9)
    assert {"gpu_fatal", "software_crash", "gpu_throttle"} == set(found["failures"])
    assert found["finish_s"]["p10"] <= found["finish_s"]["p50"] <= found["finish_s"]["p90"]
    assert found["recovery_s"]["mean"] > 0
    assert found["optimal_interval"] is None
    assert found["what_if"] == []


def test_tables_show_ettr_waterfall_and_sources(scenario: str) -> None:
    text = ran(scenario)
    shown = (
        "A small campaign",
        "ETTR",
        "Where the time goes",
        "recompute",
        "gpu_fatal",
        "Rests on",
        "finished",
    )
    for words in shown:
        assert words in text


@pytest.mark.slow
def test_what_if_leaves_out_each_kind_of_fault(scenario: str) -> None:
    found = document(scenario, "--what-if")
    names = {one["name"]: one for one in found["what_if"]}
    assert {"no gpu_fatal", "no software_crash", "no gpu_throttle"} <= set(names)
    assert names["no software_crash"]["ettr_gain"]["mean"] > 0
    assert names["restart twice as fast"]["about"] == "mitigation"
    best = found["optimal_interval"]
    assert best["formula_s"] == pytest.approx(math.sqrt(2 * 60 * best["mtbf_s"]), rel=0.1)
    assert "What to fix first" in ran(scenario, "--what-if", "-n", "1")


def test_one_more_fault_and_another_seed(scenario: str) -> None:
    one = document(scenario, "--fault", "hang at=3h", "--set", "faults.processes=[]")
    assert one["failures"] == {"hang": 1.0}
    assert document(scenario, "--seed", "8")["ettr"] != document(scenario)["ettr"]
    assert "does not exist" in ran(scenario, "--fault", "gpu_fatal gpu/9999", code=2)


def test_the_event_log_is_a_trace(scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    ran(scenario, "--events", str(path))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) > 10
    times = [float(row["time"]) for row in rows]
    assert times == sorted(times)
    traced = ("--set", "faults.processes=[]", "--set", f"faults.events=[{{trace: {path}}}]")
    again = document(scenario, *traced, "-n", "1")
    assert sum(again["failures"].values()) == pytest.approx(len(rows), rel=0.05)


@pytest.mark.slow
def test_a_page_of_twenty_replications_is_small(scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "weeks.html"
    ran(scenario, "-n", "20", "--set", "run.work=2d", "--html", str(path))
    assert 10_000 < path.stat().st_size < 1_000_000


@pytest.mark.slow
def test_a_sweep_of_two_fields_has_a_point_for_each_pair(scenario: str, tmp_path: Path) -> None:
    swept = "checkpoint.storage.every=10min..2h/3"
    found = document(scenario, "--sweep", swept, "recovery.spares.warm=0,4")
    assert [axis["field"] for axis in found["axes"]] == ["checkpoint.storage.every", "recovery.spares.warm"]
    assert len(found["points"]) == 6
    assert found["best"]["recovery.spares.warm"] in ("0", "4")
    picture = tmp_path / "sweep.svg"
    text = ran(scenario, "--sweep", swept, "--sweep", "recovery.spares.warm=0,4", "--svg", str(picture))
    assert "best:" in text
    assert len(drawn.hints(picture.read_text())) == 6  # a cell of the map for each pair
    ran(scenario, "--sweep", swept, "--svg", str(picture))
    assert len(drawn.hints(picture.read_text())) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give one SCENARIO"),
        (("llama3-8b-h100",), "has no block faults"),
        (("llama3-8b-hundred",), "no shipped scenario"),
        (("{}", "--html", "x.pdf"), "must end in .html"),
        (("{}", "--svg", "x.svg"), "--picture draws a sweep"),
        (("{}", "--sweep", "run.work=1d..2d/2", "--what-if"), "--what-if does not go with --sweep"),
        (("{}", "--sweep", "checkpoint.storage.evry=1min..2min/2"), "Did you mean every"),
        (("{}", "a=1..2"), "ranges follow --sweep"),
        (("{}", "--set", "faults.scale=-1"), "faults.scale"),
    ],
)  # fmt: skip
def test_mistakes_end_with_exit_code_2_and_the_field(
    words: tuple[str, ...], told: str, scenario: str
) -> None:
    assert told in ran(*(scenario if word == "{}" else word for word in words), code=2)


def test_a_run_that_gets_nowhere_is_exit_code_1(scenario: str) -> None:
    text = ran(
        scenario, "--set", "recovery={restart_cost: 1 h, crash_loop: {max_no_progress: 5}}",
        "--set", "faults.processes=[{kind: software_crash, mtbf: 5 min}]", code=1,
    )  # fmt: skip
    assert "NO PROGRESS" in text


@pytest.mark.slow
def test_the_html_page_is_written_whole(scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    ran(scenario, "-n", "3", "--html", str(path))
    text = path.read_text()
    shown = (
        "Fix first:",
        "What each kind of fault costs",
        "Where the time goes",
        "How one run goes",
        "Rests on",
    )
    for words in shown:
        assert words in text
    assert "http" not in text
    assert "<script" not in text
    assert len(text) < 300_000
    assert text.count("<svg") == text.count("</svg>") >= 6
    assert "A small campaign" in text


@pytest.mark.slow
def test_a_campaign_does_not_load_pandas(scenario: str) -> None:
    code = f"""
import sys
from stepsim.cli.main import app
try:
    app(["faults", {scenario!r}, "-n", "1"])
except SystemExit as end:
    assert not end.code
print("LOADED", "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "LOADED False" in done.stdout


@pytest.mark.slow
def test_the_picture_of_a_shipped_campaign_has_its_whole_name(tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    short = ("--set", "run.horizon=1h", "--sweep", "recovery.spares.warm=0,4", "--svg", str(picture))
    ran("llama3.1-405b-16k", "-n", "1", *short)
    assert any(text.endswith(": llama3.1-405b-16k") for text in drawn.words(picture.read_text()))


@pytest.mark.slow
def test_the_shipped_campaign_has_as_many_failures_as_published() -> None:
    found = document("llama3.1-405b-16k", "-n", "2", "--set", "run.horizon=54d")
    assert found["wall_s"]["mean"] == pytest.approx(54 * 86400)
    assert 350 < sum(found["failures"].values()) < 580
    assert 0.9 < found["ettr"]["mean"] < 0.94  # published: higher than 90 %
    assert found["goodput_tokens_per_s"] > 2e6
    storage = found["checkpoints"][0]
    assert storage["durable_after_s"] == pytest.approx(405.85e9 * 14 / 100e9, rel=0.01)
