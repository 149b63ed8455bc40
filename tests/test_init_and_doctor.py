"""``init`` writes scenarios that run; ``doctor`` tells what is here; every help has examples."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from all_commands import GROUP, commands
from typer.testing import CliRunner

import stepsim
from stepsim.calibration.measure.installation import EXTRAS, listed_gpus
from stepsim.cli.examples import EXAMPLES
from stepsim.cli.exit_codes import BAD_INPUT
from stepsim.cli.main import app
from stepsim.sim.brief.memory import memory_by_order
from stepsim.sim.evidence.measured_memory import fit_probability

COMMANDS = commands(GROUP)


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "software"),
    [
        ("llama3-8b", "h100", 8, "torchtitan-2025"),
        ("llama3-70b", "h100", 64, "megatron-core-2025"),
        ("llama3-8b", "RTX-4090", 8, "torchtitan-2025"),
        ("mixtral-8x7b", "gb200", 72, "megatron-core-2025"),
        ("qwen3-235b-a22b", "h200", 128, "megatron-bridge-2026"),  # 94 layers: fits with experts cut alone
        ("deepseek-v3", "h200", 256, "megatron-bridge-2026"),  # 61 layers
    ],
)
def test_what_init_writes_runs_and_fits(
    model: str, gpu: str, gpus: int, software: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.yaml"
    options = ["--model", model, "--gpu", gpu, "--gpus", str(gpus), "--software", software]
    answer = CliRunner().invoke(app, ["init", *options, "--seq-length", "2048", "-o", str(path)])
    assert answer.exit_code == 0, answer.output
    scenario = stepsim.load_scenario(path)
    assert (scenario.cluster.gpus, scenario.training.seq_length) == (gpus, 2048)
    assert scenario.software.name == software
    sharded = software.startswith("torchtitan") and gpu != "RTX-4090"  # where tensors have to be split
    assert scenario.parallelism.zero == (3 if sharded else 1)  # as it does by itself
    assert scenario.training.recompute == "none"  # each of these fits without
    if gpu != "RTX-4090":  # where none that does not recompute is as sure
        assert fit_probability(software, memory_by_order(scenario).high) >= 0.9


def test_init_writes_over_no_file(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("model: mine\n", encoding="utf-8")
    options = ["--model", "llama3-8b", "--gpu", "h100", "--gpus", "8", "--software", "torchtitan-2025"]
    answer = CliRunner().invoke(app, ["init", *options, "--seq-length", "2048", "-o", str(path)])
    assert answer.exit_code == BAD_INPUT
    assert "train.yaml" in answer.output
    assert path.read_text(encoding="utf-8") == "model: mine\n"


def test_init_asks_for_what_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    answer = CliRunner().invoke(
        app, ["init", "-o", str(path)], input="gpt2-1.5b\nA100-SXM4-80GB\n4\n1024\n\n"
    )
    assert answer.exit_code == 0, answer.output
    scenario = stepsim.load_scenario(path)
    assert (scenario.model.name, scenario.cluster.gpu_name, scenario.cluster.gpus) == (
        "gpt2-1.5b",
        "A100-SXM4-80GB",
        4,
    )


def test_empty_answers_are_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    answer = CliRunner().invoke(app, ["init", "-o", str(path)], input="\n\n\n\n\n")
    assert answer.exit_code == 0, answer.output
    scenario = stepsim.load_scenario(path)
    assert (scenario.cluster.gpus, scenario.training.seq_length) == (8, 8192)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--model", "nope", "--gpu", "h100"],
        ["--model", "llama3-8b", "--gpu", "nope"],
        ["--model", "llama3.1-405b", "--gpu", "h100"],  # fits no 8 GPUs
        ["--model", "llama3-8b", "--gpu", "h100", "--interconnect", "nope"],  # which one host would not need
    ],
)
def test_init_writes_nothing_where_nothing_can_be(wrong: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    rest = ["--gpus", "8", "--seq-length", "8192", "--software", "megatron-core-2025", "-o", str(path)]
    assert CliRunner().invoke(app, ["init", *wrong, *rest]).exit_code == 2
    assert not path.exists()


def test_a_wrong_answer_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    answers = "nope\ngpt2-1.5b\nA1000\nA100-SXM4-80GB\n0\n4\nlong\n1024\nnothing\n\n"
    answer = CliRunner().invoke(app, ["init", "-o", str(path)], input=answers)
    assert answer.exit_code == 0, answer.output
    assert stepsim.load_scenario(path).cluster.gpus == 4


def test_answers_that_end_too_early_are_the_caller_s_mistake(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    assert CliRunner().invoke(app, ["init", "-o", str(path)], input="gpt2-1.5b\n").exit_code == BAD_INPUT
    assert not path.exists()


def test_doctor_tells_all_extras() -> None:
    answer = CliRunner().invoke(app, ["doctor", "--json"])
    assert answer.exit_code == 0
    told = json.loads(answer.stdout)
    assert told["version"] == stepsim.__version__
    assert set(told["extras"]) == {extra.name for extra in EXTRAS}
    assert all(told["required"].values())
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert all(package in text for extra in EXTRAS for package in extra.packages)


def test_gpus_are_those_that_the_driver_lists() -> None:
    two = (sys.executable, "-c", "print('NVIDIA H100 80GB HBM3\\n\\nNVIDIA L40S')")
    assert listed_gpus(two) == ("NVIDIA H100 80GB HBM3", "NVIDIA L40S")
    assert listed_gpus((sys.executable, "-c", "raise SystemExit(9)")) == ()
    assert listed_gpus(("no-such-command-anywhere",)) == ()


@pytest.mark.parametrize("words", COMMANDS)
def test_every_help_ends_with_examples(words: str) -> None:
    name = words if words in EXAMPLES else words.rpartition(" ")[0]
    if words.startswith("schedule ") and words not in EXAMPLES:
        return  # one command for every schedule, which the group's help explains
    assert EXAMPLES[name]
    shown = CliRunner().invoke(app, [*words.split(), "--help"]).stdout
    assert all(f"stepsim {line}" in shown for line in EXAMPLES[name])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_read_as_the_command_reads_it(line: str) -> None:
    words = shlex.split(line)
    command = next(
        (COMMANDS[" ".join(words[:n])], words[n:]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS
    )
    context = command[0].make_context(words[0], list(command[1]))
    assert context.params is not None


def test_init_says_why_no_layout_can_be(tmp_path: Path) -> None:
    """A refusal is not told as a lack of memory."""
    path = tmp_path / "train.yaml"
    options = ["--model", "llama3-8b", "--gpu", "V100-SXM2-32GB", "--gpus", "8", "--seq-length", "2048"]
    answer = CliRunner().invoke(app, ["init", *options, "--software", "nanotron-2024", "-o", str(path)])
    assert answer.exit_code == BAD_INPUT
    assert "software.kernels.attention" in answer.output
