"""``stepsim memory``: the bill beside the textbook's formulas, as a table, a document and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drawn import lines
from hypothesis import given
from law_examples import examples
from small_scenarios import layouts, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.report.drawing import palette
from stepsim.sim.report.memory.bill import bill, layer_formula
from stepsim.sim.report.memory.document import memory_document
from stepsim.sim.report.memory.picture import COLOURS, memory_svg
from stepsim.sim.result.step import MOVING
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

law = examples(15)


@law
@given(layouts())
def test_the_lines_sum_to_the_peak(run: Scenario) -> None:
    result = simulate(run)
    for stage in result.memory:
        assert sum(line.bytes for line in bill(run, stage)) == pytest.approx(stage.peak_bytes)
        for line in bill(run, stage):
            agrees = line.textbook_bytes is not None and line.bytes == pytest.approx(
                line.textbook_bytes, rel=0.02
            )
            assert agrees or line.why, f"{line.name} differs and nobody says why"


def test_the_textbooks_own_model_agrees_in_every_line() -> None:
    """GPT in 16 bit with dropout and unfused attention is what the formulas were derived for."""
    run = scenario(
        hidden_size=512,
        num_attention_heads=8,
        ffn_hidden_size=2048,
        num_layers=64,
        vocab_size=64,
        microbatches=1,
        software={"preset": "megatron-2022-sp", "gradients": {"main_grad_bytes": 2}},
    )
    result = simulate(run)
    lines = {line.name: line for line in bill(run, result.memory[0])}
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert lines[name].bytes == pytest.approx(lines[name].textbook_bytes, rel=0.02)
        assert lines[name].why == ""


def test_scores_grow_with_the_sequence_in_the_numerator() -> None:
    def scores(seq_length: int) -> float:
        run = scenario(seq_length=seq_length, micro_batch=1)
        h, a = run.model.hidden_size, run.model.num_attention_heads
        assert layer_formula(run)[1] == "s b h (34 + 5 a s/h)"
        found = layer_formula(run)[0] - 34 * seq_length * h
        assert found == pytest.approx(5 * a * seq_length**2)
        return found

    assert scores(256) == pytest.approx(4 * scores(128))


@pytest.mark.parametrize(
    ("zero", "each"), [(0, (2, 2, 12)), (1, (2, 2, 12 / 4)), (2, (2, 2 / 4, 12 / 4)), (3, (2 / 4, 2 / 4, 3))]
)
def test_zero_stages_divide_state_as_in_table_1(zero: int, each: tuple[float, ...]) -> None:
    """Rajbhandari et al. 2019, table 1: what each stage divides by the shard group."""
    run = scenario(software="torchtitan-2024", dp=4, zero=zero)
    stage = simulate(run).memory[0]
    for line, bytes_each in zip(bill(run, stage), each, strict=False):
        assert line.textbook_bytes == pytest.approx(bytes_each * stage.parameters)


def test_the_document_has_every_term_over_time() -> None:
    result = simulate(scenario(pp=2, schedule="1f1b", software="torchtitan-2024", dp=2, zero=3))
    document = memory_document(result)
    json.dumps(document)
    for shown, stage in zip(document["stages"], result.memory, strict=True):
        held = zip(*(shown["timeline"][name] for name in MOVING), strict=True)
        assert [sum(sizes) for sizes in held] == pytest.approx([size for _, size in stage.timeline])
        assert max(shown["timeline"]["gathered"]) > 0


def test_the_picture_shows_every_rank_and_the_capacity() -> None:
    result = simulate(scenario(pp=4, schedule="1f1b"))
    picture = memory_svg(result)
    ElementTree.fromstring(picture.encode())
    assert memory_svg(result) == picture
    assert all(f"pp {stage.pp}: peak" in picture for stage in result.memory)
    assert len(lines(picture, palette.INK)) == 4 + 1  # the capacity, and the legend


def test_the_picture_takes_no_outputs_that_are_kept_for_gradients() -> None:
    """Under ZeRO-3 all gradients come and go; what stages keep of what they gave stays all step long."""
    software = {"preset": "torchtitan-2025", "pipeline": {"keeps_outputs": "all"}}
    result = simulate(scenario(pp=2, dp=2, zero=3, schedule="1f1b", software=software))
    assert all(stage.terms["outputs"] > 0 for stage in result.memory)
    assert "gradients, held" not in memory_svg(result)
    assert "gradients, held" in memory_svg(simulate(scenario(pp=2, schedule="1f1b")))


def test_the_picture_shows_logits_that_are_gone_at_once() -> None:
    """They are held for less than a pixel, once in each microbatch, and may be the peak."""
    result = simulate(load_scenario("llama3-8b-h100"))
    assert len(lines(memory_svg(result), COLOURS["logits"])) == 32


def test_the_command_has_the_peak_of_the_replay() -> None:
    """By the order of actions, and by the clock where a preset needs it; times are where the clock was."""
    for name in ("gpt-22b-a100", "llama3-8b-h100"):
        shown = CliRunner().invoke(app, ["memory", name])
        timed = json.loads(CliRunner().invoke(app, ["memory", name, "--json"]).output)
        assert f" {timed['peak_memory_bytes'] / 1e9:,.2f} " in shown.output
        assert all(stage["peak_s"] > 0 for stage in timed["stages"])


def test_the_command_writes_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "memory.svg"
    done = CliRunner().invoke(app, ["memory", "llama3-8b-h100", "--picture", str(picture)])
    assert done.exit_code in (0, 1)
    assert "textbook" in done.output
    assert "12 N" in done.output
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    wrong = CliRunner().invoke(app, ["memory", "llama3-8b-h100", "--stage", "99"])
    assert wrong.exit_code == 2


def test_a_stage_with_nothing_but_the_loss_has_a_bill() -> None:
    """nanotron balances stages by cost: a wide vocabulary may leave none for the last."""
    run = scenario(
        software="nanotron-2024",
        num_layers=8,
        vocab_size=262144,
        pp=4,
        schedule="1f1b",
        stage_split="flops_balanced",
    )
    result = simulate(run)
    assert any(stage.parameters == 0 for stage in result.memory)
    assert all(bill(run, stage) for stage in result.memory)
