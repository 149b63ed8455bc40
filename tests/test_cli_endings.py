"""How commands end: exit codes that scripts can trust, and texts of users that steer no terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stepsim.cli.main import _code, app
from stepsim.cli.mistakes import reported
from stepsim.hardware.catalogue import unknown_name
from stepsim.hardware.files import FileError
from stepsim.hardware.shown import printable, printable_line
from stepsim.sim import defects
from stepsim.sim.report.drawing import svg
from stepsim.sim.scenario.load import load_scenario

STEPSIM = [sys.executable, "-m", "stepsim.cli.main"]
JOB = ["run", "llama3-8b-h100"]


def ended(command: Callable[[], object]) -> tuple[int, str]:
    """Exit code and stderr of a command that does this."""
    one = typer.Typer()

    def run() -> None:
        command()

    one.command()(reported(run))
    done = CliRunner().invoke(one)
    return done.exit_code, done.stderr


def raising(error: BaseException) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_an_interrupt_that_something_turned_into_an_error_is_still_one() -> None:
    """Pydantic answers one that meets it amid its work with a SchemaError that does not say so."""

    def turned() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            pass
        raise TypeError("Error building `default` serializer")

    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        code, said = ended(turned)
        assert (code, said.strip()) == (130, "stepsim: interrupted")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, outside)


# Whose mistake it is ----------------------------------------------------------------------------------------

USERS: dict[str, Callable[[], object]] = {
    "raised by a function of ours": lambda: load_scenario("no-such-scenario"),
    "made by one function, raised by another": lambda: svg_of_unknown_gpu(),
    "an error of ours from anywhere": raising(FileError("my.yaml", "is odd")),
}
OURS: dict[str, Callable[[], object]] = {
    "a value that a list lacks": lambda: svg.number([0.5, 1.5].index(2.5)),
    "a key": lambda: dict[str, int]()["missing"],
    "an assertion": raising(AssertionError("cannot be")),
    "a ValueError of a library": lambda: int("x"),
    "no end of calls": raising(RecursionError("maximum recursion depth exceeded")),
}


def svg_of_unknown_gpu() -> None:
    from stepsim.hardware.gpus import get_gpu

    get_gpu("H9000")


@pytest.mark.parametrize("name", USERS)
def test_mistakes_of_users_end_with_2(name: str) -> None:
    code, said = ended(USERS[name])
    assert code == 2
    assert said.startswith("stepsim: ")
    assert "defect" not in said


@pytest.mark.parametrize("name", OURS)
def test_mistakes_of_ours_end_with_3_and_say_so(name: str) -> None:
    code, said = ended(OURS[name])
    assert code == 3
    assert "defect of stepsim" in said
    assert "STEPSIM_TRACEBACK=1" in said
    assert "Traceback" not in said


def test_a_value_error_inside_a_line_of_ours_is_ours() -> None:
    """Its innermost step is a file of ours, which only called: nobody wrote its message for a user."""
    with pytest.raises(ValueError, match="format code") as failed:
        svg.number("x")  # type: ignore[arg-type]
    assert not defects.is_of_the_user(failed.value)
    assert "sim/report/drawing/svg.py:" in defects.defect_text(failed.value)
    assert "in number" in defects.defect_text(failed.value)
    with pytest.raises(ValueError, match="H9000") as refused:
        raise ValueError("H9000")
    assert not defects.is_of_the_user(refused.value)  # raised here, in no file of ours
    assert defects.is_of_the_user(unknown_name("GPU", "H9000", ["H100"]))  # a class of ours, wherever raised


def test_errors_of_workers_are_told_apart_by_their_text() -> None:
    package = defects.PACKAGE

    class Remote(Exception):
        pass

    def from_worker(file: str, line: str) -> ValueError:
        error = ValueError("odd")
        error.__cause__ = Remote(f'Traceback:\n  File "{file}", line 3, in f\n    {line}\nValueError: odd\n')
        return error

    assert defects.is_of_the_user(from_worker(f"{package}/sim/simulate.py", "raise ValueError('odd')"))
    assert not defects.is_of_the_user(from_worker(f"{package}/sim/simulate.py", "x = names.index(y)"))
    assert not defects.is_of_the_user(from_worker("/usr/lib/python/json.py", "raise ValueError('odd')"))


def test_memory_the_system_and_interrupts_have_their_codes() -> None:
    assert ended(raising(MemoryError()))[0] == 2
    assert "memory" in ended(raising(MemoryError()))[1]
    assert ended(raising(OSError(28, "No space left on device")))[0] == 2
    assert ended(raising(OSError(5, "Input/output error", "some.file")))[1].startswith("stepsim: some.file: ")
    assert ended(raising(KeyboardInterrupt()))[0] == 130
    assert ended(raising(BrokenPipeError(32, "Broken pipe"))) == (141, "")
    assert ended(raising(typer.Exit(1)))[0] == 1


def test_a_traceback_can_be_had_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSIM_TRACEBACK", "1")
    code, said = ended(OURS["a key"])
    assert code == 3
    assert "Traceback" in said
    assert "defect of stepsim" in said


# Standard output --------------------------------------------------------------------------------------------


def piped(*words: str, shell: str = "") -> tuple[int, str]:
    """Exit code and stderr of the real command, its output as ``shell`` says."""
    command = f'"$@" {shell}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command, "bash", *STEPSIM, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("run", "--help"), ("schema",), tuple(JOB)])
def test_a_full_output_is_an_error(words: tuple[str, ...]) -> None:
    code, said = piped(*words, shell="> /dev/full")
    assert code == 2
    assert "standard output" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("words", [("--help",), (*JOB, "--json"), ("list", "gpus")])
def test_a_closed_output_is_an_error(words: tuple[str, ...]) -> None:
    code, said = piped(*words, shell=">&-")
    assert code == 2
    assert "standard output" in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), tuple(JOB), (*JOB, "--json"), ("schema",)])
def test_a_reader_that_leaves_is_no_error(words: tuple[str, ...]) -> None:
    assert piped(*words, shell="| true") == (141, "")


@pytest.mark.slow
def test_closed_messages_change_no_exit_code() -> None:
    assert piped("run", "no-such-scenario", shell="2>&-")[0] == 2
    assert piped("list", "gpus", shell="2>&-")[0] == 0


@pytest.mark.slow
def test_an_interrupt_ends_with_130() -> None:
    """The signal comes while the scenario is loaded."""
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it without
from stepsim.cli.main import main
from stepsim.sim.scenario import load
load.load_scenario = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["stepsim", "run", "llama3-8b-h100"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() == "stepsim: interrupted"


# Texts of users ---------------------------------------------------------------------------------------------

STEERING = '"[/b][red]x :smile: \\e[31m\\x9b2J\\u202e"'


@pytest.mark.parametrize(
    "command", [("run",), ("memory",), ("cluster",), ("faults", "-n", "1"), ("run", "--json")]
)
def test_titles_print_as_they_are_written(command: tuple[str, ...]) -> None:
    words = [command[0], "llama3-8b-h100", "--set", f"title={STEERING}", *command[1:]]
    if command[0] == "faults":
        words += ["--set", "faults.processes=[{kind: gpu_fatal, rate_per_unit_day: 0.01}]"]
        words += ["--set", "run.work=1 d", "--set", "checkpoint.storage.every=1 h"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert not any(letter in done.output for letter in "\x1b\x07\x9b\u202e")
    if command[0] in ("run", "faults") and "--json" not in command:
        assert "[/b][red]x :smile: \\x1b[31m\\x9b2J\\u202e" in done.output


def test_names_in_errors_print_as_they_are_written() -> None:
    done = CliRunner().invoke(app, ["run", "\x1b[31mx"])
    assert done.exit_code == 2
    assert "\\x1b[31mx" in done.stderr
    assert "\x1b" not in done.stderr


@given(st.text())
def test_what_is_printable_steers_nothing_and_is_utf8(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert printable(shown) == shown
    assert all(letter in "\n\t" or ord(letter) >= 0x20 for letter in shown)
    assert not any("\x7f" <= letter <= "\x9f" for letter in shown)
    assert len(printable_line(text).splitlines()) <= 1


@given(st.text(), st.text())
def test_pictures_are_xml_whatever_users_write(title: str, words: str) -> None:
    from xml.etree.ElementTree import fromstring

    parts = [svg.text(0, 0, words, fill=title), svg.rect(0, 0, 1, 1, words)]
    root = fromstring(svg.document(title, parts, 10, 10))
    texts = [printable_line(title), printable_line(words)]
    assert [root[0].text or "", root[1].text or ""] == texts
    assert root[1].get("fill") == texts[0]


def test_only_so_many_problems_are_told(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("extends: llama3-8b-h100\n" + "".join(f"key{i}: {'x' * 1000}\n" for i in range(900)))
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 2
    assert "and 880 more" in done.stderr
    assert len(done.stderr) < 20 * 1000
    file.write_text(f"extends: llama3-8b-h100\nmodel: {'x' * 100_000}\n")
    assert len(CliRunner().invoke(app, ["run", str(file)]).stderr) < 2000


@pytest.mark.parametrize(
    "content", ["root:$6$SECRET:1:0:::\ndaemon:*:\n", "root: [SECRET\n", "SECRET\n", "a: SECRET\nb: 1\n"]
)
def test_lines_of_what_is_no_scenario_are_not_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "shadow").write_text(content)
    (tmp_path / "job.yaml").write_text("extends: ./shadow\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "job.yaml")])
    assert done.exit_code == 2
    assert "SECRET" not in done.stderr


def test_chains_and_long_fields_end(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    assert "32 documents" in CliRunner().invoke(app, ["run", str(tmp_path / "0.yaml")]).stderr
    for change in (".".join("a" * 500) + "=1", "model=" + "[" * 100_000, "model=" + "{a: " * 500):
        done = CliRunner().invoke(app, ["run", "llama3-8b-h100", "--set", change])
        assert done.exit_code == 2
        assert len(done.stderr) < 1000


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, word in ((tmp_path / "pipe.yaml", "pipe"), (tmp_path, "folder"), (Path("/dev/null"), "device")):
        done = CliRunner().invoke(app, ["run", str(path)])
        assert done.exit_code == 2
        assert word in done.stderr


# A mistake in the options ------------------------------------------------------------------------------

SLIPS = {
    (
        "plan",
        "x.yaml",
        "--top",
        "0",
    ): "stepsim: --top: '0' is too small; it must be 1 or more (stepsim plan --help)",
    (
        "plan",
        "x.yaml",
        "--top",
        "a",
    ): "stepsim: --top: a whole number is needed, not 'a' (stepsim plan --help)",
    ("plan",): "stepsim: missing argument 'SCENARIO' (stepsim plan --help)",
    ("pln", "x.yaml"): "stepsim: no command is called 'pln'. Did you mean plan? Known: run, ",
    ("calibrate", "bogus"): "stepsim: no command is called 'bogus'. Known: steps, ",
    (
        "run",
        "x.yaml",
        "--timelin",
        "a",
    ): "stepsim: no option is called '--timelin'. Did you mean --timeline? Known: ",
    (
        "sweep",
        "x.yaml",
        "--vary",
        "cluster.gpus=8,16",
    ): "stepsim: no option is called '--vary'. Did you mean --set? Known: ",
    ("run", "x.yaml", "--fix", "tp=2"): "stepsim: no option is called '--fix'. Did you mean --set? Known: ",
    ("faults", "x.yaml", "--days", "3"): "stepsim: no option is called '--days'. Known: ",
    ("list", "gpuss"): "stepsim: KIND: 'gpuss' is not one of 'scenarios', ",
}


@pytest.mark.parametrize(("words", "said"), SLIPS.items(), ids=map(" ".join, SLIPS))
def test_a_slip_in_the_options_is_one_line(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the option, what stood there and what would be right."""
    monkeypatch.setattr(sys, "argv", ["stepsim", *words])
    assert _code() == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith(said)


def test_a_bare_command_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stepsim", "calibrate"])
    assert _code() == 2
    assert "Measure, and fit constants to measurements." in capsys.readouterr().err


CHANGES = {
    ("plan", "llama3-8b-h100", "--vary", "cluster.gpus=a,b"): "--fix, --vary: cluster.gpus: ",
    ("plan", "llama3-8b-h100", "--find", "gpus", "--fix", "cluster.gpu=foo"): "--fix, --vary: cluster.gpu: ",
    ("sweep", "llama3-8b-h100", "--set", "cluster.gpus=16..8"): "--set: cluster.gpus: ",
    (
        "compare",
        "llama3-8b-h100",
        "llama3-8b-h100",
        "--set-a",
        "parallelism.tp=99",
    ): "--set-a: parallelism.tp: ",
    (
        "compare",
        "llama3-8b-h100",
        "llama3-8b-h100",
        "--set-b",
        "parallelism.tp=99",
    ): "--set-b: parallelism.tp: ",
    ("validate", "run.yaml"): "run.yaml: set: parallelism.tp: ",
}


@pytest.mark.parametrize(("words", "where"), CHANGES.items(), ids=map(" ".join, CHANGES))
def test_what_is_wrong_with_a_change_stands_where_it_was_written(
    words: tuple[str, ...], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = "scenario: llama3-8b-h100\nset: {parallelism.tp: 3}\nmeasured: {step_time_s: 3}\n"
    Path("run.yaml").write_text(run)
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"stepsim: {where}")
