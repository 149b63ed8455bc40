"""Packages of many modules have a map in the docstring of their ``__init__``, which names every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from checkout import ROOT

MANY = 12
"""Modules from which on a list of files by the alphabet tells a reader nothing."""
MAPPED = (
    "calibration/explain",
    "calibration/readers",
    "hardware",
    "sim/bounded",
    "sim/brief",
    "sim/engine",
    "sim/evidence",
    "sim/fold",
    "sim/lowering",
    "sim/lowering/layers",
    "sim/network",
    "sim/program",
    "sim/reliability/campaign",
    "sim/report",
    "sim/scenario",
)


def modules_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.py") if file.name != "__init__.py")


@pytest.mark.parametrize("folder", MAPPED)
def test_a_map_names_the_modules_that_there_are(folder: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = modules_in(ROOT / folder)
    assert len(there) >= MANY
    named = set(re.findall(r"\b\w+\.py\b", text))
    assert named == set(there), f"{folder}/__init__.py: its map lacks, or has too many: {named ^ set(there)}"
