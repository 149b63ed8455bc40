"""Plans in a framework's own words: the best of what it can say, read back as the run that was proposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from importing import scenario as imported_scenario
from small_plans import FIX, small
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.plan.search.emission import Emission
from stepsim.sim.plan.search.judged import ReplayOf
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.export import differences
from stepsim.sim.scenario.load import load_scenario

CORPUS = Path(__file__).parent / "fuzz" / "corpus"
MACHINE = ("--given", "gpu=H100-SXM5-80GB", "--given", "interconnect=ib-ndr400-x8")
TRAINER = ("gpus=16", "model=gpt2-1.5b", "seq_length=2048")


@pytest.mark.slow
def test_the_best_is_the_best_of_what_can_be_said() -> None:
    """Every layout written, read back and replayed, beside the search."""
    base, emission = small(), Emission(framework="megatron-lm", version="v2.0")
    among, _ = candidates_of(base, FIX, {}, lambda text: None)
    replay, steps = ReplayOf(), []
    said = 0
    for number in range(len(among.layouts)):
        scenario = among.layouts.scenario_of(number)
        if emission.unsayable(scenario) or among.fit_probability[number] < 0.9:
            continue
        said += 1
        steps.append(replay(scenario).step_time_s)
    found = plan(base, fix=FIX, emit="megatron-lm", emit_version="v2.0", top=3, audit=2, jobs=1)
    assert 3 < said < len(among.layouts)
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(sorted(steps)[:3])
    assert found.certificate.optimal
    assert not any(emission.unsayable(one.scenario) for one in found.choices)


@pytest.mark.slow
def test_what_is_emitted_reads_back_as_the_best() -> None:
    run = small(software="megatron-2022-sp")  # no flag says how fast a host is
    found = plan(run, fix=FIX, emit="megatron-lm", top=1, audit=0, jobs=1)
    assert found.emitted is not None
    version = Emission(framework="megatron-lm").version_for(found.best)
    given = {"gpu": "A100-SXM4-80GB", "interconnect": "ib-hdr200-x8", "gpus_per_node": "8"}
    again = imported_scenario({"run.sh": found.emitted}, given, version=version)
    assert differences(found.best, again) == []
    assert found.to_dict()["emitted"] == found.emitted
    assert plan(small(), fix=FIX, top=1, audit=0, jobs=1).emitted is None


def test_what_no_layout_changes_is_refused_before_the_search() -> None:
    with pytest.raises(ScenarioError) as refusal:
        plan(small(), emit="torchtitan")
    assert {problem.path for problem in refusal.value.problems} == {"model"}
    with pytest.raises(ValueError, match="megatron-lm"):
        plan(small(), emit="megatron")


def test_torchtitan_can_say_context_parallelism() -> None:
    for method in ("all_gather", "p2p"):
        changes = {
            "model": "llama3-8b",
            "software": {"preset": "torchtitan-2025", "exchange": {"cp_comm": method}},
            "parallelism": {"cp": 2, "zero": 3},
        }
        scenario = load_scenario("llama3-8b-h100", changes)
        assert Emission(framework="torchtitan").unsayable(scenario) == ""


def test_megatron_fsdp_is_not_started_with_one_queue() -> None:
    for stage in (1, 3):
        text = Emission(framework="megatron-lm").text(
            load_scenario("llama3-8b-h100", {"parallelism.zero": stage})
        )
        assert ("CUDA_DEVICE_MAX_CONNECTIONS=1" in text) == (stage == 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "framework", "suffix", "facts"),
    [
        ("train.sh", "megatron-lm", ".sh", ()),
        ("titan.toml", "torchtitan", ".toml", ("gpus=16",)),
        ("deepspeed.json", "deepspeed", ".sh", TRAINER),
    ],
)
def test_a_file_goes_in_and_a_better_one_comes_out(
    file: str, framework: str, suffix: str, facts: tuple[str, ...], tmp_path: Path
) -> None:
    source, out = str(CORPUS / file), tmp_path / f"better{suffix}"
    given = [*MACHINE, *(word for fact in facts for word in ("--given", fact))]
    before = _json("run", source, *given)
    few: tuple[str, ...] = (
        "--audit",
        "0",
        "--top",
        "1",
        "-j",
        "1",
        "--fix",
        "parallelism.pp=1",
        "--fix",
        "parallelism.cp=1",
    )
    few += ("--fix", "training.recompute") if framework == "megatron-lm" else ()
    told = _json("plan", source, *given, *few, "--emit", framework, "-o", str(out))
    text = out.read_text(encoding="utf-8")
    assert told["emitted"] == text
    again = _json("run", str(out), *MACHINE)
    best = told["choices"][0]["step_time_s"]
    assert again["step_time_s"] == pytest.approx(best, rel=1e-9)
    assert best <= before["step_time_s"] or not before["fits"]


@pytest.mark.slow
def test_lines_that_change_are_told_before_the_file() -> None:
    source = str(CORPUS / "train.sh")
    fix = ("--fix", "parallelism.tp=4", "--fix", "parallelism.pp=1", "--fix", "training.recompute=none")
    words = ("plan", source, *MACHINE, *fix, "--emit", "megatron-lm", "--audit", "0", "-j", "1")
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "-     --tensor-model-parallel-size 2" in lines
    assert "+     --tensor-model-parallel-size 4" in lines
    assert lines.index("#!/bin/bash") > lines.index("+     --tensor-model-parallel-size 4")


def test_a_file_that_is_too_old_to_be_written_says_which_can_be(tmp_path: Path) -> None:
    old = tmp_path / "llama3_8b.toml"
    text = (CORPUS / "titan.toml").read_text(encoding="utf-8").replace("local_batch_size", "batch_size")
    old.write_text(text.replace("tensor_parallel_degree = 2", ""), encoding="utf-8")
    words = ["plan", str(old), *MACHINE, "--given", "gpus=8", "--emit", "torchtitan"]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "--to-version v0.2" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--emit", "megatron-lm", "--find", "gpus"),
        ("-o", "better.sh"),
        ("--to-version", "v3.0"),
        ("--emit", "horovod"),
        ("--emit", "megatron-lm", "--to-version", "next year's"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["plan", "llama3-8b-h100", *words])
    assert done.exit_code == 2


def _json(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code in (0, 1), done.output
    return dict(json.loads(done.stdout))
