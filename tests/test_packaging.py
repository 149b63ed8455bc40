"""The root is the package: what that needs to hold in the checkout (for wheels: test_distributions.py)."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from checkout import PACKAGES, ROOT

import stepsim

NOT_SHIPPED = {"tests", "docs", "benchmarks", "build", "dist", "out"}


def python(code: str, **options: Any) -> str:
    """Stdout of ``code`` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_folder_with_an_init_is_listed() -> None:
    found = {
        ".".join(["stepsim", *path.parent.relative_to(ROOT).parts])
        for path in ROOT.rglob("__init__.py")
        if not any(part.startswith(".") or part in NOT_SHIPPED for part in path.relative_to(ROOT).parts)
    }
    assert found == set(PACKAGES)


def test_every_folder_with_modules_is_a_package() -> None:
    orphans = {
        path.parent
        for path in ROOT.rglob("*.py")
        if not any(part.startswith(".") or part in NOT_SHIPPED for part in path.relative_to(ROOT).parts)
        and not (path.parent / "__init__.py").exists()
    }
    assert not orphans


def test_the_root_imports_nothing() -> None:
    loaded = python(
        "import sys, stepsim; print(*(m for m in sys.modules if m.startswith('stepsim.')))", cwd="/"
    )
    assert loaded.split() == []


@pytest.mark.parametrize("name", stepsim.__all__)
def test_public_names_are_there(name: str) -> None:
    assert getattr(stepsim, name) is not None
    assert name in dir(stepsim)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="'simulat'"):
        stepsim.simulat  # noqa: B018


def test_version_is_the_installed_one() -> None:
    assert importlib.metadata.version("stepsim") == stepsim.__version__


def test_no_file_is_loaded_under_two_names() -> None:
    """pytest alone would do so: a root with an __init__.py looks to it like a package of another name.

    This process has collected the test files, whichever they are, and set up the folders above this one.
    """
    names: dict[Path, list[str]] = {}
    for name, module in list(sys.modules.items()):
        if name != "__main__" and getattr(module, "__file__", None):
            names.setdefault(Path(cast(str, module.__file__)).resolve(), []).append(name)
    ours = {
        file: found
        for file, found in names.items()
        if file.is_relative_to(ROOT) and not file.is_relative_to(ROOT / ".venv")
    }
    assert {ROOT / "__init__.py", Path(__file__).resolve()} <= ours.keys()
    assert {file: found for file, found in ours.items() if len(found) > 1} == {}
