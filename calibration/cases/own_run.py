"""A user's own run: the scenario or the files of a framework that say what ran, and what it took.

A small YAML says which, and what was measured; what the files do not hold is given beside them:

    run: [train.sh, ds_config.json]
    given: { gpu: H100-SXM5-80GB, gpus: 64, interconnect: ib-ndr400-x8 }
    framework_version: core_v0.12.0
    measured: { step_time_s: 4.31, memory_bytes: 61.5e9 }

or

    scenario: job.yaml
    set: { parallelism.tp: 4 }
    measured: { step_time_s: 4.31 }
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ...hardware.explain import lines
from ...hardware.fields import Text
from ...hardware.files import load_yaml, read_text
from ...hardware.shown import listed

if TYPE_CHECKING:
    from ...sim.scenario.models import Scenario

_STRICT = ConfigDict(extra="forbid", frozen=True)

LEAST_MEMORY_BYTES = 1e7
"""No training step holds less: a CUDA context alone takes hundreds of megabytes. What is below is in GB."""


LEAST_STEP_S = 1e-5
"""No training step takes less: launching a kernel alone takes microseconds. What is below is no seconds."""


class RunFigures(BaseModel):
    """What a run took: seconds a step, bytes of the fullest GPU; one of them at least."""

    model_config = _STRICT

    step_time_s: Annotated[float, Field(ge=LEAST_STEP_S, le=1e6, allow_inf_nan=False)] | None = None
    memory_bytes: Annotated[float, Field(ge=LEAST_MEMORY_BYTES, le=1e13, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _of_something(self) -> RunFigures:
        if self.step_time_s is None and self.memory_bytes is None:
            raise ValueError("nothing is measured; give step_time_s, memory_bytes or both")
        return self


class OwnRun(BaseModel):
    """One run: a scenario with changes, or files of a framework with what is given beside them, each from the
    folder of this one; and what was measured."""

    model_config = _STRICT

    scenario: Text | None = None
    set: dict[str, Any] = {}
    run: Text | tuple[Text, ...] = ()
    given: dict[str, Any] = {}
    framework: Text | None = None
    framework_version: Text | None = None
    measured: RunFigures

    @model_validator(mode="after")
    def _of_one_kind(self) -> OwnRun:
        if bool(self.scenario) == bool(self.run):
            raise ValueError("give either scenario, or run with the files of a framework")
        if self.scenario and (self.given or self.framework or self.framework_version):
            raise ValueError("given, framework and framework_version belong to run; scenario takes set")
        if self.run and self.set:
            raise ValueError("set belongs to scenario; run takes given")
        return self


def is_run(path: Path) -> bool:
    """Whether a file describes a user's own run; what cannot be read is left to whoever reads cases."""
    try:
        document = load_yaml(read_text(path), path)
    except ValueError:
        return False
    return (
        isinstance(document, dict)
        and ("run" in document or "scenario" in document)
        and "measured" in document
    )


def read_run(path: Path) -> tuple[OwnRun, Scenario]:
    """What ``path`` says of a run, and the scenario that ran.

    Raises:
        ValueError: the file does not describe a run, or its scenario or the import of its files is refused.
    """
    from ...sim.scenario.errors import changes_named
    from ...sim.scenario.importers.entry import import_files
    from ...sim.scenario.load import load_scenario, scenario_from_document

    try:
        own = OwnRun.model_validate(load_yaml(read_text(path), path))
    except ValidationError as failure:
        raise ValueError(listed(lines(str(path), failure, OwnRun))) from None
    if own.scenario:
        beside = path.parent / own.scenario
        with changes_named(f"{path}: set"):
            return own, load_scenario(beside if beside.is_file() else own.scenario, own.set)
    names = [own.run] if isinstance(own.run, str) else own.run
    given = [f"{name}={value}" for name, value in own.given.items()]
    files = [path.parent / name for name in names]
    imported = import_files(files, given, framework=own.framework, version=own.framework_version)
    return own, scenario_from_document(imported.document, path.stem)
