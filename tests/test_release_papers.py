"""What goes with a release says the same as the package: versions, pins, Pythons."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from checkout import ROOT

import stepsim

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)(?: ; ([^\\]+?))? \\$", re.MULTILINE)
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.search(r"^## \[(\S+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released
    assert (citation["version"], str(citation["date-released"])) == released.groups()
    assert citation["version"] == stepsim.__version__
    assert citation["license"] == PROJECT["license"]


def test_hosted_checks_run_on_every_python_that_is_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    promised = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert promised[0] == PROJECT["requires-python"].removeprefix(">=")
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == promised


def test_what_hosted_checks_call_is_there() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in {line.split()[1] for line in lines if line.startswith("make ")}:
        assert re.search(rf"^{re.escape(target.replace('.venv', '$(VENV)'))}:", makefile, re.MULTILINE), (
            target
        )
    for script in {line.split()[0] for line in lines if line.startswith(".ci/")}:
        assert (ROOT / script).stat().st_mode & 0o100


@pytest.mark.parametrize("extra", ["", "test", "dev", "page"])
def test_the_lock_has_what_is_required(extra: str) -> None:
    packaging = pytest.importorskip("packaging.requirements")
    stated = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    pinned: dict[str, list[str]] = {}
    for name, version, _ in PIN.findall(LOCK):
        pinned.setdefault(name, []).append(version)
    for line in stated:
        wanted = packaging.Requirement(line)
        versions = pinned.get(wanted.name.lower().replace("_", "-"), [])
        assert versions, f"{line}: run make lock"
        assert all(wanted.specifier.contains(version) for version in versions), f"{line}: run make lock"


def test_every_pin_has_its_hashes() -> None:
    entries = re.split(r"\n(?=[a-z0-9])", LOCK[LOCK.index("\n", LOCK.rindex("#    ")) + 1 :].strip())
    assert len(entries) == len(PIN.findall(LOCK))
    assert all("--hash=sha256:" in entry for entry in entries)
