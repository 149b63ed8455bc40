"""One training step as a trace shows it: what each rank's GPU ran, when, and how far its host was ahead.

Knows no file format, and makes no difference between what was measured and what was predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...kernels.kernel import Kernel
from ..readers.kernel_kinds import Kind

LATE = "late peers"
"""In place of an axis: the part of a message before its last rank had come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOp:
    """A kernel, copy or message on one stream, in seconds of its trace.

    ``issued_s`` is when the host had launched it, None where the trace does not tell. ``group`` is what the
    trace calls the ranks of a communication, ``ranks`` who they are, ``axis`` the axis of parallelism that it
    serves, all empty where unknown. ``shape`` is the text of its operator's shapes,
    ``call`` the call of it, ``priced`` the kernel that a cost model knows it as.
    """

    name: str
    kind: Kind
    start_s: float
    end_s: float
    stream: str = ""
    issued_s: float | None = None
    axis: str = ""
    group: str = ""
    ranks: tuple[int, ...] = ()
    operator: str = ""
    shape: str = ""
    microbatch: int | None = None
    call: int | None = None
    priced: Kernel | None = None


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """A step of one rank. ``took_s`` is what the profiler marked on the host; ``begin_s`` to ``end_s`` is the
    time that its ops are looked at in, which lags behind where the host does not wait for its GPU.
    """

    name: str
    took_s: float
    begin_s: float
    end_s: float
    ops: tuple[DeviceOp, ...]

    @property
    def window_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """The steps of one rank. ``device`` is what the trace calls its GPU, ``gpu`` the catalogue's name of it.

    ``marked``: the steps are the profiler's; else all of the trace counts as one. ``predicted``: this package
    wrote it. ``lost`` counts by reason what could not be used.
    """

    file: str
    rank: int
    world: int
    device: str
    gpu: str | None
    steps: tuple[RankStep, ...]
    marked: bool = True
    predicted: bool = False
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def median_step(self) -> RankStep:
        """The step of median duration, the earlier of two in the middle."""
        ordered = sorted(self.steps, key=lambda step: step.took_s)
        return ordered[(len(ordered) - 1) // 2]
