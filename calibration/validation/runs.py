"""A user's own runs beside their predictions: files of a framework, and what the run took.

A small YAML says which files, what they do not hold, and what was measured:

    run: [train.sh, ds_config.json]
    given: { gpu: H100-SXM5-80GB, gpus: 64, interconnect: ib-ndr400-x8 }
    framework_version: core_v0.12.0
    measured: { step_time_s: 4.31, memory_bytes: 61.5e9 }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...hardware.explain import lines
from ...hardware.fields import Text
from ...hardware.files import load_yaml, read_text
from ...hardware.shown import listed
from ...sim.scenario.importers.entry import import_files
from ...sim.scenario.load import scenario_from_document
from ...sim.simulate import simulate
from .grids import Grid

_STRICT = ConfigDict(extra="forbid", frozen=True)


class RunFigures(BaseModel):
    """What a run took: seconds a step, bytes of the fullest GPU; one of them at least."""

    model_config = _STRICT

    step_time_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    memory_bytes: Annotated[float, Field(gt=0, le=1e13)] | None = None


class OwnRun(BaseModel):
    """One run: its files, from the folder of this one, what is given beside them, and what was measured."""

    model_config = _STRICT

    run: Text | tuple[Text, ...]
    given: dict[str, Any] = {}
    framework: Text | None = None
    framework_version: Text | None = None
    measured: RunFigures


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A run's file beside its prediction; errors are predicted over measured, minus 1."""

    file: str
    measured: RunFigures
    step_time_s: float
    memory_bytes: float

    @property
    def time_error(self) -> float | None:
        """Of the step time; None where it was not measured."""
        return _error(self.step_time_s, self.measured.step_time_s)

    @property
    def memory_error(self) -> float | None:
        """Of the memory; None where it was not measured."""
        return _error(self.memory_bytes, self.measured.memory_bytes)


def is_run(path: Path) -> bool:
    """Whether a file describes a user's own run; what cannot be read is left to whoever reads cases."""
    try:
        document = load_yaml(read_text(path), path)
    except ValueError:
        return False
    return isinstance(document, dict) and "run" in document and "measured" in document


def judge_run(path: Path) -> JudgedRun:
    """The prediction of the run that ``path`` describes.

    Raises:
        ValueError: the file is none, or what the import asks and refuses.
    """
    try:
        own = OwnRun.model_validate(load_yaml(read_text(path), path))
    except ValidationError as failure:
        raise ValueError(listed(lines(str(path), failure, OwnRun))) from None
    names = [own.run] if isinstance(own.run, str) else own.run
    given = [f"{name}={value}" for name, value in own.given.items()]
    files = [path.parent / name for name in names]
    imported = import_files(files, given, framework=own.framework, version=own.framework_version)
    result = simulate(scenario_from_document(imported.document, path.stem))
    peak = max(one.peak_bytes for one in result.memory)
    return JudgedRun(
        file=str(path), measured=own.measured, step_time_s=result.step_time_s, memory_bytes=float(peak)
    )


def runs_grid(judged: Sequence[JudgedRun]) -> Grid:
    """A row for each run."""
    rows = tuple(
        (
            one.file,
            _number(one.measured.step_time_s),
            _number(one.step_time_s),
            _percent(one.time_error),
            _number(one.measured.memory_bytes, 1e-9),
            _number(one.memory_bytes, 1e-9),
            _percent(one.memory_error),
        )
        for one in judged
    )
    columns = ("run", "measured s", "predicted s", "error", "measured GB", "predicted GB", "error")
    return Grid(title="Own runs", columns=columns, rows=rows, labels=1)


def _error(predicted: float, measured: float | None) -> float | None:
    return None if measured is None else predicted / measured - 1


def _number(value: float | None, factor: float = 1.0) -> str:
    return "" if value is None else f"{value * factor:.4g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"
