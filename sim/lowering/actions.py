"""What one pipeline action runs on one rank: the blocks of its virtual stage, forward or backward.

A whole backward computes the gradients of inputs and weights block by block; a split one puts the weight
gradients of matrices off to an action of their own. Knows which blocks in which order, not what is in
them (layer.py, ends.py, loss.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind
from ..program.program import Block
from .layers import layer, loss
from .layers.amax import amax_reduction, attention_amax_reduction
from .layers.kinds import LayerKind, LayerRun
from .layers.layer_builder import LayerBuilder
from .layers.pairs import pair_block
from .layers.recompute import NOTHING, Recompute, unrecorded
from .layers.stages import Stage
from .stage_parameters import NO_ELEMENTS, Elements, StageParameters
from .updates import ends

if TYPE_CHECKING:
    from ..scenario.software.software import Software
    from .layers.layer_builder import KernelPricing
    from .layers.local_shape import LocalShape

BuildEnd = Callable[[LayerBuilder], Block]
BuildLayer = Callable[[LayerBuilder, Recompute], Block]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The distinct blocks of a model on this machine, each built when it is first asked for.

    ``local`` is the local shape that all kinds of layers start from (LocalShape.of).
    """

    local: LocalShape
    software: Software
    costs: KernelPricing
    ends: dict[BuildEnd, Block] = field(default_factory=dict)
    layers: dict[tuple[BuildLayer, LayerKind, Recompute], Block] = field(default_factory=dict)
    pairs: dict[tuple[LayerKind, LayerKind, Recompute, bool], Block] = field(default_factory=dict)

    def begin(self, local: LocalShape | None = None) -> LayerBuilder:
        """A builder of an empty block, for ``local`` or the shape of all layers."""
        return LayerBuilder(costs=self.costs, local=local or self.local, software=self.software)

    def end(self, build: BuildEnd) -> Block:
        """A block outside of the layers: embedding, head or loss."""
        if build not in self.ends:
            self.ends[build] = build(self.begin(self.local.plain))
        return self.ends[build]

    def layer(self, build: BuildLayer, run: LayerRun) -> Block:
        """The block that ``build`` writes for each layer of ``run``."""
        key = build, run.kind, run.recompute
        if key not in self.layers:
            self.layers[key] = build(self.begin(self.local.of(run.kind)), run.recompute)
        return self.layers[key]

    def layer_of(self, kind: ActionKind, run: LayerRun) -> Block:
        """The block that an action of that kind runs for each layer of ``run``."""
        return self.layer(_PASSES[kind].layer, run)

    def pair(self, forward: LayerRun, backward: LayerRun) -> Block:
        """One layer's forward overlapped with another layer's backward, of two microbatches."""
        records = not unrecorded(forward.recompute)
        key = forward.kind, backward.kind, backward.recompute, records
        if key not in self.pairs:
            shapes = self.local.of(forward.kind), self.local.of(backward.kind)
            self.pairs[key] = pair_block(self.begin(), *shapes, backward.recompute, records=records)
        return self.pairs[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Blocks outside of the layers. ``part`` is the field of Stage that says how often a stage runs one;
    ``gives`` the field of StageParameters whose gradients it completes."""

    build: BuildEnd
    part: str
    gives: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """What a kind of action runs: blocks ``before`` the layers, the layers (last first in ``reverse``),
    blocks ``after`` them. ``gives``: it completes the gradients of layers."""

    layer: BuildLayer
    before: tuple[_Ends, ...] = ()
    after: tuple[_Ends, ...] = ()
    reverse: bool = True
    gives: bool = False


_AMAX = _Ends(build=amax_reduction, part="scales")
_ATTENTION_AMAX = _Ends(build=attention_amax_reduction, part="attention_scales")  # behind each layer

# The table's gradient comes with the input gradient: autograd does not put it off.
_PASSES = {
    ActionKind.FORWARD: _Pass(
        before=(_Ends(build=ends.embedding_forward, part="embedding"),),
        layer=layer.forward_block,
        after=(
            _AMAX,
            _Ends(build=ends.head_forward, part="heads"),
            _Ends(build=loss.loss_forward, part="losses"),
        ),
        reverse=False,
    ),
    ActionKind.BACKWARD: _Pass(
        before=(
            _Ends(build=loss.loss_backward, part="losses"),
            _Ends(build=ends.head_backward, part="heads", gives="head"),
        ),
        layer=layer.backward_block,
        after=(_AMAX, _Ends(build=ends.embedding_backward, part="embedding", gives="embedding")),
        gives=True,
    ),
    ActionKind.INPUT_GRAD: _Pass(
        before=(
            _Ends(build=loss.loss_backward, part="losses"),
            _Ends(build=ends.head_input_grad, part="heads"),
        ),
        layer=layer.input_grad_block,
        after=(_AMAX, _Ends(build=ends.embedding_backward, part="embedding")),
    ),
    ActionKind.WEIGHT_GRAD: _Pass(
        before=(_Ends(build=ends.head_weight_grad, part="heads", gives="head"),),
        layer=layer.weight_grad_block,
        gives=True,
    ),
}


def action_blocks(action: Action, stage: Stage, blocks: Blocks) -> tuple[tuple[Block, int], ...]:
    """Blocks of ``action`` in the order in which they run, each with its count."""
    step = _PASSES[action.kind]
    return tuple(
        (blocks.end(part.build), count)
        if isinstance(part, _Ends)
        else (blocks.layer(step.layer, part), count)
        for part, count in _parts(step, stage)
    )


def around_layers(
    kind: ActionKind, stage: Stage, blocks: Blocks, *, first: bool
) -> Iterator[tuple[Block, str, int]]:
    """The blocks, as in ``Owned``, that an action of that kind runs before the layers (``first``) or after
    them."""
    step = _PASSES[kind]
    for part in step.before if first else step.after:
        if count := int(getattr(stage, part.part)):
            yield blocks.end(part.build), part.part, count


def gradients_ready(action: Action, stage: Stage, parameters: StageParameters) -> Iterator[Elements]:
    """The parameters whose gradients each block of ``action_blocks`` completes, in the last such action of
    the step."""
    step = _PASSES[action.kind]
    for part, count in _parts(step, stage):
        if isinstance(part, _Ends):
            own = getattr(parameters, part.gives) if part.gives else 0.0
            # Multi-token prediction has a table where the head is.
            table = parameters.embedding if part.gives == "head" and not stage.embedding else 0.0
            yield Elements(shared=(own + table) / count, one=True)
        else:
            yield parameters.layer(part.kind) if step.gives else NO_ELEMENTS


def backward_pieces(
    blocks: Blocks, parameters: StageParameters, run: LayerRun
) -> tuple[tuple[Block, float], ...]:
    """A dense layer's backward, cut where a module gives its gradients, with the parameters of each piece.

    Norms and biases go with the first matrix. Empty where it is not cut: where layers are no dense ones or
    run forwards again.
    """
    kind = run.kind
    if kind.experts or kind.prediction or blocks.local.latent or run.recompute != NOTHING:
        return ()
    _, listed = parameters.of_layers[kind]
    own = {one.name: float(one.elements) for one in listed}
    projection, into, out = own["projection"], own["mlp in"], own["mlp out"]
    first = sum(own.values()) - projection - into - out
    one_module = blocks.software.kernels.fused_quantise  # TransformerEngine's ops.Sequential, LayerNormMLP
    return (
        (blocks.layer(layer.mlp_out_backward_block, run), 0.0 if one_module else out),
        (blocks.layer(layer.mlp_in_backward_block, run), into + out if one_module else into),
        (blocks.layer(layer.projection_backward_block, run), projection),
        (blocks.layer(layer.attention_backward_block, run), first),
    )


def between_waits(row: Iterable[tuple[Block, int]]) -> list[tuple[tuple[Block, int], ...]]:
    """``row`` cut where the host waits: within a piece the host issues all blocks without a wait. A block
    with waits inside is replaced by its parts."""
    pieces: list[list[tuple[Block, int]]] = [[]]
    for block, count in row:
        if not block.parts:
            pieces[-1].append((block, count))
            continue
        for _ in range(count):
            first, *others = block.parts
            pieces[-1].append((first, 1))
            pieces += [[(part, 1)] for part in others]
    return [tuple(piece) for piece in pieces]


Owned = tuple[tuple[Block, str | LayerRun, int], ...]
"""Blocks of an action in their order, each with what of the model it runs, and its count."""


def owned(row: Iterable[tuple[Block, int]], owners: Iterable[str | LayerRun]) -> Owned:
    """``action_blocks`` and ``block_owners`` together."""
    return tuple((block, owner, count) for (block, count), owner in zip(row, owners, strict=True))


def block_owners(action: Action, stage: Stage) -> Iterator[str | LayerRun]:
    """For each block of ``action_blocks``, whose it is: a run of layers, or ``embedding``, ``heads``, ... by
    name."""
    for part, _ in _parts(_PASSES[action.kind], stage):
        yield part.part if isinstance(part, _Ends) else part


def _parts(step: _Pass, stage: Stage) -> Iterator[tuple[_Ends | LayerRun, int]]:
    """The parts of ``step`` that a stage has, each with its count."""
    runs = reversed(stage.runs) if step.reverse else stage.runs
    by_layer = stage.attention_scales and step.after
    for part in (*step.before, *runs, *step.after):
        if by_layer and isinstance(part, LayerRun):
            for _ in range(part.count):
                yield part, 1
                yield _ATTENTION_AMAX, 1
        elif count := int(getattr(stage, part.part)) if isinstance(part, _Ends) else part.count:
            yield part, count
