"""Reports of Nsight Systems (exported to SQLite) as steps: kernels, their launches, and NVTX ranges as steps.

Knows which ranges mark steps, by their text, and how NCCL's calls are written beside the kernels that they
launched. A kernel that a group of calls launched has none, since its group ends behind all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...hardware.files import open_database, size_text
from ..readers.kernel_kinds import kind_of_kernel
from ..readers.nccl_payloads import NcclCall
from ..readers.nsys import device_of, kernel_rows, launch_spans, message_ranges, nvtx_ranges
from .from_kineto import steps_of
from .step_record import DeviceOp, RankTrace

_STEP = re.compile(
    r"(?:ProfilerStep|(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?))[ _#:=-]*(\d+)$", re.IGNORECASE
)


def read_nsys_steps(path: Path) -> tuple[RankTrace, ...]:
    """The steps of every GPU of a report. ValueError as ``read_nsys``."""
    with open_database(path) as base:
        device, gpu = device_of(path, base)
        launches, messages = launch_spans(path, base), message_ranges(path, base)
        ops: dict[int, list[tuple[DeviceOp, float | None]]] = {}
        for span, name, correlation, number in kernel_rows(path, base):
            call = launches.get(correlation)
            around = messages.around(correlation) if messages else None
            sent = around[0] if around else None
            op = DeviceOp(
                name=name,
                kind=kind_of_kernel(name),
                start_s=span[0],
                end_s=span[1],
                issued_s=call[1] if call else None,
                group=f"communicator {sent.communicator}" if sent else "",
                operator=sent.name if sent else "",
                shape=_shape_words(sent) if sent else "",
            )
            ops.setdefault(number, []).append((op, call[0] if call else None))
        marked = {
            f"ProfilerStep#{found[1]}": span
            for said, span in nvtx_ranges(path, base)
            if (found := _STEP.match(said))
        }
    callers = _callers(ops)
    return tuple(
        RankTrace(
            file=str(path),
            rank=number,
            world=len(ops),
            device=device,
            gpu=gpu,
            steps=steps_of([(_joined(op, callers), at) for op, at in found], marked),
            marked=bool(marked),
        )
        for number, found in sorted(ops.items())
    )


def _shape_words(call: NcclCall) -> str:
    """What a call moves, as the shape of its op."""
    with_whom = "" if call.peer is None else f" with rank {call.peer}"
    return f"{size_text(call.size_bytes)}{with_whom}"


def _callers(ops: Mapping[int, Sequence[tuple[DeviceOp, float | None]]]) -> dict[str, tuple[int, ...]]:
    """The GPUs of the report that call each communicator; the name of one is unique within the job."""
    found: dict[str, set[int]] = {}
    for number, own in ops.items():
        for op, _ in own:
            if op.group:
                found.setdefault(op.group, set()).add(number)
    return {name: tuple(sorted(members)) for name, members in found.items()}


def _joined(op: DeviceOp, callers: Mapping[str, tuple[int, ...]]) -> DeviceOp:
    """A message with the ranks of its communicator, where more than one of them is in the report."""
    members = callers.get(op.group, ())
    return replace(op, ranks=members) if len(members) > 1 else op
