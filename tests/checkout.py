"""What lies in the checkout: packages, their modules and data. The tests of the house read it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = CONFIG["tool"]["setuptools"]["packages"]


def folder(package: str) -> Path:
    """The folder of ``stepsim.sim.lowering``: the root is ``stepsim``."""
    return ROOT.joinpath(*package.split(".")[1:])


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; a package's name stands for its __init__."""
    found = {}
    for package in PACKAGES:
        for path in sorted(folder(package).glob("*.py")):
            found[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return found
