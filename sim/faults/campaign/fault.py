"""One fault as it strikes."""

from __future__ import annotations

from dataclasses import dataclass

from ..kinds.kind import Kind
from ..spec.targets import Target
from .chance import Law
from .outcome import Entry
from .plan import Effect

STOPS = ("crash", "hang")


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault as it strikes. ``nodes`` are the slots that it takes along."""

    kind: Kind
    name: str
    target: Target
    nodes: range
    duration_s: float | None
    repair: Law | None
    effect: Effect
    notice: float
    entry: Entry | None = None
