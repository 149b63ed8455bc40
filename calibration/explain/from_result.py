"""A predicted step in the form in which traces are read, so that both are looked at by the same rules.

Knows results; does not know files.
"""

from __future__ import annotations

from ...sim.report.trace import event_category
from ...sim.result.result import Result
from ...sim.result.step import Span
from ..readers.kernel_kinds import Kind
from .axes import AXIS_OF
from .step_record import DeviceOp, RankStep, RankTrace

_KINDS: dict[str, Kind] = {"gemm": "GEMM", "attention": "attention", "memory-bound": "pointwise"}


def kind_of_priced(category: str, kind: str) -> Kind:
    """The kind of a kernel of ours by its category (compute, optimizer) and what it is priced as."""
    if category == "optimizer":
        return "optimizer" if kind != "fixed" else "other"
    return _KINDS.get(kind, "other")


def traces_of(result: Result) -> tuple[RankTrace, ...]:
    """Each class of ranks of a result as the trace of its first rank."""
    ops: list[list[DeviceOp]] = [[] for _ in result.ranks]
    for span in result.iter_spans():
        if event_category(span) != "cpu_op":
            ops[span.rank].append(_op(span))
    gpu = result.scenario.cluster.gpu_name if result.scenario else ""
    return tuple(
        RankTrace(
            file=ranks.name,
            rank=ranks.first_rank,
            world=result.gpus,
            device=gpu,
            gpu=gpu or None,
            predicted=True,
            steps=(
                RankStep(
                    name="0",
                    took_s=result.step_time_s,
                    begin_s=0.0,
                    end_s=result.step_time_s,
                    ops=tuple(found),
                ),
            ),
        )
        for ranks, found in zip(result.ranks, ops, strict=True)
    )


def _op(span: Span) -> DeviceOp:
    message = span.is_message
    kind: Kind = "communication" if message else kind_of_priced(span.category, span.kind)
    return DeviceOp(
        name=span.name,
        kind="copy" if event_category(span) == "gpu_memcpy" else kind,
        start_s=span.start_s,
        end_s=span.end_s,
        stream=span.stream,
        issued_s=span.issued_s,
        axis=AXIS_OF.get(span.category, "") if message else "",
        group=span.group or span.category if message else "",
    )
