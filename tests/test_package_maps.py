"""Packages of many modules have a map in the docstring of their ``__init__``, which names every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from checkout import ROOT

MANY = 9
"""Modules from which on a list of files by the alphabet tells a reader nothing."""
REGISTRIES = ("schedules/collectives", "schedules/pipeline")
"""Packages in which nearly every module is one entry of a registry, named as users name it."""


def modules_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.py") if file.name != "__init__.py")


def large_packages() -> list[str]:
    """Packages of the wheel with many modules, but for registries."""
    tops = ("calibration", "cli", "hardware", "kernels", "page", "schedules", "sim")
    folders = [one.parent for top in tops for one in (ROOT / top).rglob("__init__.py")]
    named = {str(one.relative_to(ROOT)) for one in folders if len(modules_in(one)) >= MANY}
    assert named >= set(REGISTRIES)
    return sorted(named - set(REGISTRIES))


@pytest.mark.parametrize("folder", large_packages())
def test_a_map_names_the_modules_that_there_are(folder: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = modules_in(ROOT / folder)
    named = set(re.findall(r"\b\w+\.py\b", text))
    assert named == set(there), f"{folder}/__init__.py: its map lacks, or has too many: {named ^ set(there)}"
