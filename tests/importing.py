"""Short ways for tests of importers: files from text, their documents, and what a refusal names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.importers.draft import Imported
from stepsim.sim.scenario.importers.importer import ImportJob
from stepsim.sim.scenario.importers.registry import importer_of
from stepsim.sim.scenario.importers.settings import Given
from stepsim.sim.scenario.importers.sources import source_of
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario

MACHINE = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}
"""What no framework's file says."""


def imported(
    files: dict[str, str],
    given: dict[str, str] | None = None,
    version: str | None = None,
    framework: str | None = None,
) -> Imported:
    """The import of files by name and text, on the machine above, with more facts."""
    sources = tuple(source_of(text, Path(name)) for name, text in files.items())
    job = ImportJob(files=sources, given=Given(values=MACHINE | (given or {})), version=version)
    return importer_of(sources, framework).read(job)


def scenario(files: dict[str, str], given: dict[str, str] | None = None, **more: Any) -> Scenario:
    """The same as a scenario."""
    return scenario_from_document(imported(files, given, **more).document, "imported")


def refused(files: dict[str, str], given: dict[str, str] | None = None, **more: Any) -> set[str]:
    """The names in what the import, or the scenario that it makes, refuses; empty where nothing is
    refused."""
    try:
        scenario(files, given, **more)
    except ScenarioError as error:
        return {problem.path for problem in error.problems}
    return set()


def at(document: Any, path: str) -> Any:
    """The field of a document by its dotted path; None where there is none."""
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document
