"""The kinds of fault, read from kinds.yaml: where each strikes, what it does to the job, who notices it.

The vocabulary of ``--fault``, of traces and of the block ``faults``, which steps and campaigns share. Knows
no times of a campaign but a kind's own defaults, and no processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ....hardware.catalogue import Table

Effect = Literal["crash", "hang", "slow", "silent", "pause", "graceful", "storage"]
"""What the job feels.

crash: an error ends it. hang: no progress and no error. slow: steps take longer. silent: steps are wrong and
nobody knows. pause: steps wait for a while. graceful: it is told before, and may write a checkpoint. storage:
checkpoints cannot be written or read, or slowly.
"""

Detector = Literal["error", "gpu", "nic", "switch", "host", "heartbeat", "notice", "silent", "straggler"]
"""Who notices: the process's own error, a health check by class of component, missed heartbeats, the
announcement itself, the hunt for corrupt data, or the monitor of step times."""

Swapped = Literal["none", "node", "domain"]
"""What must be swapped before the job goes on: nothing, the host, or every host of the domain."""

InStep = Literal[
    "slow_kernels", "hang", "jitter", "weak_link", "flap", "nic_lost", "leaf_lost", "spine_lost", "checkpoint"
]
"""What of it one step feels; ``sim/degradation/of_faults.py`` has a rule for each, but for a checkpoint,
which has phases (``windows.py``).
"""

ANYWHERE = ("job", "rank", "gpu", "nic", "rail", "link", "node", "leaf", "spine", "rack", "power", "storage")
"""Every scope that a target can name."""


@dataclass(frozen=True, kw_only=True)
class FaultKind:
    """A kind of fault. ``what`` happens, in words; ``scopes``: where it may strike, the usual one first.

    ``keys`` are the magnitudes that an event may carry, with their defaults; None has no default.
    ``duration_s`` is how long it lasts if nobody ends it; None: until it is mended. ``repair_s`` is how long
    the broken part is away; None: by the rule of ``recovery.repair``. ``repeats``: after a restart software
    may crash again (``recovery.crash_loop``). ``requeued``: the job loses its hosts and waits in the queue.
    ``in_step``: what one step feels of it; None: nothing, it is for campaigns. ``of_a_step``: campaigns know
    nothing of it. ``source`` says where the defaults come from.
    """

    name: str
    title: str
    what: str
    effect: Effect
    scopes: tuple[str, ...]
    detectors: tuple[Detector, ...]
    swapped: Swapped
    source: str
    keys: dict[str, float | None] = field(default_factory=dict)
    duration_s: float | None = None
    repair_s: float | None = None
    repeats: bool = False
    requeued: bool = False
    in_step: InStep | None = None
    of_a_step: bool = False


def _kind(*, scopes: list[str], detectors: list[Detector], **fields: Any) -> FaultKind:
    return FaultKind(scopes=tuple(scopes), detectors=tuple(detectors), **fields)


KINDS = Table("kind of fault", __package__, "kinds.yaml", _kind)


def kind_names() -> tuple[str, ...]:
    """Every kind, in the order of the file."""
    return KINDS.names()


def step_kinds() -> tuple[str, ...]:
    """The kinds that one step feels, in the order of the file."""
    return tuple(name for name, kind in KINDS.records().items() if kind.in_step)


def get_kind(name: str) -> FaultKind:
    """The kind of that name. Raises ValueError with the nearest one and all of them."""
    return KINDS.get(name)
