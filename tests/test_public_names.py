"""What the package offers at its top, and how a result shows itself."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from results import fake_result
from small_scenarios import scenario as small_scenario
from typer.testing import CliRunner

import stepsim
from stepsim.cli.list import ListedKind
from stepsim.cli.main import app
from stepsim.hardware.catalogue import UnknownName
from stepsim.hardware.collective_kinds import KINDS, kind_called
from stepsim.hardware.gpus import get_gpu, gpu_called, gpu_names
from stepsim.sim.network.place import SCHEDULED


def out(*arguments: str) -> str:
    return CliRunner().invoke(app, [*arguments]).output


def test_errors_have_public_names() -> None:
    with pytest.raises(stepsim.ScenarioError) as refusal:
        stepsim.load_scenario("llama3-8b-h100", {"parallelism.tp": 3, "cluster.gpu": "H1000"})
    assert {problem.path for problem in refusal.value.problems} >= {"cluster.gpu"}
    assert issubclass(stepsim.NotSupported, ValueError)
    assert set(stepsim.__all__) <= set(dir(stepsim))


def test_a_result_is_one_short_line() -> None:
    result = stepsim.simulate(stepsim.load_scenario("llama3-8b-h100"))
    assert "llama3-8b-h100" in repr(result)
    assert f"{result.step_time_s:.4g} s" in repr(result)
    long = stepsim.load_scenario("llama3-8b-h100", {"name": "x" * 100_000})
    for shown in (result, replace(result, scenario=None, memory=()), replace(result, scenario=long)):
        assert len(repr(shown)) < 300
        assert "\n" not in repr(shown)


def test_a_result_in_a_notebook_and_as_a_row() -> None:
    result = stepsim.simulate(stepsim.load_scenario("llama3-8b-h100", {"name": "<b>x"}))
    html = result._repr_html_()
    assert "&lt;b&gt;x" in html
    assert html.count("<tr>") <= 10
    assert fake_result()._repr_html_().startswith("<table>")
    row = result.to_frame()
    assert len(row) == 1
    assert row["step_time_s"][0] == result.step_time_s


def test_what_commands_do_as_calls() -> None:
    compared = stepsim.compare(
        "llama3-8b-h100", stepsim.load_scenario("llama3-8b-h100", {"parallelism.tp": 4})
    )
    told = json.loads(
        out("compare", "llama3-8b-h100", "llama3-8b-h100", "--set-b", "parallelism.tp=4", "--json")
    )
    assert stepsim.document(compared) == told
    weeks = stepsim.faults("llama3.1-405b-16k", ["run.horizon=1d"], replications=1)
    assert 0 <= stepsim.document(weeks)["ettr"]["mean"] <= 1
    result = stepsim.simulate(stepsim.load_scenario("llama3-8b-h100"))
    assert stepsim.document(result) == result.to_dict()
    with pytest.raises(TypeError):
        stepsim.document(3)
    with pytest.raises(ValueError, match="planets"):
        stepsim.list_names("planets")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_trace_is_explained_by_a_call(tmp_path: Any) -> None:
    trace = tmp_path / "trace.json"
    assert "trace" in out("run", "llama3-8b-h100", "--trace", str(trace))
    told = stepsim.document(stepsim.explain([trace], "llama3-8b-h100"))
    assert told["predicted_step_s"] == pytest.approx(told["step_s"], rel=0.01)
    (tmp_path / "none.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"none\.json"):
        stepsim.explain([trace, tmp_path / "none.json"])


PUBLIC = (
    "NotSupported Result Scenario ScenarioError __version__ compare document explain faults list_names"
    " load_scenario plan sensitivity simulate sweep"
)


def test_public_names_are_only_ever_added() -> None:
    """A name leaves after a minor version in which it warned (CONTRIBUTING.md)."""
    assert stepsim.__all__ == PUBLIC.split()


def test_a_result_as_a_document_is_what_the_command_prints() -> None:
    result = stepsim.simulate(stepsim.load_scenario("llama3-8b-h100"))
    document = result.to_dict()
    assert json.loads(json.dumps(document)) == document
    printed = orjson.loads(out("run", "llama3-8b-h100", "--json"))
    assert {**printed, "timing": None} == {**document, "timing": None}
    assert fake_result().to_dict()["ranks"] == 64


def test_citations_are_shown_on_request() -> None:
    short, long = out("run", "llama3-8b-h100"), out("run", "llama3-8b-h100", "--assumptions")
    assert "sustained clock" in long
    assert "sustained clock" not in short
    assert short.count("OUTSIDE") == long.count("OUTSIDE")
    assert "stated" in long
    assert "--assumptions" in short
    assert len(long) > len(short)


@pytest.mark.parametrize("name", gpu_names())
def test_a_gpu_goes_by_its_key_in_any_spelling(name: str) -> None:
    for spelling in (name, name.lower(), name.replace("-", " "), f"NVIDIA {name}", name.replace("-", "_")):
        assert gpu_called(spelling) == get_gpu(spelling).name == name


@pytest.mark.parametrize(
    ("short", "key"),
    [
        ("H200", "H200-SXM-141GB"), ("GB200", "GB200-NVL72"), ("B200", "B200-SXM-180GB"),
        ("mi300x", "MI300X"), ("h100", "H100-SXM5-80GB"), ("rtx 4090", "RTX-4090"),
        ("4090", "RTX-4090"), ("MI250X", "MI250X-GCD"),
        ("H800", "H800-SXM5-80GB"), ("A100-40GB", "A100-SXM4-40GB"), ("h100 pcie", "H100-PCIe-80GB"),
        ("H100-SXM5", "H100-SXM5-80GB"), ("GB300", "GB300-NVL72"),
    ],
)  # fmt: skip
def test_a_short_name_is_enough_where_only_one_has_it(short: str, key: str) -> None:
    scenario = stepsim.load_scenario(
        "llama3-8b-h100", {"cluster.gpu": short, "software.kernels.attention": "fa2"}
    )
    assert scenario.cluster.gpu == key


@pytest.mark.parametrize("name", ["A100", "A100-80GB", "H100-SXM"])
def test_an_ambiguous_name_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(stepsim.ScenarioError) as refusal:
        stepsim.load_scenario("llama3-8b-h100", {"cluster.gpu": name})
    (problem,) = refusal.value.problems
    candidates = [key for key in gpu_names() if key in problem.message.replace(",", "").split()]
    assert len(candidates) > 1
    assert all(key.startswith(name[:4]) for key in candidates)


@pytest.mark.parametrize("name", ["", "-", "B20", "200", "MI300A", "H100-XYZ", "NVIDIA", "GB200-NVL36"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownName) as refusal:
        get_gpu(name)
    assert (refusal.value.what, refusal.value.name) == ("GPU", name)


def test_an_unknown_gpu_is_told_beside_everything_else() -> None:
    wrong: dict[str, Any] = {
        "cluster.gpu": "H1000",
        "cluster.gpus": "many",
        "cluster.interconnect": "carrier-pigeon",
        "training.seq_length": 0,
        "model.num_layers": True,
        "parallelism.zero": 7,
    }
    with pytest.raises(stepsim.ScenarioError) as refusal:
        stepsim.load_scenario("llama3-8b-h100", wrong)
    assert {problem.path for problem in refusal.value.problems} >= set(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_collectives_go_by_any_spelling(kind: str) -> None:
    whole = SCHEDULED.get(kind, kind)
    for name in (kind, whole, whole.replace("_", "-"), whole.replace("_", ""), whole.upper(), f"{kind}_perf"):
        assert kind_called(name) == kind
    with pytest.raises(UnknownName) as refusal:
        kind_called(f"{kind}x")
    assert refusal.value.nearest in KINDS


def test_gpus_are_listed_with_their_figures() -> None:
    (line,) = (line for line in out("list", "gpus").splitlines() if line.startswith("MI300X"))
    assert line.split() == ["MI300X", "206", "5,300", "1,307", "2,615", "448", "x8", "6.00", "own"]
    one = out("list", "gpus", "mi300x")
    assert "Infinity Fabric 448 GB/s" in one
    assert "206.2 GB" in one
    told = CliRunner().invoke(app, ["list", "gpus", "MI300Y"])
    assert (told.exit_code, "MI300X" in told.stderr) == (2, True)


@pytest.mark.parametrize(
    "words", [(kind,) for kind in ListedKind] + [("gpus", name) for name in ("B200", "VR200")]
)
def test_lists_are_no_wider_than_a_terminal(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepsim.cli.list.terminal_columns", lambda: 80)
    assert max(map(len, out("list", *words).splitlines())) <= 80


def test_ways_out_of_uneven_stages() -> None:
    with pytest.raises(stepsim.ScenarioError) as refusal:
        stepsim.load_scenario(
            "deepseek-v3-2048-h800", {"parallelism.stage_split": "uniform", "model.num_layers": 61}
        )
    (problem,) = (one for one in refusal.value.problems if one.path == "parallelism.stage_split")
    assert "uneven_unspecified" in problem.message
    assert "stage_split: [" in problem.message


def test_a_missing_file_is_said_plainly() -> None:
    assert "there is no file of this name" in out("validate", "absent.yaml")
    assert "Errno" not in out("validate", "absent.yaml")


@pytest.mark.parametrize("lines", [(), ("gpu_throttle gpu/1 slow_factor=1.3",)])
def test_results_go_from_process_to_process(lines: tuple[str, ...]) -> None:
    found = stepsim.simulate(small_scenario(pp=2, dp=16, schedule="1f1b"), faults=lines)
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict()
    assert again.spans.equals(found.spans)
    assert again.loads_source() == found.loads_source()


def test_explain_takes_one_trace_by_itself_and_none_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trace"):
        stepsim.explain([])
    with pytest.raises(ValueError, match=r"missing\.json"):
        stepsim.explain(str(tmp_path / "missing.json"))


def test_numbers_that_are_none_are_refused_in_python_as_on_the_command_line() -> None:
    with pytest.raises(ValueError, match="jobs 0: "):
        stepsim.sweep("llama3-8b-h100", {"training.micro_batch": [1]}, jobs=0)
    with pytest.raises(ValueError, match="replications -1: "):
        stepsim.faults("llama3-8b-h100", ["faults.presets=[llama3-2024]"], replications=-1)


def test_mistakes_of_files_and_flags_are_told_as_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text("extends: llama3-8b-h100\n")
    (tmp_path / "empty.json").write_text("{}")
    assert "but one called 'train.yaml'" in out("run", "train")
    assert out("run", "").startswith("stepsim: ")
    assert "nothing in it" in out("validate", "empty.json")
    assert "does not end in .csv" in out("stragglers", "empty.json")
    assert "there is no fault to leave out" in out("run", "train.yaml", "--each-fault")
