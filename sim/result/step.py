"""What a simulated step is made of: spans, classes of ranks, memory, the critical path, its interval.

Knows no clock and no scenario language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network.nccl.buffers import CommunicatorBuffers

AXES = ("tp", "cp", "ep", "pp", "dp")
"""Axes of parallelism, in the order in which tables show them."""

IN_LAYER = ("tp", "cp", "ep")
"""Axes whose communication is part of a pipeline action, and so of its duration."""

PEERS = ("tp peers", "cp peers", "ep peers", "dp peers", "step end")
"""What a rank waits for that is no other pipeline stage: members of its groups that are late, and, when it
has done its part, ranks of its own stage that have not. Waiting for other stages is the pipeline bubble."""


@dataclass(frozen=True, slots=True)
class Span:
    """One op of one rank class: what ran, on which stream, from when to when.

    ``category`` is ``compute``, an axis of parallelism (``tp`` ... ``dp``), or ``optimizer``.
    ``action`` is the pipeline action that it belongs to (``2F0``), empty outside the pipeline.
    ``issued_s`` is when its host had issued it, and never after its start; ``group`` is the communicator of
    a collective (``dp 3``) and ``kind`` of a kernel what it is priced as (gemm, attention, memory-bound,
    fixed), both empty for others.
    """

    rank: int  # index into Result.ranks
    stream: str
    name: str
    category: str
    action: str
    start_s: float
    end_s: float
    bytes: float
    flops: float
    issued_s: float = 0.0
    group: str = ""
    kind: str = ""

    @property
    def is_message(self) -> bool:
        """Whether it moves data between ranks; a kernel that prepares a message (gradients scaled before they
        are reduced) is of an axis and is none."""
        return not self.kind and (self.category in AXES or bool(self.group))


@dataclass(frozen=True, slots=True)
class ActionSpan:
    """One pipeline action of one rank class, first kernel to last."""

    rank: int
    kind: str  # F, B, I or W
    stage: int  # global virtual stage
    microbatch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class RankClass:
    """Ranks that do the same at the same time; one of them was replayed."""

    name: str  # "pp 3"
    pp: int
    count: int
    first_rank: int


MOVING = ("activations", "logits", "gradients", "gathered")
"""Terms of memory that come and go within a step, in the order of ``StageMemory.moving``."""

IDLE = "idle blocks"
"""The term of free blocks of the stream that reduces gradients.

torch's caching allocator gives a block to requests of its own stream alone (c10/cuda,
CUDACachingAllocator.cpp, get_free_block), so that blocks of the last step's gradients stay reserved beside
the loss of the next one. An allocator without room gives them back (release_cached_blocks)."""


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Memory of the ranks of one pipeline rank.

    ``terms`` are bytes by name (weights, gradients, optimizer, activations, logits, ...) at the
    peak; their sum is ``peak_bytes``. ``peak_s`` is when, ``peak_action`` what was running then.
    ``static_bytes`` is what is held all through the step, ``releasable_bytes`` what of it an allocator
    without room gives back (lowering/memory.py). ``timeline`` is (seconds, bytes) at
    every change of what comes and goes, ``moving`` the same by term (MOVING). ``parameters`` are those of
    the rank's stages, sharded or not; ``layers_in_flight`` the most layers times microbatches between
    their forward and their backward; ``communicators`` what the term ``communication`` is made of.
    """

    pp: int
    terms: Mapping[str, float]
    peak_bytes: float
    peak_s: float
    peak_action: str
    static_bytes: float
    capacity_bytes: float
    releasable_bytes: float = 0.0
    timeline: tuple[tuple[float, float], ...] = ()
    moving: tuple[tuple[float, tuple[float, ...]], ...] = ()
    parameters: float = 0.0
    layers_in_flight: int = 0
    communicators: tuple[CommunicatorBuffers, ...] = ()

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.capacity_bytes

    @property
    def fullness(self) -> float:
        """The peak over what the rank's GPU has; GPUs of one job may be of several kinds."""
        return self.peak_bytes / self.capacity_bytes

    @property
    def needed_bytes(self) -> float:
        """The least that the rank runs in."""
        return self.peak_bytes - self.releasable_bytes

    @property
    def moving_share(self) -> float:
        """The share of what is needed that comes and goes."""
        return 1.0 - (self.static_bytes - self.releasable_bytes) / self.needed_bytes

    @property
    def beside_bytes(self) -> float:
        """What the bill has beside the terms that are held and that come and go: what allocators add."""
        return self.peak_bytes - self.static_bytes - max((size for _, size in self.timeline), default=0.0)


def fullest_of(memory: Iterable[StageMemory]) -> StageMemory:
    """The pipeline rank that holds most of what its GPUs have. ValueError where there is none."""
    return max(memory, key=lambda stage: stage.fullness)


@dataclass(frozen=True, kw_only=True)
class PathSegment:
    """A part of the critical path: ``seconds`` of the step that were spent on ``name``."""

    name: str  # "GEMM", "attention", "memory-bound kernels", "tp", "pp", "dp", "bubble", "host", ...
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Seconds of a step, averaged over ranks, in which ``link`` bound the communication of ``axis``."""

    axis: str
    link: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A fact that the prediction rests on. ``in_range`` is None where no range applies.

    A ``note`` is what the scenario says and what it does not do here, such as a field without effect.
    """

    text: str
    source: str
    in_range: bool | None = None
    note: bool = False


LENGTHENS = ("waits", "slowest", "overlap", "slower kernel", "slower host", "router")
"""Kinds of causes by which a step only ever takes longer than predicted."""

SHORTENS = ("faster kernel",)
"""Kinds of causes by which it only ever takes less."""


@dataclass(frozen=True, kw_only=True)
class IntervalPart:
    """One cause of uncertainty: ``sigma`` (of the logarithm) of the part of the step that ``share`` is.

    ``kind`` says what sort of cause; ``distance`` how far it lies outside what was measured, in doublings (1
    where there is nothing between measured and not), 0 inside. One of the kinds LENGTHENS widens an interval
    above the prediction alone, of SHORTENS below it; the distance of ``waits`` is the doublings of GPUs.
    """

    name: str
    share: float
    sigma: float
    source: str
    kind: str = ""
    distance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Interval:
    """From ``low_s`` to ``high_s`` with probability ``level``; ``parts`` are independent of one another.

    ``quantile`` standard deviations of all parts together reach from the prediction to ``high_s``, in the
    logarithm, ``quantile_below`` to ``low_s``: the fewer, the larger they are on that side.
    """

    level: float
    low_s: float
    high_s: float
    parts: tuple[IntervalPart, ...]
    quantile: float = 1.6449  # of a normal distribution
    quantile_below: float = 1.6449
