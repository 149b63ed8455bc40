"""What a rank holds over the step: the parts that come and go with its actions, and their largest sum.

Activations live from the start of a forward to the end of its backward, gathered parameters from a
stage's first forward to its last backward or while an action runs, gradients from where they are allocated.

A forward and a backward that run as one hold one microbatch between them, and a layer: what a layer of the
forward takes, the layer of the backward beside it has just let go. The rest of the forward counts when both
have ended. Megatron core pairs the first layer with the last and releases each backward's layer when its
pair is done (models/common/model_chunk_schedule_plan.py at 01cf4fb5, TransformerModelChunkSchedulePlan.run,
release_state); the logits of the backward are gone before those of the forward are made (the same,
post_process).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ...result.step import MOVING, ActionSpan
from ..layers.stages import Stage
from .activations import ActivationBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Bytes that a stage takes besides activations: ``gradients`` with its first backward, for good;
    ``unreduced`` ones until its last one has given its own, when shards are left; ``gathered`` from its
    first forward to its last backward; ``forward`` and ``backward`` while one runs, ``reducing`` of the
    latter as gradients."""

    gradients: float = 0.0
    unreduced: float = 0.0
    gathered: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    reducing: float = 0.0


@dataclass(slots=True)
class Held:
    """Bytes held, by term."""

    activations: float = 0.0
    logits: float = 0.0
    gradients: float = 0.0
    gathered: float = 0.0

    @property
    def total(self) -> float:
        return self.activations + self.logits + self.gradients + self.gathered

    @property
    def parts(self) -> tuple[float, float, float, float]:
        return self.activations, self.logits, self.gradients, self.gathered

    def terms(self) -> dict[str, float]:
        """Bytes held, by the name of the term."""
        return {name: getattr(self, name) for name in MOVING}


@dataclass(kw_only=True)
class Peak:
    """The largest sum held, when, during which action; and every change, by term."""

    held: Held = field(default_factory=Held)
    at_s: float = 0.0
    action: str = ""
    timeline: list[tuple[float, tuple[float, float, float, float]]] = field(default_factory=list)


def peak_held(
    actions: Sequence[ActionSpan],
    stages: Sequence[Stage],
    sizes: ActivationBytes,
    buffers: Mapping[int, Buffers],
    *,
    traced: bool = True,
) -> Peak:
    """Walk one rank's actions in time. ``buffers`` by the stages that the rank holds. Where ``traced``, every
    change is kept, not the peak alone.
    """
    held, peak, most = Held(), Peak(), 0.0
    fullest: ActionSpan | None = None
    parts = held.parts
    known = {s: StageSizes.of(stages[s], sizes, own) for s, own in buffers.items()}
    left = Counter(span.stage for span in actions if span.kind in "BI")
    owed = Counter(span.stage for span in actions if span.kind in "BW")
    begun: set[tuple[int, str]] = set()
    pairs = pairs_of(actions)
    # of what ends at once, a forward comes last: what it has kept took the place of what its backward had
    for at_s, ends, span in sorted(
        _moments(actions, buffers, pairs), key=lambda m: (m[0], not m[1], m[1] and m[2].kind == "F")
    ):
        one, paired = known[span.stage], (span.start_s, span.end_s) in pairs
        if ends:
            _release(held, span, one, paired=paired)
            if span.kind in "BI":
                left[span.stage] -= 1
                held.gathered -= 0.0 if left[span.stage] else one.own.gathered
            if span.kind in "BW":
                owed[span.stage] -= 1
                held.gradients -= 0.0 if owed[span.stage] else one.own.unreduced
        else:
            first = (span.stage, "F" if span.kind == "F" else "B") not in begun
            begun.add((span.stage, "F" if span.kind == "F" else "B"))
            _keep(held, span, one, first=first, paired=paired)
        if traced:
            peak.timeline.append((at_s, held.parts))
        total = held.total
        if total > most:
            parts, fullest, peak.at_s, most = held.parts, span, at_s, total * (1 + 1e-12)
    peak.held = Held(*parts)
    if fullest:
        peak.action = f"{fullest.stage}{fullest.kind}{fullest.microbatch}"
    return peak


@dataclass(frozen=True, slots=True)
class StageSizes:
    """Bytes of a stage: what a microbatch keeps, and a layer of it, what it works with, has at the loss, and
    keeps of it for later."""

    kept: float
    layer: float
    working: float
    logits: float
    operands: float
    own: Buffers

    @classmethod
    def of(cls, stage: Stage, sizes: ActivationBytes, own: Buffers) -> StageSizes:
        """Of one stage with these buffers."""
        return cls(
            kept=sizes.kept_by_forward(stage),
            layer=sizes.kept_by_layer(stage),
            working=sizes.working(stage),
            logits=stage.losses * sizes.logits,
            operands=sizes.kept_by_input_grad(stage),
            own=own,
        )


def pairs_of(actions: Sequence[ActionSpan]) -> Set[tuple[float, float]]:
    """The starts and ends, in seconds, of a forward and a backward of one rank that run as one."""
    forwards = {(span.start_s, span.end_s) for span in actions if span.kind == "F"}
    backwards = {(span.start_s, span.end_s) for span in actions if span.kind == "B"}
    return {(start_s, end_s) for start_s, end_s in forwards & backwards if start_s < end_s}


def _moments(
    actions: Sequence[ActionSpan], buffers: Mapping[int, Buffers], pairs: Set[tuple[float, float]]
) -> Iterator[tuple[float, bool, ActionSpan]]:
    """When something changes, and whether an action ends: what it frees is free for what starts then."""
    for span in actions:
        if span.kind != "W":
            yield span.start_s, False, span
        if span.kind != "F" or buffers[span.stage].forward or (span.start_s, span.end_s) in pairs:
            yield span.end_s, True, span


def _keep(held: Held, span: ActionSpan, one: StageSizes, *, first: bool, paired: bool) -> None:
    """What an action takes as it starts; ``first`` forward of its stage, or first backward."""
    own = one.own
    if span.kind == "F":
        held.activations += one.layer if paired else one.kept
        held.logits += 0.0 if paired else one.logits
        held.gathered += own.forward + (own.gathered if first else 0.0)
        return
    held.activations += one.working
    held.gathered += own.backward
    held.gradients += own.reducing + (own.gradients + own.unreduced if first else 0.0)


def _release(held: Held, span: ActionSpan, one: StageSizes, *, paired: bool) -> None:
    """Take off ``held`` the bytes that an action frees as it ends; a ``paired`` forward has kept the rest."""
    if span.kind == "F":
        held.gathered -= one.own.forward
        held.activations += one.kept - one.layer if paired else 0.0
        held.logits += one.logits if paired else 0.0
        return
    if span.kind == "W":
        held.activations -= one.operands
        return
    held.activations -= one.kept + one.working
    held.logits -= one.logits
    held.gathered -= one.own.backward
    held.gradients -= one.own.reducing
    if span.kind == "I":
        held.activations += one.operands
