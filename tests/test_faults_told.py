"""What campaigns and steps with faults tell: unknown intervals, bounds, notes, mistakes by their field."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from faults_campaigns import crashes, document, plan_of
from refusals import refused_at
from rich.console import Console
from small_scenarios import scenario
from struck_steps import LINKED
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.degradation.checkpoint_write import sizes_of
from stepsim.sim.reliability.answers import Answers, rests_on
from stepsim.sim.reliability.ask import ask
from stepsim.sim.reliability.planning.tiers import tiers_of
from stepsim.sim.reliability.study.sweep import Axis, SweepPoint, parse_axis, sweep
from stepsim.sim.report.reliability.document import answers_document
from stepsim.sim.report.reliability.page import verdict_sentences
from stepsim.sim.report.reliability.plots import worth_rows
from stepsim.sim.report.reliability.sweep_table import print_sweep
from stepsim.sim.report.reliability.tables import print_answers
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.faults.faults import parse_fault
from stepsim.sim.scenario.faults.recovery import Checkpoint
from stepsim.sim.scenario.load import campaign_from_document
from stepsim.sim.simulate import simulate


def asked(replications: int = 1, *, what_if: bool = False, **blocks: Any) -> Answers:
    loaded = campaign_from_document(document(**{"faults": crashes(), **blocks}), "told")
    return ask(loaded, replications=replications, what_if=what_if)


def printed(answers: Answers) -> str:
    console = Console(file=StringIO(), width=140)
    print_answers(answers, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_one_replication_has_no_interval() -> None:
    one, two = asked(1), asked(2)
    assert answers_document(one)["ettr"]["low"] is None
    assert answers_document(one)["wall_s"]["high"] is None
    assert answers_document(two)["ettr"]["low"] is not None
    assert "+- -" in printed(one)
    assert "+- 0.00" not in printed(one)
    assert "+- -" not in printed(two)


def test_a_fault_after_the_step_is_told_beside_a_hang() -> None:
    late = "gpu_throttle gpu/2 slow_factor=1.5 at=100s"
    with pytest.raises(ValueError, match="gpu_throttle gpu/2: at: 100"):
        simulate(scenario(**LINKED), faults=["hang rank/1 at=0s", late])


def test_jitter_beyond_its_normal_distribution_is_refused() -> None:
    assert parse_fault("host_jitter job cv=0.3").cv == 0.3
    with pytest.raises(ValueError, match=r"cv: 5 .*0\.3"):
        parse_fault("host_jitter job cv=5")


STORAGE = {"every": "30 min", "mode": "async", "snapshot_stall": "1 s", "persist": "2 min", "load": "1 s"}


def test_the_factor_found_for_writes_beside_steps_is_kept() -> None:
    spec = Checkpoint.model_validate(
        {"storage": {**STORAGE, "persist_slow_factor": "from_bytes", "bytes": "1 TB"}},
        context={"document": True},
    )
    run = scenario(**LINKED)
    sizes = sizes_of(run, spec, 4, 32)
    (tier,) = tiers_of(spec, sizes, 10.0, loads=True, during_writes=lambda share: 1.0 + share)
    share = 1e12 / 4 / 120.0 / sizes.network_bytes_per_s
    assert tier.slow_factor == pytest.approx(1.0 + share)
    assert share > 0.001


def test_the_factor_found_is_told() -> None:
    answers = asked(checkpoint={"storage": {**STORAGE, "persist_slow_factor": 1.25}})
    assert answers_document(answers)["checkpoints"][0]["slow_factor"] == 1.25
    storage = answers.blocks.checkpoint.storage
    assert storage
    found = storage.model_copy(update={"persist_slow_factor": "from_bytes"})
    checkpoint = answers.blocks.checkpoint.model_copy(update={"storage": found})
    told = rests_on(replace(answers, blocks=replace(answers.blocks, checkpoint=checkpoint)))
    assert any("1.2500 times as long while a copy" in text for text, _ in told)


def test_writes_that_stop_steps_are_refused() -> None:
    with refused_at("checkpoint.storage", "persist_slow_factor", "100", "10"):
        plan_of(document(checkpoint={"storage": {**STORAGE, "persist_slow_factor": 100}}))


def notes(**blocks: Any) -> str:
    return "\n".join(text for text, _ in rests_on(asked(**blocks)))


def test_intervals_that_steps_cannot_keep_are_told() -> None:
    def every(text: str) -> str:
        return notes(checkpoint={"storage": {"every": text, "stall": "0 s", "load": "0 s"}})

    assert "a checkpoint every 5 s is one every step, 10 s" in every("5s")
    assert "a checkpoint every 26 s is one every 3 steps, 30 s" in every("26s")
    assert "is one every" not in every("30 min") + every("7 steps")


def test_faults_after_the_end_are_told() -> None:
    def struck(event: dict[str, Any]) -> str:
        return notes(faults={"events": [event]}, run={"horizon": "2 h"})

    assert "software_crash job at 3.00 h comes after the end" in struck(
        {"at": "3 h", "kind": "software_crash"}
    )
    assert "at step 9,999 comes after the end" in struck({"at_step": 9999, "kind": "software_crash"})
    assert "comes after" not in struck({"at": "1 h", "kind": "software_crash"})


def test_mistakes_name_their_field(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"faults.events: trace: .*nope.csv"):
        plan_of(document(faults={"events": [{"trace": str(tmp_path / "nope.csv")}]}))
    with refused_at("faults.processes[0].dist", "'gaussian'", "exponential, constant, weibull"):
        plan_of(
            document(
                faults=crashes()
                | {"processes": [{"kind": "software_crash", "mtbf": "1 h", "dist": "gaussian"}]}
            )
        )
    with pytest.raises(ValueError, match=r"recovery.policy=a\.\.b"):
        parse_axis("recovery.policy=a..b")


def test_a_mistake_in_what_is_swept_is_one_of_the_sweep() -> None:
    with pytest.raises(ScenarioError, match=r"^--sweep: foo: no field"):
        sweep("llama3.1-405b-16k", ["faults.seed=1"], [parse_axis("foo=1,2")])
    with pytest.raises(ScenarioError, match=r"^--set: fob: no field"):
        sweep("llama3.1-405b-16k", ["fob=1"], [parse_axis("recovery.spares.warm=1,2")])


def test_the_oracle_is_a_bound_below_the_fixes() -> None:
    answers = asked(6, what_if=True, detection="10 min")
    assert [one.about for one in answers.worths].count("bound") == 1
    assert (answers.worths[-1].about, answers.worths[-1].name) == (
        "bound",
        "if every fault were noticed at once",
    )
    first = "".join(verdict_sentences(answers))
    assert "Fix first" in first
    assert "noticed at once" not in first
    assert worth_rows(answers.worths, "mitigation")[-1].name == "if every fault were noticed at once"


@pytest.mark.parametrize(("width", "count"), [(80, 1), (80, 2), (120, 3)])
def test_names_of_swept_fields_are_whole(width: int, count: int) -> None:
    fields = ("checkpoint.storage.persist_slow_factor", "recovery.spares.warm", "detection.watchdog.timeout")
    axes = [Axis(field, ("1",)) for field in fields[:count]]
    console = Console(file=StringIO(), width=width)
    print_sweep(axes, [SweepPoint(("1",) * count, asked().study)], console)
    assert isinstance(console.file, StringIO)
    header = console.file.getvalue().split("best:")[0]
    for field in fields[:count]:
        assert all(part in header for part in field.replace("_", ".").split("."))


def test_the_command_tells_the_same(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document(faults=crashes())))
    done = CliRunner().invoke(app, ["faults", str(path), "-n", "1", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ettr"]["high"] is None
