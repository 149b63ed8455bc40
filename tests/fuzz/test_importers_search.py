"""The search for framework files that break an import: it finds what it looks for, and nothing in a few."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from fuzz import importers
from fuzz.importers import imported_batch, own_seeds, search, trial_of

SEEDS = list(own_seeds())


def test_a_few_files_break_nothing(tmp_path: Path) -> None:
    assert search(200, 0, tmp_path, None) == 0
    assert list(tmp_path.iterdir()) == []


def test_valid_files_are_imported_or_ask() -> None:
    endings = {importers.ending(trial_of([one], 0, 0)) for one in SEEDS}
    assert endings <= {"imported", "refused"}
    assert len({one.name for one in SEEDS}) > 8


def test_a_trial_is_the_same_every_time() -> None:
    assert trial_of(SEEDS, 3, 7) == trial_of(SEEDS, 3, 7)
    assert trial_of(SEEDS, 3, 7) != trial_of(SEEDS, 3, 8)


def _fails(*_: object) -> NoReturn:
    raise KeyError("a check that we forgot")


def _dies(*_: object) -> NoReturn:
    os._exit(9)


def _hangs(*_: object) -> NoReturn:
    while True:
        pass


@pytest.mark.parametrize(
    ("breaks", "told"), [(_fails, "KeyError"), (_dies, "the process ended"), (_hangs, "Hangs")]
)
def test_what_breaks_is_told_of_each_file(
    breaks: Callable[..., NoReturn], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importers, "import_of", breaks)
    monkeypatch.setattr(importers, "HANG_S", 0.05)
    utf8 = [number for number in range(40) if _is_text(trial_of(SEEDS, 0, number).content)][:2]
    for number in utf8:
        (found,) = imported_batch(SEEDS, 0, range(number, number + 1))
        assert found[1].startswith(told)


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
