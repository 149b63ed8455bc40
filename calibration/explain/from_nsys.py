"""Reports of Nsight Systems (exported to SQLite) as steps: kernels, their launches, and NVTX ranges as steps.

Knows which ranges mark steps, by their text. Messages' sizes are not read; their kernels are.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...hardware.files import open_database
from ..readers.kernel_kinds import kind_of_kernel
from ..readers.nsys import device_of, kernel_rows, launch_spans, nvtx_ranges
from .from_kineto import steps_of
from .step_record import DeviceOp, RankTrace

_STEP = re.compile(
    r"(?:ProfilerStep|(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?))[ _#:=-]*(\d+)$", re.IGNORECASE
)


def read_nsys_steps(path: Path) -> tuple[RankTrace, ...]:
    """The steps of every GPU of a report. ValueError as ``read_nsys``."""
    with open_database(path) as base:
        device, gpu = device_of(path, base)
        launches = launch_spans(path, base)
        ops: dict[int, list[tuple[DeviceOp, float | None]]] = {}
        for span, name, correlation, number in kernel_rows(path, base):
            call = launches.get(correlation)
            op = DeviceOp(
                name=name,
                kind=kind_of_kernel(name),
                start_s=span[0],
                end_s=span[1],
                issued_s=call[1] if call else None,
            )
            ops.setdefault(number, []).append((op, call[0] if call else None))
        marked = {
            f"ProfilerStep#{found[1]}": span
            for said, span in nvtx_ranges(path, base)
            if (found := _STEP.match(said))
        }
    return tuple(
        RankTrace(
            file=str(path),
            rank=number,
            world=len(ops),
            device=device,
            gpu=gpu,
            steps=steps_of(found, marked),
            marked=bool(marked),
        )
        for number, found in sorted(ops.items())
    )
