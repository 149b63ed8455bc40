"""Events of a trace in Chrome's format, sorted into what a profile is made of, each checked once.

Knows kernels, the operators that launched them, launches and steps, as torch's profiler writes them. Does not
know what a kernel computes. Every error names the event by its place in the list.

Sources: pytorch/kineto libkineto/src/output_json.cpp; torch/profiler/profiler.py (ProfilerStep); "Trace Event
Format" (Google), complete events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .foreign.values import LARGEST_SECONDS, number, shown, text, whole
from .traced import Span, merged

_MICRO = 1e-6
_COPIES = ("gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_STEP = "ProfilerStep#"
_LATEST_US = 1e18  # thirty thousand years after the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """A kernel: when it ran, on which device (process and device of the trace), with which arguments.

    ``launched_by`` is the External id of its operator, ``launched_s`` when the host began the call that
    launched it, ``issued_s`` when that call ended; ``stream`` is a number or a thread.
    """

    place: str
    name: str
    span: Span
    device: tuple[object, object]
    args: Mapping[str, Any]
    launched_by: int | None = None
    launched_s: float | None = None
    issued_s: float | None = None
    stream: object = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator on the host, which launched kernels. Its arguments are checked where they are used."""

    place: str
    name: str
    args: Mapping[str, Any]
    span: Span = (0.0, 0.0)
    thread: tuple[object, object] = (0, 0)


@dataclass(kw_only=True)
class Events:
    """What a trace holds. ``copies`` are those of memory on the GPU, ``host_ops`` all operators in order,
    ``annotations`` what code marked on the host. ``operators`` are by External id; ``steps`` by name, those
    of the host where it marks them: the same names appear again on every stream of the GPU, which
    lags behind.
    """

    kernels: list[GpuEvent] = field(default_factory=list)
    copies: list[GpuEvent] = field(default_factory=list)
    host_ops: list[Operator] = field(default_factory=list)
    annotations: list[Operator] = field(default_factory=list)
    operators: dict[int, Operator] = field(default_factory=dict)
    steps: dict[tuple[object, str], Span] = field(default_factory=dict)

    @property
    def step_count(self) -> int:
        """Steps that were profiled, however many processes the trace holds."""
        return len({name for _, name in self.steps})

    def launched_in_steps(self) -> list[GpuEvent]:
        """The kernels that a step launched; those of unknown launch that began while one was under way."""
        spans = merged(self.steps.values())
        begins = [begin for begin, _ in spans]

        def inside(kernel: GpuEvent) -> bool:
            at = kernel.span[0] if kernel.launched_s is None else kernel.launched_s
            place = bisect_right(begins, at) - 1
            return place >= 0 and at <= spans[place][1]

        return list(filter(inside, self.kernels))


def events_of(file: str, entries: Sequence[Any]) -> Events:
    """The events in ``entries``. ValueError naming file and event for what is not what it must be."""
    found = Events()
    launches: dict[int, Span] = {}
    kernels: list[tuple[int, Mapping[str, Any]]] = []
    copies: list[tuple[int, Mapping[str, Any]]] = []
    on_gpu: dict[tuple[object, str], Span] = {}
    for index, one in enumerate(entries):
        if type(one) is not dict:
            raise ValueError(f"{file}: traceEvents[{index}]: {shown(one)} where an event must stand")
        if one.get("ph") != "X":
            continue
        category = str(one.get("cat", "")).lower()
        if category == "kernel":
            kernels.append((index, one))
        elif category in _COPIES:
            copies.append((index, one))
        elif category == "cpu_op":
            _add_operator(found, f"{file}: traceEvents[{index}]", one)
        elif category in _LAUNCHES:
            place = f"{file}: traceEvents[{index}]"
            if (number_ := _identity(place, "correlation", _args(place, one))) is not None:
                launches[number_] = _span(place, one)
        elif type(one.get("name")) is str and one["name"].startswith(_STEP):
            steps = on_gpu if category.startswith("gpu_") else found.steps
            _add_step(steps, one, _span(f"{file}: traceEvents[{index}]", one))
        elif category == "user_annotation":
            found.annotations.append(_operator(f"{file}: traceEvents[{index}]", one))
    found.steps = found.steps or on_gpu
    found.kernels = [_kernel(f"{file}: traceEvents[{index}]", one, launches) for index, one in kernels]
    found.copies = [_kernel(f"{file}: traceEvents[{index}]", one, launches) for index, one in copies]
    return found


def _kernel(place: str, one: Mapping[str, Any], launches: Mapping[int, Span]) -> GpuEvent:
    args = _args(place, one)
    correlation = _identity(place, "correlation", args)
    device = args.get("device", one.get("pid"))
    if type(device) not in (int, str, type(None)):
        raise ValueError(f"{place}: device: {shown(device)} where a number must stand")
    call = None if correlation is None else launches.get(correlation)
    return GpuEvent(
        place=place,
        name=text(f"{place}: name", one.get("name")),
        span=_span(place, one),
        device=(str(one.get("pid")), device),
        args=args,
        launched_by=_identity(place, "External id", args),
        launched_s=call[0] if call else None,
        issued_s=call[1] if call else None,
        stream=str(args.get("stream", one.get("tid"))),
    )


def _add_operator(found: Events, place: str, one: Mapping[str, Any]) -> None:
    """The outermost operator of each External id, which stands last: a linear layer holds its GEMM."""
    operator = _operator(place, one)
    found.host_ops.append(operator)
    if (identity := _identity(place, "External id", operator.args)) is not None:
        found.operators[identity] = operator


def _operator(place: str, one: Mapping[str, Any]) -> Operator:
    return Operator(
        place=place,
        name=text(f"{place}: name", one.get("name")),
        args=_args(place, one),
        span=_span(place, one),
        thread=(str(one.get("pid")), str(one.get("tid"))),
    )


def _add_step(steps: dict[tuple[object, str], Span], one: Mapping[str, Any], span: Span) -> None:
    """A step of several streams or threads is one, from its first beginning to its last end."""
    key = str(one.get("pid")), str(one["name"])
    begin, end = steps.get(key, span)
    steps[key] = min(begin, span[0]), max(end, span[1])


def _args(place: str, one: Mapping[str, Any]) -> Mapping[str, Any]:
    args = one.get("args")
    if args is None:
        return {}
    if type(args) is not dict:
        raise ValueError(f"{place}: args: {shown(args)} where a block of fields must stand")
    return args


def _identity(place: str, field_: str, args: Mapping[str, Any]) -> int | None:
    """A number that joins events; releases before 2022 wrote it as text."""
    value = args.get(field_)
    if value is None:
        return None
    if type(value) is str and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return whole(f"{place}: {field_}", value, high=2**64)


def _span(place: str, one: Mapping[str, Any]) -> Span:
    begin = number(f"{place}: ts", one.get("ts"), low=-_LATEST_US, high=_LATEST_US) * _MICRO
    took = number(f"{place}: dur", one.get("dur"), high=LARGEST_SECONDS / _MICRO) * _MICRO
    return begin, begin + took
