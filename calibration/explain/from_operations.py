"""Logs of operations (NDTimeline, as ByteDance publishes them) as steps: one op for each pass and message.

Knows that such a log has no kernels: computing is one part, and host times are not in it.
"""

from __future__ import annotations

from pathlib import Path

from ..readers.kernel_kinds import Kind
from ..readers.operation_log import OperationLog, read_operation_log
from .step_record import DeviceOp, RankStep, RankTrace

_AXES = {"forward-send": "pp", "forward-recv": "pp", "backward-send": "pp", "backward-recv": "pp"}
_AXES |= {"embedding-grads-all-reduce": "pp", "layernorm-grads-all-reduce": "tp"}
_AXES |= dict.fromkeys(("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"), "dp")
_AXES |= {"optimizer-clip-main-grad": "dp"}


def read_operation_steps(path: Path) -> tuple[RankTrace, ...]:
    """The steps of every rank in the log. ValueError as ``read_operation_log``."""
    log = read_operation_log(path)
    found = []
    for rank, rows in log.by_rank():
        steps = tuple(_step(log, str(step), list(inside)) for step, inside in log.by_step(rows))
        found.append(
            RankTrace(
                file=f"{path}: rank {rank}",
                rank=rank,
                world=log.ranks,
                device="",
                gpu=None,
                steps=steps,
                lost={},
            )
        )
    return tuple(found)


def _step(log: OperationLog, name: str, rows: list[int]) -> RankStep:
    ops = tuple(_op(log, row) for row in rows)
    begin, end = min(op.start_s for op in ops), max(op.end_s for op in ops)
    return RankStep(name=name, took_s=end - begin, begin_s=begin, end_s=end, ops=ops)


def _op(log: OperationLog, row: int) -> DeviceOp:
    kind = log.kind[row]
    of: Kind = "communication" if kind in _AXES else "optimizer" if kind == "optimizer" else "compute"
    start = float(log.start_s[row])
    return DeviceOp(
        name=kind,
        kind=of,
        start_s=start,
        end_s=start + float(log.duration_s[row]),
        stream=kind if of == "communication" else "compute",
        axis=_AXES.get(kind, ""),
        microbatch=int(log.microbatch[row]) if log.microbatch[row] >= 0 else None,
    )
