"""Traces as a reader of the file finds them."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stepsim.sim.report.trace import write_trace
from stepsim.sim.result.result import Result


def trace_document(result: Result, *, rank: int | None = None) -> Any:
    """The whole trace as one object."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(result, path, rank=rank)
        return json.loads(path.read_bytes())
