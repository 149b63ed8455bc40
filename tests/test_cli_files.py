"""Files of commands: no input is overwritten by any name, and what cannot be written leaves the old file."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from validation_cases import case_document, write_cases

from stepsim.cli.main import app
from stepsim.hardware.files import writing
from stepsim.hardware.files.errors import FileError

BASE = """
cluster: {gpu: H100-SXM5-80GB, gpus: 4, gpus_per_node: 2, interconnect: ib-ndr400-x8, fabric: {kind: custom,
  file: net.yaml}}
training: {global_batch: 8, micro_batch: 1, seq_length: 512, precision: bf16,
  routing: {kind: counts, file: counts.json}}
software: megatron-core-2024
"""
JOB = """
extends: base.yaml
title: A small job
model: ./config.json
parallelism: {pp: 2, ep: 2}
schedule: orders.csv
calibration: [own.yaml]
"""
CONFIG = {
    "model_type": "mixtral",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 32000,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "hidden_act": "silu",
    "sliding_window": None,
}
CAMPAIGN = """
step_time: 10 s
cluster: {gpus: 512, gpus_per_node: 8}
faults: {events: [{trace: in.csv}]}
run: {work: 1 d, replications: 1}
"""
TRACE = "time,kind,target,duration,magnitude\n3600,gpu_fatal,gpu/3,,\n"
INPUTS = ("job.yaml", "base.yaml", "config.json", "orders.csv", "counts.json", "net.yaml", "own.yaml")
OUTPUTS = {
    "--timeline": ".svg",
    "--trace": ".json",
    "--spans": ".csv",
    "--topology": ".svg",
    "--save-program": ".json",
}


@pytest.fixture
def folder(tmp_path: Path, root: Path) -> Path:
    """A job that is told by seven files, a campaign with a trace, and a saved program."""
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "counts.json").write_text("[4, 3, 2, 1]")
    (tmp_path / "own.yaml").write_text("profile: 1\ngpu: H100-SXM5-80GB\nclock_fraction: 0.9\n")
    (tmp_path / "net.yaml").write_text((root / "hardware/graphs/two-hosts.yaml").read_text())
    ends("schedule", "1f1b", "-p", 2, "-m", 4, "--csv", tmp_path / "orders.csv")
    (tmp_path / "weeks.yaml").write_text(CAMPAIGN)
    (tmp_path / "in.csv").write_text(TRACE)
    return tmp_path


def ends(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stderr


def state(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def names_of(file: Path, suffix: str) -> Iterator[Path]:
    """Other names of a file that an option with ``suffix`` takes, and its own where it takes that."""
    hard, soft = (file.with_name(f"{kind}-{file.stem}{suffix}") for kind in ("hard", "soft"))
    hard.hardlink_to(file)
    soft.symlink_to(file.name)
    yield hard
    yield soft
    if file.suffix == suffix:
        yield file


@pytest.mark.slow
@pytest.mark.parametrize("option", OUTPUTS)
@pytest.mark.parametrize("name", INPUTS)
def test_no_input_of_a_run_is_overwritten(folder: Path, name: str, option: str) -> None:
    names = list(names_of(folder / name, OUTPUTS[option]))
    before = state(folder)
    for other in names:
        said = ends("run", folder / "job.yaml", option, other, code=2)
        assert other.name in said or name in said
        assert option in said
        assert state(folder) == before


def test_the_job_of_these_tests_runs(folder: Path) -> None:
    """Else they would all be refused for another reason."""
    files = [word for option, suffix in OUTPUTS.items() for word in (option, folder / f"out{option}{suffix}")]
    ends("run", folder / "job.yaml", *files)
    assert {f"out{option}{suffix}" for option, suffix in OUTPUTS.items()} <= set(state(folder))
    assert not [name for name in state(folder) if name.startswith(writing.UNFINISHED)]


def refused(folder: Path, *words: object) -> None:
    before = state(folder)
    assert "\n" in ends(*words, code=2)
    assert state(folder) == before


@pytest.mark.slow
def test_no_input_of_other_commands_is_overwritten(folder: Path) -> None:
    for name in ("weeks.yaml", "in.csv"):
        for other in list(names_of(folder / name, ".csv")):
            refused(folder, "faults", folder / "weeks.yaml", "--events", other)
    for name in ("job.yaml", "base.yaml"):
        for other in list(names_of(folder / name, ".svg")):
            refused(folder, "cluster", folder / "job.yaml", "--svg", other)
            refused(folder, "memory", folder / "job.yaml", "--picture", other)
    ends("run", folder / "job.yaml", "--save-program", folder / "saved.json")
    for other in list(names_of(folder / "saved.json", ".csv")):
        refused(folder, "replay", folder / "saved.json", "--spans", other)
    refused(folder, "replay", folder / "saved.json", "--trace", folder / "saved.json")
    for other in list(names_of(folder / "orders.csv", ".csv")):
        refused(folder, "schedule", folder / "orders.csv", "--csv", other)


def test_a_page_is_not_put_after_itself(folder: Path) -> None:
    cases, page = folder / "cases.yaml", folder / "page.md"
    write_cases(cases, [case_document()])
    page.write_text("page")
    for other in list(names_of(page, ".md")):
        refused(folder, "validate", cases, "--markdown", page, "--append", other)


def test_two_views_have_two_files(folder: Path) -> None:
    both = folder / "both.json"
    refused(folder, "run", folder / "job.yaml", "--trace", both, "--save-program", both)
    both.symlink_to("one.json")
    before = state_of_links(folder)
    ends("run", folder / "job.yaml", "--trace", both, "--save-program", folder / "one.json", code=2)
    assert state_of_links(folder) == before


def state_of_links(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def old_views(folder: Path) -> list[object]:
    words: list[object] = []
    for option, suffix in OUTPUTS.items():
        view = folder / f"old{option}{suffix}"
        view.write_text("old")
        words += [option, view]
    return words


@pytest.mark.slow
@pytest.mark.parametrize("option", OUTPUTS)
def test_a_full_disk_leaves_the_old_file(folder: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the file is to take its name: whatever wrote it, what it wrote is not there."""
    words = old_views(folder)
    words = words[words.index(option) : words.index(option) + 2]
    before = state(folder)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self), None, str(target))

    monkeypatch.setattr(Path, "replace", full)
    said = ends("run", folder / "job.yaml", *words, code=2)
    assert f"{words[1]}: cannot be written: No space left on device" in said
    assert writing.UNFINISHED not in said
    assert state(folder) == before


@pytest.mark.slow
def test_a_file_that_grows_beyond_what_is_allowed_leaves_the_old_one(folder: Path) -> None:
    """The system itself stops the writer midway, in a process of its own."""
    words = [str(word) for word in old_views(folder)]
    before = state(folder)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    command = [sys.executable, "-B", "-m", "stepsim.cli.main", "run", str(folder / "job.yaml"), *words]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("cannot be written: File too large")
    assert str(folder / "old") in done.stderr
    assert state(folder) == before


def test_folders_that_take_no_file(folder: Path) -> None:
    """A folder of the system, and one that cannot be made; root may write into any other."""
    (folder / "file").write_text("")
    for path in (Path("/proc/out.svg"), folder / "file" / "out.svg", folder / "file" / "below" / "out.svg"):
        before = state(folder)
        assert str(path) in ends("run", folder / "job.yaml", "--timeline", path, code=2)
        assert state(folder) == before


def test_a_read_only_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = old_views(folder)[:2]
    before = state(folder)

    def read_only(path: str, flags: int, *more: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system")
        return opened(path, flags, *more)

    opened = os.open
    monkeypatch.setattr(os, "open", read_only)
    said = ends("cluster", "llama3-70b-h100", "--svg", words[1], code=2)
    assert f"{words[1]}: cannot be written: Read-only file system" in said
    monkeypatch.undo()
    assert state(folder) == before


def test_shipped_constants_are_written_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepsim.calibration.fit.profile_file import write_profile
    from stepsim.hardware.calibrated.overlay import load_profile

    profile = load_profile("H100-SXM5-80GB")
    write_profile(profile, folder)
    before = state(folder)

    def fail(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(FileError) as refused:
        write_profile(profile, folder)
    assert refused.value.file == str(folder / "H100-SXM5-80GB.yaml")
    assert refused.value.reason.endswith(os.strerror(errno.ENOSPC))
    assert state(folder) == before
