"""Traces of torch's profiler (Kineto) as steps: those of GPUs, of CPUs without one, and this package's own.

Knows which ops belong to a step (those that it launched), who is in a group, and that a CPU's operators are
its kernels where there is no GPU. Does not know what a step should take.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..readers.events import Events, GpuEvent, Operator, events_of
from ..readers.foreign.gpu_named import gpu_named
from ..readers.foreign.values import shown, whole
from ..readers.groups import listed_ranks, named_groups
from ..readers.kernel_kinds import Kind, kind_of_kernel
from ..readers.kineto import devices_of, document_of, priced_kernel
from ..readers.traced import Span
from .axes import AXIS_OF
from .from_result import kind_of_priced
from .step_record import DeviceOp, RankStep, RankTrace

_RANK_OF_NAME = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_SENT = ("communication",)
_PRODUCTS = ("GEMM", "attention")
WHOLE = "whole trace"
NO_LAUNCH = "kernels whose launch is not in the trace, which no step can be told for"


def read_kineto(path: Path, content: bytes) -> tuple[RankTrace, ...]:
    """The steps of every rank in a trace, one rank a process of GPUs.

    Raises ValueError naming the file and the place in it: no trace, or one without an op to look at.
    """
    document = document_of(path, content)
    events = events_of(str(path), document["traceEvents"])
    info = document.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    reader = _Reader(path=path, document=document, info=info, events=events)
    if events.kernels:
        return tuple(reader.of_gpu(device, index) for index, device in enumerate(reader.devices()))
    if any(kind_of_kernel(op.name) == "GEMM" for op in events.host_ops):
        return (reader.of_cpu(),)
    raise ValueError(f"{path}: has neither a kernel of a GPU nor an operator of a CPU that computes")


class _Reader:
    """One document, read rank by rank."""

    def __init__(self, *, path: Path, document: Mapping[str, Any], info: Mapping[str, Any], events: Events):
        self.path, self.document, self.info, self.events = path, document, info, events
        own = document.get("stepsim")
        self.own: Mapping[str, Any] | None = own if isinstance(own, dict) else None
        self.groups = named_groups(f"{path}: distributedInfo", info)
        self.lost: Counter[str] = Counter()
        world = info.get("world_size")
        self.world = 1 if world is None else whole(f"{path}: distributedInfo: world_size", world, low=1)

    def devices(self) -> list[object]:
        """Processes with kernels, in the order of their names."""
        found = {one.device for one in self.events.kernels}
        return sorted(found, key=lambda device: (len(str(device)), str(device)))

    def rank(self, index: int) -> int:
        """The rank of a process: as the trace says, or as the file's name does."""
        if self.own is not None and isinstance(ranks := self.own.get("first_ranks"), list):
            # of a file for one class alone the process has its number among all classes
            pid = str(self.devices()[index][0])  # type: ignore[index]
            if pid.isdigit() and int(pid) < len(ranks):
                return whole(f"{self.path}: stepsim: first_ranks", ranks[int(pid)])
        told = self.info.get("rank")
        if told is not None:
            return whole(f"{self.path}: distributedInfo: rank", told) + index
        named = _RANK_OF_NAME.search(self.path.name)
        return (int(named[1]) if named and len(named[1]) < 9 else 0) + index

    def of_gpu(self, device: object, index: int) -> RankTrace:
        ops = [
            self._op(one, copy)
            for events, copy in ((self.events.kernels, False), (self.events.copies, True))
            for one in events
            if one.device == device
        ]
        rank = self.rank(index)
        name, gpu = self._gpu(device)
        return RankTrace(
            file=str(self.path),
            rank=rank,
            world=self.world,
            device=name,
            gpu=gpu,
            steps=self._steps(ops, str(device[0])),  # type: ignore[index]
            marked=bool(self.events.steps),
            predicted=self.own is not None,
            lost=dict(self.lost),
        )

    def of_cpu(self) -> RankTrace:
        """Operators that call no other one, and GEMMs with all that they call, are a CPU's kernels, each
        thread a stream; calls of c10d only post the messages that its backend marks.
        """
        messages = [op for op in self.events.annotations if kind_of_kernel(op.name) == "communication"]
        messages.sort(key=lambda op: op.span)
        inner = [
            op
            for op in _innermost(self.events.host_ops)
            if kind_of_kernel(op.name) != "communication" and not op.name.startswith("c10d::")
        ]
        ops = [self._host_op(op) for op in (*inner, *messages)]
        return RankTrace(
            file=str(self.path),
            rank=self.rank(0),
            world=self.world,
            device="CPU",
            gpu=None,
            steps=self._steps([(op, op.start_s) for op in ops], ""),
            marked=bool(self.events.steps),
            predicted=False,
            lost=dict(self.lost),
        )

    def _gpu(self, device: Any) -> tuple[str, str | None]:
        known = {number: (name, memory) for number, name, memory in devices_of(self.path, self.document)}
        name, memory = known.get(device[1], next(iter(known.values()), ("", 0.0)))
        return name, gpu_named(name, memory) if name else None

    def _steps(self, ops: list[tuple[DeviceOp, float | None]], process: str) -> tuple[RankStep, ...]:
        """The profiler's steps with what each launched; without any, all of the trace as one."""
        marked = self.events.steps
        own = {name: span for (pid, name), span in marked.items() if pid == process}
        spans = own or {name: span for (_, name), span in marked.items()}
        if spans and (unknown := sum(launched_s is None for _, launched_s in ops)):
            self.lost[NO_LAUNCH] += unknown
        return steps_of(ops, spans)

    def _op(self, one: GpuEvent, copy: bool) -> tuple[DeviceOp, float | None]:
        args = one.args
        operator = self.events.operators.get(one.launched_by) if one.launched_by is not None else None
        kind = self._kind(one, copy)
        group, ranks = self._group(one) if kind == "communication" else ("", ())
        begin, end = one.span
        microbatch = args.get("microbatch")
        return (
            DeviceOp(
                name=one.name,
                kind=kind,
                start_s=begin,
                end_s=end,
                stream=str(one.stream),
                issued_s=one.issued_s,
                axis=AXIS_OF.get(str(args.get("category")), "") if self.own and kind in _SENT else "",
                group=group,
                ranks=ranks,
                operator=operator.name if operator else "",
                shape=_shape(operator) if operator else "",
                microbatch=microbatch if type(microbatch) is int else None,
                call=one.launched_by if operator else None,
                priced=priced_kernel(operator) if operator else None,
            ),
            one.launched_s,
        )

    def _kind(self, one: GpuEvent, copy: bool) -> Kind:
        if copy:
            return "copy"
        if self.own is not None and "category" in one.args:
            if one.args.get("Collective name") is not None:
                return "communication"
            return kind_of_priced(str(one.args["category"]), str(one.args.get("kind")))
        kind = kind_of_kernel(one.name)
        return "optimizer" if kind == "pointwise" and self._in_optimizer(one) else kind

    def _in_optimizer(self, one: GpuEvent) -> bool:
        at = one.launched_s
        return at is not None and any(begin <= at <= end for begin, end in self._optimizers)

    @cached_property
    def _optimizers(self) -> Sequence[Span]:
        return [op.span for op in self.events.annotations if op.name.startswith("Optimizer.step")]

    def _group(self, one: GpuEvent) -> tuple[str, tuple[int, ...]]:
        name = str(one.args.get("Process Group Name") or "")
        said = str(one.args.get("Process Group Description") or "")
        ranks = listed_ranks(one.args.get("Process Group Ranks")) or self.groups.get(name, ())
        return (said if said not in ("", "undefined") else name), ranks

    def _host_op(self, op: Operator) -> DeviceOp:
        begin, end = op.span
        kind = kind_of_kernel(op.name)
        if kind == "pointwise" and any(b <= begin <= e for b, e in self._optimizers):
            kind = "optimizer"
        only = next(iter(self.groups.items())) if len(self.groups) == 1 and kind == "communication" else None
        return DeviceOp(
            name=op.name,
            kind=kind,
            start_s=begin,
            end_s=end,
            group=only[0] if only else "",
            ranks=only[1] if only else (),
            stream=f"thread {op.thread[1]}",
            operator=op.name,
            shape=_shape(op),
        )


def steps_of(
    ops: Sequence[tuple[DeviceOp, float | None]], marked: Mapping[str, Span]
) -> tuple[RankStep, ...]:
    """The ops by the marked step that launched each, by when the host began the call (None: by their start).

    Without a mark all of them are one step.
    """
    if not marked:
        whole = min(op.start_s for op, _ in ops), max(op.end_s for op, _ in ops)
        return (_step(WHOLE, whole, whole, [op for op, _ in ops]),)
    ordered = sorted(marked.items(), key=lambda one: one[1])
    begins = [span[0] for _, span in ordered]
    inside: list[list[DeviceOp]] = [[] for _ in ordered]
    for op, launched_s in ops:
        at = op.start_s if launched_s is None else launched_s
        number = bisect_right(begins, at) - 1
        if number >= 0 and at < ordered[number][1][1]:
            inside[number].append(op)
    firsts = [min((op.start_s for op in found), default=None) for found in inside]
    steps = []
    for number, (name, span) in enumerate(ordered):
        following = next((first for first in firsts[number + 1 :] if first is not None), None)
        steps.append(_step(name, span, _window(span, inside[number], following), inside[number]))
    return tuple(steps)


def _step(name: str, marked: Span, window: Span, ops: Iterable[DeviceOp]) -> RankStep:
    begin, end = window
    kept = [op for op in ops if op.end_s > begin and op.start_s < end]
    return RankStep(
        name=name.removeprefix("ProfilerStep#"),
        took_s=marked[1] - marked[0],
        begin_s=begin,
        end_s=end,
        ops=tuple(replace(op, end_s=min(op.end_s, end)) if op.end_s > end else op for op in kept),
    )


def _window(span: Span, ops: Sequence[DeviceOp], following: float | None) -> Span:
    """The step as marked where its ops lie within; else from its first op to that of the next step, or to its
    own last one.
    """
    if not ops:
        return span
    first, last = min(op.start_s for op in ops), max(op.end_s for op in ops)
    if span[0] <= first and last <= span[1] + 2e-9:
        return span
    return first, (last if following is None else max(following, first))


def _innermost(ops: Iterable[Operator]) -> list[Operator]:
    """Operators within which their thread runs no other one; a GEMM within which it runs no other GEMM
    stands for all that it calls.
    """
    threads: dict[object, list[Operator]] = {}
    for op in ops:
        threads.setdefault(op.thread, []).append(op)
    found: list[Operator] = []
    for row in threads.values():
        products = [op for op in row if kind_of_kernel(op.name) in _PRODUCTS]
        whole_ops = _leaves(products)
        taken = {id(op) for op in whole_ops}
        ends = sorted(op.span for op in whole_ops)
        begins = [span[0] for span in ends]

        def within(op: Operator, begins: list[float] = begins, ends: list[Span] = ends) -> bool:
            at = bisect_right(begins, op.span[0]) - 1
            return at >= 0 and op.span[1] <= ends[at][1]

        rest = [op for op in _leaves(row) if id(op) not in taken and not within(op)]
        found += [*whole_ops, *rest]
    return found


def _leaves(row: Iterable[Operator]) -> list[Operator]:
    """The innermost operators of one thread: those within which no other operator begins."""
    ordered = sorted(row, key=lambda op: (op.span[0], -op.span[1]))
    return [
        op
        for op, following in zip(ordered, [*ordered[1:], None], strict=True)
        if following is None or following.span[0] >= op.span[1]
    ]


def _shape(operator: Operator) -> str:
    """The shapes of an operator's tensors as text, such as ``4096x1024, 1024x8``."""
    dims = operator.args.get("Input Dims")
    if dims is None:
        return ""
    if type(dims) is not list:
        raise ValueError(f"{operator.place}: Input Dims: {shown(dims)} where a list of shapes must stand")
    shapes = [one for one in dims if type(one) is list and one and not any(type(n) is list for n in one)]
    return ", ".join("x".join(map(str, one)) for one in shapes)
