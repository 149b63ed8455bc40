"""What a kind of fault is: where it strikes, what it does to the job, who notices it, how it is mended.

The vocabulary of ``--fault``, of traces and of the block ``faults``. Knows no times of a campaign but its
own defaults, each with its source, and no processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Effect = Literal["crash", "hang", "slow", "silent", "pause", "graceful", "storage"]
"""What the job feels.

crash: an error ends it. hang: no progress and no error. slow: steps take longer. silent: steps are wrong and
nobody knows. pause: steps wait for a while. graceful: it is told before, and may write a checkpoint. storage:
checkpoints cannot be written or read, or slowly.
"""

Detector = Literal["error", "gpu", "nic", "switch", "host", "heartbeat", "notice", "silent", "straggler"]
"""Who notices: the process's own error, a health check by class of component, missed heartbeats, the
announcement itself, the hunt for corrupt data, or the monitor of step times."""

Damage = Literal["none", "node", "domain"]
"""What must be swapped before the job goes on: nothing, the host, or every host of the domain."""

ANYWHERE = ("job", "rank", "gpu", "nic", "rail", "link", "node", "leaf", "spine", "rack", "power", "storage")
"""Every scope that a target can name."""


@dataclass(frozen=True, kw_only=True)
class FaultKind:
    """A kind of fault. ``scopes``: where it may strike, the usual one first.

    ``keys`` are the magnitudes that an event may carry, with their defaults; None has no default.
    ``duration_s`` is how long it lasts if nobody ends it; None: until it is mended. ``repair_s`` is how long
    the broken part is away; None: by the rule of ``recovery.repair``. ``source`` says where the defaults come
    from.
    """

    name: str
    title: str
    effect: Effect
    scopes: tuple[str, ...]
    detectors: tuple[Detector, ...]
    damage: Damage
    source: str
    keys: dict[str, float | None] = field(default_factory=dict)
    duration_s: float | None = None
    repair_s: float | None = None
