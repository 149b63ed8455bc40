"""Traces that others published, each read or refused for its true reason, by the commands that users type."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest
from typer.testing import CliRunner

from stepsim.calibration.readers.read import read_measured
from stepsim.cli.faults import slowdowns_of
from stepsim.cli.main import app
from stepsim.sim.figures import seconds
from stepsim.sim.reliability.cases.explained import traces

pytestmark = pytest.mark.xdist_group("traces")  # each is explained once

HTA = "kineto/HolisticTraceAnalysis__tests__data__"
LENS = "kineto/TraceLens__tests__traces__"
KINETO = {
    f"{HTA}nccl_parser_config__nccl_data.json.gz": ("A100-SXM4-40GB", 3),
    f"{HTA}ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": ("V100-SXM2-32GB", 5),
    f"{HTA}trace_filter__sampled_rank-0.json.gz": (None, 2),
    f"{HTA}with_gpu_user_annotation__step_based_trace_2543932.json.gz": (None, 0),
    f"{LENS}b200__eager_trace.json.gz": ("B200-SXM-180GB", 0),
    f"{LENS}h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": ("H100-SXM5-80GB", 1),
    f"{LENS}h100__gaunernst_bert-small-uncased__1016001.json.gz": ("H100-SXM5-80GB", 1),
    f"{LENS}mi300__resnet_act_checkpoint.json.gz": ("MI300X", 3),
}
"""By file, the GPU of the catalogue (None: it has no such GPU) and the marked steps."""
REFUSED = {
    "chakra/chakra__tests__data__1.0.2-chakra.0.0.4.tgz": "execution trace",
    "chakra/chakra__tests__data__feeder_tests_trace.tar.gz": "execution trace of Chakra",
    "failures/stepfun__fault_statistics.json": "summary of faults",
    "failures/stepfun__fault_trace.json": "record of faults",
    "straggler/StragglerAnalysis__data__ms-ST.json": "what-if analysis",
    "straggler/StragglerAnalysis__data__mw-ST.json": "what-if analysis",
    "straggler/StragglerAnalysis__data__result-ST.json": "what-if analysis",
    "straggler/meta-AR.yaml": "layout of a logged job",
    "straggler/meta-ST.yaml": "layout of a logged job",
}
LOGS = {
    "straggler/StragglerAnalysis__data__trace-AR.parquet": (16, 44),
    "straggler/StragglerAnalysis__data__trace-ST.parquet": (8, 32),
}
"""By log, its workers (one of each tensor-parallel group) and steps."""


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    found = shared / "data" / "traces"
    if not found.is_dir():
        pytest.skip(f"no traces of others at {found}")
    return found


def command(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@cache
def explained(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("explain", path, "--json"))
    return found


@cache
def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def test_every_file_is_in_the_table(folder: Path) -> None:
    files = {str(path.relative_to(folder)) for path in folder.glob("*/*")}
    assert files == {*KINETO, *REFUSED, *LOGS}


def verdicts(folder: Path, file: str) -> tuple[str, str]:
    """What stepsim explain and the reader of stepsim calibrate fit say of a file."""
    path = folder / file
    if file in REFUSED:
        step = " ".join(command("explain", path, code=2).split()).removeprefix("stepsim: ")
    else:
        found = explained(path)
        steps = len(found["traces"][0]["steps"])
        step = f"a step of {seconds(found['step_s'])} (ranks: {len(found['ranks'])}, steps: {steps})"
    try:
        (measured,), _ = read_measured([path])
        sizes = len(measured.kernels), len(measured.collectives)
        fit = f"kernels: {sizes[0]}, collectives: {sizes[1]} ({measured.gpu})"
        if not any(sizes):
            fit = f"nothing to fit: {'; '.join(measured.passed_over)}"
    except ValueError as error:
        fit = str(error)
    step, fit = (said.replace(f"{path}: ", "").replace(f"{path} is ", "") for said in (step, fit))
    return step, "the same" if fit == step else fit


@pytest.mark.slow
def test_the_page_says_what_the_readers_do(folder: Path, root: Path) -> None:
    """docs/traces.md lists every file, read or refused for its true reason."""
    page = (root / "docs/traces.md").read_text()
    rows = re.findall(r"^\| `(\w+/[^`]+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    written = {file: (step, fit) for file, step, fit in rows}
    assert written == {file: verdicts(folder, file) for file in {*KINETO, *LOGS, *REFUSED}}


@pytest.mark.slow
@pytest.mark.parametrize("file", KINETO)
def test_steps_take_what_the_host_marked(folder: Path, file: str) -> None:
    """The annotations of the host alone: copies of them on the GPU's rows are other spans."""
    gpu, steps = KINETO[file]
    found = explained(folder / file)
    marks = {
        e["name"]: e["dur"] * 1e-6
        for e in events(folder / file)
        if re.match(r"ProfilerStep#\d+$", str(e.get("name"))) and e.get("cat") != "gpu_user_annotation"
    }
    (trace,) = found["traces"]
    assert trace["gpu"] == gpu
    assert len(marks) == steps
    if marks:
        told = {f"ProfilerStep#{step['name']}": step["step_s"] for step in trace["steps"]}
        assert told == pytest.approx(marks, abs=1e-6)
        assert found["step_s"] == pytest.approx(median_low(marks.values()), abs=1e-6)
    assert sum(part["measured_s"] for part in found["parts"]) == pytest.approx(found["step_s"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file, (_, steps) in KINETO.items() if not steps])
def test_without_marks_the_whole_trace_is_the_step(folder: Path, file: str) -> None:
    rows = [
        (e["ts"], e["ts"] + e["dur"], e["cat"])
        for e in events(folder / file)
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    found = explained(folder / file)
    span_s = (max(end for _, end, _ in rows) - min(begin for begin, _, _ in rows)) * 1e-6
    assert found["step_s"] == pytest.approx(span_s, abs=1e-6)
    told = sum(ops["measured"] for ops in found["ops"])
    assert told == sum(end > begin for begin, end, _ in rows)


@pytest.mark.parametrize("file", REFUSED)
def test_what_is_no_trace_is_refused_for_what_it_is(folder: Path, file: str) -> None:
    assert REFUSED[file] in " ".join(command("explain", folder / file, code=2).split())


@pytest.mark.slow
@pytest.mark.parametrize("file", LOGS)
def test_logs_of_operations_are_steps(folder: Path, file: str) -> None:
    pytest.importorskip("pyarrow")
    workers, steps = LOGS[file]
    found = explained(folder / file)
    assert len(found["ranks"]) == workers
    assert {len(trace["steps"]) for trace in found["traces"]} == {steps}
    names = {part["name"] for part in found["parts"]}
    assert names >= {"kernels", "optimizer", "exposed pp", "exposed dp"}


@pytest.mark.slow
def test_what_if_figures_are_those_of_the_authors(folder: Path) -> None:
    """Lin et al.'s own replay of ST: S by its mean steps, M_W and M_S as they are."""
    pytest.importorskip("pyarrow")
    place = folder / "straggler"
    log, layout = place / "StragglerAnalysis__data__trace-ST.parquet", place / "meta-ST.yaml"
    found = json.loads(command("stragglers", log, "--layout", layout, "--json"))
    worst, stage = (
        json.loads((place / f"StragglerAnalysis__data__{name}-ST.json").read_text()) for name in ("mw", "ms")
    )
    assert found["replayed_s"] == pytest.approx(worst["tori"], rel=0.01)
    assert found["ideal_s"] == pytest.approx(worst["tideal"], rel=0.01)
    assert found["slowdown"] == pytest.approx(worst["tori"] / worst["tideal"], rel=0.01)
    assert found["worst_workers_share"] == pytest.approx(worst["Mw"], rel=0.01)
    assert found["last_stage_share"] == pytest.approx(stage["Ms"], rel=0.01)
    assert max(found["by_stage"], key=found["by_stage"].get) == "3"  # ST: uneven stages, the last the longest


@pytest.mark.slow
def test_every_part_of_the_authors_analysis_is_found(folder: Path) -> None:
    """S by stage, by replica and by kind of operation (S_t) of ST; ends of messages are told apart by us."""
    pytest.importorskip("pyarrow")
    place = folder / "straggler"
    found = json.loads(command("stragglers", place / "StragglerAnalysis__data__trace-ST.parquet", "--json"))
    theirs = json.loads((place / "StragglerAnalysis__data__result-ST.json").read_text())
    assert found["slowdown"] == pytest.approx(theirs["blocking_slowdown"], rel=1e-4)
    assert found["by_stage"] == pytest.approx(theirs["blocking_decompose_by_stage"], rel=1e-4)
    replicas = theirs["blocking_decompose_by_dp_rank"]
    assert found["by_replica"] == pytest.approx([replicas["0"], replicas["1"]], rel=1e-4)
    kinds = {kind: s for kind, s in theirs["blocking_decompose_by_optype"].items() if "pp-comm" not in kind}
    assert {kind: found["by_kind"][kind] for kind in kinds} == pytest.approx(kinds, rel=1e-4)
    for theirs_of, ours in (("forward-pp-comm", "forward-recv"), ("backward-pp-comm", "backward-recv")):
        assert found["by_kind"][ours] == pytest.approx(
            theirs["blocking_decompose_by_optype"][theirs_of], rel=1e-4
        )


@pytest.mark.slow
def test_the_worker_that_was_slowed_is_found(folder: Path, tmp_path: Path) -> None:
    """AR: one worker of 16 slowed on purpose, of which each operation's usual time knows the culprit."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = folder / "straggler" / "StragglerAnalysis__data__trace-AR.parquet"
    picture = tmp_path / "map.svg"
    said = ("stragglers", path, "--layout", folder / "straggler" / "meta-AR.yaml", "--heat-map", picture)
    found = json.loads(command(*said, "--json"))
    table = pd.read_parquet(path)
    passes = table[table.optype == "forward-compute"].groupby(["dp_rank", "stage"]).duration.median()
    slowest = passes.idxmax()
    assert passes.max() > 2 * passes.median()
    worst = found["worst_worker"]
    assert (worst["replica"], worst["stage"]) == slowest
    assert worst["slowdown"] > 1.5
    assert found["worst_workers_share"] == pytest.approx(1.0, abs=0.02)
    assert "<svg" in picture.read_text()


@pytest.mark.slow
def test_published_slowdowns_are_found_in_their_logs(folder: Path, tmp_path: Path) -> None:
    """Case 15 of docs/reliability.md, of the logs that are at hand."""
    pytest.importorskip("pyarrow")
    found = {row.title: row.verdict for row in traces(slowdowns_of(folder / "straggler"))}
    assert [verdict for title, verdict in found.items() if "AR" in title or "ST" in title] == ["ok", "ok"]
    assert set(found.values()) == {"ok", "not run"}
    assert next(traces({"AR": 1.8})).verdict == "missed"
    with pytest.raises(ValueError, match=str(tmp_path)):
        slowdowns_of(tmp_path)
    assert "--cases" in command("faults", "--straggler-logs", tmp_path, code=2)


def test_a_layout_of_another_job_is_refused(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    place = folder / "straggler"
    log = place / "StragglerAnalysis__data__trace-ST.parquet"
    said = " ".join(command("stragglers", log, "--layout", place / "meta-AR.yaml", code=2).split())
    assert "dp_size" in said
