"""What a rank holds over the step: the parts that come and go with its actions, and their largest sum.

Activations live from the start of a forward to the end of its backward, and the loss's logits between both:
a backward has used them up when it comes to the layers, so that they are never there beside a layer that is
recomputed, what is gathered for it, or gradients on their way. Gathered parameters live from a stage's first
forward to its last backward or while an action runs, gradients from where they are allocated.

A forward and a backward that run as one hold one microbatch between them, and a layer: what a layer of the
forward takes, the layer of the backward beside it has just let go. The rest of the forward counts when both
have ended. Megatron core pairs the first layer with the last and releases each backward's layer when its
pair is done (models/common/model_chunk_schedule_plan.py at 01cf4fb5, TransformerModelChunkSchedulePlan.run,
release_state).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ...result.step import MOVING, ActionSpan
from ..layers.stages import Stage
from .activations import ActivationBytes

UPDATE = "update"
"""The name of what runs at the peak where the peak comes after all actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Bytes that a stage takes besides activations.

    ``gradients`` come with its first backward and stay to the end of the step; all of them are there once
    that microbatch's activations are freed. ``unreduced`` gradients are held from its first backward until
    its last one has given its own, when shards are left. ``gathered`` parameters are held from its first
    forward to its last backward, ``forward`` and ``backward`` parameters while such an action runs, and
    ``reducing`` gradients while a backward runs. ``updating`` comes to all of these in the update.

    ``apart`` are the gradients of shards that lie in blocks of a stream of their own, which an allocator
    gives to no other stream. ``gradients`` are these; with ``in_place`` they come in the place of whole ones,
    which do not lie there."""

    gradients: float = 0.0
    unreduced: float = 0.0
    gathered: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    reducing: float = 0.0
    updating: float = 0.0
    apart: float = 0.0
    in_place: bool = False

    @property
    def of_one_stream(self) -> Buffers:
        """The same without what lies in blocks of another stream."""
        return self if self.in_place else replace(self, gradients=self.gradients - self.apart)


@dataclass(slots=True)
class Held:
    """Bytes held, by what they are."""

    activations: float = 0.0
    logits: float = 0.0
    gradients: float = 0.0
    gathered: float = 0.0

    @property
    def total(self) -> float:
        """Bytes of all terms together."""
        return self.activations + self.logits + self.gradients + self.gathered

    @property
    def parts(self) -> tuple[float, float, float, float]:
        """Bytes of activations, logits, gradients and gathered parameters."""
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
    unusable: float = 0.0,
    traced: bool = True,
) -> Peak:
    """Walk one rank's actions in time, and find the most that it holds.

    ``buffers`` are by stage; ``unusable`` are bytes of free but too small allocator blocks for each byte of
    logits, which count at the peak. With ``traced``, every change is kept, not only the peak.
    """
    walk = _Walk(
        known={s: StageSizes.of(stages[s], sizes, own) for s, own in buffers.items()},
        left=Counter(span.stage for span in actions if span.kind in "BI"),
        owed=Counter(span.stage for span in actions if span.kind in "BW"),
        pairs=pairs_of(actions),
        unusable=unusable,
        traced=traced,
    )
    # at one moment a forward comes last: what it keeps takes the place of what its backward had
    moments = _moments(actions, walk.known, walk.pairs)
    for at_s, ends, span in sorted(moments, key=lambda m: (m[0], not m[1], m[2].kind == "F")):
        if ends:
            walk.end(span, at_s)
        else:
            walk.begin(span)
        walk.note(_name(span), at_s)
    walk.update(max((span.end_s for span in actions), default=0.0))
    walk.peak.held = Held(*walk.parts)
    return walk.peak


@dataclass(slots=True, kw_only=True)
class _Walk:
    """What a rank holds on its way through its actions, and the most that it held so far."""

    known: Mapping[int, StageSizes]
    left: Counter[int]  # backwards and input gradients to come, by stage
    owed: Counter[int]  # backwards and weight gradients to come
    pairs: Set[tuple[float, float]]
    unusable: float
    traced: bool
    held: Held = field(default_factory=Held)
    peak: Peak = field(default_factory=Peak)
    most: float = 0.0
    parts: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    begun: set[tuple[int, str]] = field(default_factory=set)
    given: set[int] = field(default_factory=set)

    def begin(self, span: ActionSpan) -> None:
        """Add what an action takes as it starts."""
        kind = span.stage, "F" if span.kind == "F" else "B"
        first, paired = kind not in self.begun, self._paired(span)
        _keep(self.held, span, self.known[span.stage], first=first, paired=paired)
        self.begun.add(kind)

    def end(self, span: ActionSpan, at_s: float) -> None:
        """Take off what an action frees; before that its stage's first gradients are all there."""
        one = self.known[span.stage]
        if span.kind in "BI":
            self.held.activations -= one.kept
            if one.own.gradients and span.stage not in self.given:
                self.given.add(span.stage)
                self.held.gradients += one.own.gradients
                self.note(_name(span), at_s)
        _release(self.held, span, one, paired=self._paired(span))
        if span.kind in "BI":
            self.left[span.stage] -= 1
            self.held.gathered -= 0.0 if self.left[span.stage] else one.own.gathered
        if span.kind in "BW":
            self.owed[span.stage] -= 1
            self.held.gradients -= 0.0 if self.owed[span.stage] else one.own.unreduced

    def _paired(self, span: ActionSpan) -> bool:
        return (span.start_s, span.end_s) in self.pairs

    def update(self, at_s: float) -> None:
        """What the update holds besides, behind the last action."""
        more = sum(one.own.updating for one in self.known.values())
        if more:
            self.held.gradients += more
            self.note(UPDATE, at_s)
            self.held.gradients -= more
            self.note(UPDATE, at_s)

    def note(self, action: str, at_s: float) -> None:
        """Remember what is held now, if it is the most, or if every change is traced."""
        if self.traced:
            self.peak.timeline.append((at_s, self.held.parts))
        total = self.held.total + self.unusable * self.held.logits
        if total > self.most:
            self.parts, self.peak.action, self.peak.at_s = self.held.parts, action, at_s
            self.most = total * (1 + 1e-12)


def _name(span: ActionSpan) -> str:
    return f"{span.stage}{span.kind}{span.microbatch}"


@dataclass(frozen=True, slots=True)
class StageSizes:
    """Bytes of a microbatch on a stage.

    ``kept`` is what it holds from the end of its forward on, without logits, and ``layer`` once the largest
    layer of the stage has run. ``working`` is what its backward needs besides while it recomputes, ``logits``
    what the loss holds. ``operands`` wait for the weight gradient after the input gradient. ``own`` are the
    buffers of the stage, whatever the microbatch.
    """

    kept: float
    layer: float
    working: float
    logits: float
    operands: float
    own: Buffers

    @classmethod
    def of(cls, stage: Stage, sizes: ActivationBytes, own: Buffers) -> StageSizes:
        """The sizes of a stage that has the buffers ``own``."""
        return cls(
            kept=sizes.kept_by_forward(stage),
            layer=sizes.kept_by_layer(stage),
            working=sizes.working(stage),
            logits=stage.losses * sizes.logits,
            operands=sizes.kept_by_input_grad(stage),
            own=own,
        )


def pairs_of(actions: Sequence[ActionSpan]) -> Set[tuple[float, float]]:
    """The starts and ends, in seconds, of the overlapped forwards and backwards of one rank."""
    forwards = {(span.start_s, span.end_s) for span in actions if span.kind == "F"}
    backwards = {(span.start_s, span.end_s) for span in actions if span.kind == "B"}
    return {(start_s, end_s) for start_s, end_s in forwards & backwards if start_s < end_s}


def _moments(
    actions: Sequence[ActionSpan], known: Mapping[int, StageSizes], pairs: Set[tuple[float, float]]
) -> Iterator[tuple[float, bool, ActionSpan]]:
    """The times at which something changes. At equal times ends come first: what an action frees is there
    for one that starts."""
    for span in actions:
        one = known[span.stage]
        if span.kind != "W":
            yield span.start_s, False, span
        if span.kind != "F" or one.own.forward or one.logits or (span.start_s, span.end_s) in pairs:
            yield span.end_s, True, span


def _keep(held: Held, span: ActionSpan, one: StageSizes, *, first: bool, paired: bool) -> None:
    """Add to ``held`` the bytes that an action takes as it starts; ``first``: it is the first forward of its
    stage, or the first backward."""
    own = one.own
    if span.kind == "F":
        held.activations += one.layer if paired else one.kept
        held.gathered += own.forward + (own.gathered if first else 0.0)
        return
    held.activations += one.working
    held.logits -= one.logits
    held.gathered += own.backward
    held.gradients += own.reducing + (own.unreduced if first else 0.0)


def _release(held: Held, span: ActionSpan, one: StageSizes, *, paired: bool) -> None:
    """Take off ``held`` the bytes that an action frees as it ends; after the layers of a forward come the
    logits, and a ``paired`` forward has kept the rest of its layers."""
    if span.kind == "F":
        held.gathered -= one.own.forward
        held.activations += one.kept - one.layer if paired else 0.0
        held.logits += one.logits
        return
    if span.kind == "W":
        held.activations -= one.operands
        return
    held.activations -= one.working
    held.gathered -= one.own.backward
    held.gradients -= one.own.reducing
    if span.kind == "I":
        held.activations += one.operands
