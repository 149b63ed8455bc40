"""The command line: what it prints where, which files it writes, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from published_cases import first_cases
from typer.main import get_command
from typer.testing import CliRunner
from validation_cases import CASE_KEYS, case_document, write_cases

from stepsim.cli.commands import application
from stepsim.cli.main import app
from stepsim.cli.output import output_file

SMALL = """
model:
  num_layers: 4
  hidden_size: 1024
  num_attention_heads: 16
  ffn_hidden_size: 4096
  vocab_size: 32000
  mlp: gelu
cluster: { gpu: H100-SXM5-80GB, gpus: 8 }
parallelism: { tp: 2, pp: 2 }
training: { global_batch: 8, micro_batch: 1, seq_length: 2048, precision: bf16 }
software: megatron-core-2024
"""

RUN_KEYS = {
    "step_time_s",
    "mfu",
    "mfu_causal",
    "hfu",
    "tokens_per_second_per_gpu",
    "bubble_fraction",
    "exposed_communication_s",
    "memory_bytes_per_stage",
    "peak_memory_bytes",
    "fits",
    "fit_probability",
    "assumptions",
    "timing",
    "classes",
    "events",
}
"""Keys that `run --json` keeps from version to version; it may have more."""


class Ran:
    """What a command left: exit code, stdout, stderr."""

    def __init__(self, *arguments: object) -> None:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A scenario that takes milliseconds."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_run_json_keeps_its_interface(small: Path) -> None:
    ran = Ran("run", small, "--json")
    assert ran.code == 0
    assert ran.json.keys() >= RUN_KEYS
    assert set(ran.json["exposed_communication_s"]) == {"tp", "cp", "ep", "pp", "dp"}
    assert set(ran.json["timing"]) >= {"build_s", "lower_s", "fold_s", "replay_s", "total_s"}
    assert len(ran.json["memory_bytes_per_stage"]) == 2
    assert ran.json["peak_memory_bytes"] == max(ran.json["memory_bytes_per_stage"])
    assert 0 < ran.json["mfu_causal"] < ran.json["mfu"] < 1


def test_tables_and_json_show_the_same_step(small: Path) -> None:
    document, table = Ran("run", small, "--json").json, Ran("run", small)
    assert table.code == 0
    assert f"{100 * document['mfu']:.1f}" in table.out


def test_the_shipped_405b_scales_by_set() -> None:
    changes = ["--set", "cluster.gpus=1024", "--set", "training.global_batch=128"]
    ran = Ran("run", "llama3.1-405b-16k", *changes, "--json")
    assert ran.code == (0 if ran.json["fits"] else 1)  # the optimizer is sharded over fewer ranks
    assert ran.json["ranks"] == 1024
    assert ran.json["classes"] >= 16  # one for each pipeline rank at least


def test_the_same_input_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        files = ["--timeline", tmp_path / f"{name}.svg", "--trace", tmp_path / f"{name}.json"]
        Ran("run", small, *files, "--spans", tmp_path / f"{name}.csv")
    for suffix in (".svg", ".json", ".csv"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_step_that_does_not_fit_is_an_answer(small: Path) -> None:
    ran = Ran(
        "run", small, "--set", "training.micro_batch=256", "--set", "training.global_batch=2048", "--json"
    )
    assert ran.code == 1
    assert ran.json["fits"] is False
    assert ran.json["step_time_s"] > 0


def test_views_lie_where_they_were_asked_for(small: Path, tmp_path: Path) -> None:
    timeline, trace, spans = (tmp_path / "new" / name for name in ("t.svg", "t.json", "t.csv"))
    ran = Ran("run", small, "--json", "--timeline", timeline, "--trace", trace, "--spans", spans)
    assert ran.code == 0
    assert ran.json.keys() >= RUN_KEYS  # stdout is JSON alone
    assert "<svg" in timeline.read_text()
    assert json.loads(trace.read_text())["traceEvents"]
    header = "rank,stream,name,category,action,start_s,end_s,bytes,flops,issued_s,group,kind"
    assert spans.read_text().splitlines()[0] == header
    assert all(str(path) in ran.err for path in (timeline, trace, spans))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--timeline", "picture.pdf"], "must end in .svg or .png"),
        (["--spans", "spans.xlsx"], "must end in .csv or .parquet"),
        (["--trace", "same.json", "--save-program", "same.json"], "already uses this file"),
    ],
)
def test_files_that_make_no_sense_are_refused_first(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ran = Ran("run", small, *options)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    program.write_text("{}")
    (tmp_path / "link.json").symlink_to(program)
    with pytest.raises(ValueError, match=r"--trace .*link.json"):
        output_file("--trace", tmp_path / "link.json", (".json",), [program])


def test_a_folder_that_cannot_be_made_is_a_message(small: Path) -> None:
    ran = Ran("run", small, "--timeline", small / "below" / "a-file.svg")
    assert ran.code == 2
    assert str(small) in ran.err


BROKEN = {
    "wrong unit": ("gpus: 8 }", "gpus: 8, measured_network: { all_reduce_bytes_per_s: 400 GB } }", "400 GB"),
    "unknown key": ("parallelism: {", "parallelism: { tensor: 2,", "tensor"),
    "tp does not divide the heads": ("tp: 2", "tp: 3", "16"),
    "no such GPU": ("H100-SXM5-80GB", "H100-SMX5-80GB", "H100-SXM5-80GB"),
    "duplicate key": ("num_layers: 4", "num_layers: 4\n  num_layers: 8", "num_layers"),
    "negative size": ("hidden_size: 1024", "hidden_size: -1024", "-1024"),
    "missing field": ("  vocab_size: 32000\n", "", "vocab_size"),
    "YAML syntax": ("tp: 2, pp: 2 }", "tp: 2, pp: 2", "small.yaml"),
    "batch does not divide": ("global_batch: 8", "global_batch: 7", "7"),
    "unknown schedule": ("software:", "schedule: 1f1c\nsoftware:", "1f1b"),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_scenario_ends_with_a_message(small: Path, mistake: str) -> None:
    old, new, says = BROKEN[mistake]
    assert old in SMALL
    small.write_text(SMALL.replace(old, new))
    ran = Ran("run", small)
    assert ran.code == 2
    assert ran.out == ""
    assert says in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "no-such-scenario"],
        ["run", "llama3.1-405b-16k", "--set", "parallelism.tp"],
        ["replay", "no-such-program.json"],
        ["compare", "llama3.1-405b-16k"],
        ["validate", "no-such-cases.yaml"],
        ["validate", "cases.yaml", "--jobs", "0"],
        ["list", "planets"],
        ["rn"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_a_message(arguments: list[str]) -> None:
    ran = Ran(*arguments)
    assert ran.code == 2
    assert ran.err.strip()
    assert "Traceback" not in ran.err


def test_a_saved_program_replays_to_the_same_step(small: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    ran = Ran("run", small, "--json", "--save-program", program)
    replayed = Ran("replay", program, "--json")
    assert replayed.code == 0
    assert replayed.json["step_time_s"] == ran.json["step_time_s"]


def test_a_file_that_is_no_program_ends_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    path.write_text('{"ranks": 3')
    ran = Ran("replay", path)
    assert ran.code == 2
    assert "program.json" in ran.err


def test_compare_tells_what_differs(small: Path) -> None:
    arguments = ["compare", small, small, "--set-b", "training.recompute=full"]
    table = Ran(*arguments)
    assert table.code == 0
    assert "recompute" in table.out
    assert "recompute" in json.dumps(Ran(*arguments, "--json").json)


@pytest.mark.slow
def test_validate_json_keeps_its_interface(shared: Path, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    cases = first_cases(shared, 2, tmp_path / "korthikanti_2022.yaml")
    ran = Ran("validate", cases, "--json", "--jobs", "1", "--markdown", page)
    assert ran.code == 0
    assert set(ran.json) >= {"cases", "summary"}
    assert len(ran.json["cases"]) == 2
    for case in ran.json["cases"]:
        assert case.keys() >= set(CASE_KEYS)
        assert case["source"] == "korthikanti_2022"
        assert (case["refused"] is None) == (case["predicted_step_time_s"] is not None)
    assert page.read_text().startswith("#")


@pytest.mark.slow
def test_validate_judges_choices_in_a_sweep_of_ones_own(tmp_path: Path) -> None:
    """Five layouts of one job, whose measured times are made up; four are too few."""
    layouts = [dict(case_document()["layout"], micro_batch=mb, recompute="full") for mb in (1, 2, 4, 8)]
    layouts.append(dict(layouts[0], recompute="none"))
    documents = [
        case_document()
        | {"id": f"run-{n}", "layout": layout}
        | {"measured": dict(case_document()["measured"], step_time_s=10.0 + n)}
        for n, layout in enumerate(layouts)
    ]
    mine = write_cases(tmp_path / "mine.yaml", documents)
    (sweep,) = Ran("validate", mine, "--json", "--jobs", "1").json["sweeps"]
    assert (sweep["source"], sweep["runs"], sweep["ended"], sweep["fastest"]) == ("mine", 5, 5, "run-0")
    assert sweep["first_choice"] == sweep["choices"][0]
    chosen = int(sweep["first_choice"].split("-")[1])
    assert sweep["first_choice_lost"] == pytest.approx(chosen / 10.0)
    assert -1.0 <= sweep["rank_correlation"] <= 1.0
    told = Ran("validate", mine, "--jobs", "1").out
    assert "Choices in each sweep" in told
    assert "not measured" not in told  # targets of sources that are not among the files
    assert "measured steps inside" not in told  # five runs are too few to judge shares of intervals
    few = write_cases(tmp_path / "few.yaml", documents[:4])
    assert Ran("validate", few, "--json", "--jobs", "1").json["sweeps"] == []


@pytest.mark.parametrize("kind", ["scenarios", "models", "gpus", "interconnects", "software", "schedules"])
def test_list_names_what_there_is(kind: str) -> None:
    lines = Ran("list", kind).out.split("\n")[:-1]
    if kind == "gpus":  # a heading before them, and what it means behind them
        lines = lines[1 : lines.index("")]
    names = [line.split()[0] for line in lines]
    assert names
    assert Ran("list", kind, "--json").json[kind] == names
    assert Ran("list", "--json").json[kind] == names


def test_schema_is_a_json_schema() -> None:
    assert {"model", "cluster", "parallelism", "training"} <= set(Ran("schema").json["properties"])


def test_a_reader_that_leaves_is_no_error() -> None:
    """As `stepsim list | head` does. The pipe is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "stepsim.cli.main", "list", "schedules"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_traceback_can_be_had(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSIM_TRACEBACK", "1")
    done = Ran("run", small, "--timeline", "picture.pdf")
    assert done.code == 2
    assert "Traceback" in done.err


def test_a_name_that_is_no_utf8_is_escaped_in_json(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.yaml")
    path.write_text("extends: gpt-22b-a100\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(path), "--json"])
    assert done.exit_code in (0, 1), done.output
    assert json.loads(done.stdout)["scenario"] == "\udcff"


def test_a_command_that_is_alone_understands_what_it_does_among_all() -> None:
    """A command line is read by an application that knows its first word alone."""
    commands = vars(get_command(app))["commands"]
    assert len(commands) > 20
    for name in commands:
        words = [name, "--help"]
        alone, among = (CliRunner().invoke(one, words) for one in (application(words), app))
        assert alone.exit_code == 0, name
        assert alone.output == among.output
        assert list(vars(get_command(application(words)))["commands"]) == [name]


@pytest.mark.parametrize("words", [[], ["--help"], ["rn"], ["--version", "run"]])
def test_any_other_beginning_is_for_all_commands(words: list[str]) -> None:
    assert list(vars(get_command(application(words)))["commands"]) == list(vars(get_command(app))["commands"])
