"""A user's own runs beside their predictions (calibration/cases/own_run.py says how a run is described)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...sim.simulate import simulate
from ..cases.own_run import RunFigures, read_run
from .grids import Grid


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A run's file beside its prediction; errors are predicted over measured, minus 1."""

    file: str
    measured: RunFigures
    step_time_s: float
    memory_bytes: float

    @property
    def time_error(self) -> float | None:
        """Error of the step time; None where it was not measured."""
        return _error(self.step_time_s, self.measured.step_time_s)

    @property
    def memory_error(self) -> float | None:
        """Error of the memory; None where it was not measured."""
        return _error(self.memory_bytes, self.measured.memory_bytes)


def judge_run(path: Path) -> JudgedRun:
    """The prediction of the run that ``path`` describes.

    Raises:
        ValueError: the file is none, or what the import asks and refuses.
    """
    own, scenario = read_run(path)
    result = simulate(scenario)
    return JudgedRun(
        file=str(path),
        measured=own.measured,
        step_time_s=result.step_time_s,
        memory_bytes=result.peak_memory_bytes,
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
