"""What every test file may lean on: where the shared data lies, and repeatable random tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

# Before anything loads numpy, as the command does it: BLAS threads of several workers would wait for one
# another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every machine and every run, and no verdict that depends on how busy the machine is.
# HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile(
    "repeatable", max_examples=40, derandomize=True, database=None, deadline=None, print_blob=False
)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take the slow tests first, so that none of them is at work alone when the others are done."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the collector need not look through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> None:
    from built_commands import build_commands_once

    build_commands_once()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout, which is the package."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared data (published runs, golden orders): $STEPSIM_SHARED, else ../shared of the checkout."""
    folder = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"shared data not found at {folder} (set STEPSIM_SHARED)")
    return folder
