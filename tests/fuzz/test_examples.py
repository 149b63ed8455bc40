"""The search itself, on what is known: valid files are answered, and what once broke the program does not."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from fuzz.corpus import COMMANDS
from fuzz.search import Trial, seed_of, trial_of, tried, warm_up

EXAMPLES = sorted(path for path in (Path(__file__).parent / "examples").iterdir() if path.is_dir())


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    warm_up()


@pytest.mark.slow
@pytest.mark.parametrize("file", COMMANDS)
def test_a_valid_file_is_answered(file: str) -> None:
    seed = seed_of(file)
    ended, wrong = tried(trial_of(seed, seed.content, seed.commands[0], file))
    assert (ended.code, wrong) == (0, []), ended.stderr


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_what_broke_a_command_is_mended(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "command"}
    words = tuple(shlex.split((folder / "command").read_text(encoding="utf-8")))
    ended, wrong = tried(Trial(name=folder.name, words=words, files=files))
    assert not wrong, f"exit code {ended.code}: {ended.stderr[-2000:]}"
