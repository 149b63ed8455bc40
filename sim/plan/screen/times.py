"""Seconds of every block by itself, for all layers of the tables at once.

``sim/lowering/actions.py`` says which blocks an action runs; it is asked with names in place of blocks. Each
named block is then timed once for each layer (``sim/program/solo.py``), by one of the processes that screen
layouts of a base.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ....kernels.gemm import IN_TWO_PASSES
from ....schedules.orders.action import Action, ActionKind
from ...lowering.actions import Blocks, action_blocks
from ...lowering.layers import loss
from ...lowering.layers.amax import amax_reduction, attention_amax_reduction
from ...lowering.layers.layer import Half, backward_block, forward_block
from ...lowering.layers.recompute import (
    NOTHING,
    OF_ATTENTION,
    OF_EXPERTS,
    by_operators,
    seen_by_forward,
    unrecorded,
)
from ...lowering.overlapped import pair_blocks, runs_as_one
from ...lowering.updates import ends
from ...network.transfer import MOST_HBM
from ...program.program import Block, Compute
from ...program.solo import solo_ends
from .numbering import CommonFigures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...lowering.actions import BuildEnd, BuildLayer
    from ...lowering.layers.kinds import LayerRun
    from ...lowering.layers.local_shape import LocalShape
    from ...lowering.layers.recompute import Recompute
    from ...lowering.layers.stages import Stage
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]


class BlockTimes(NamedTuple):
    """Seconds of a block by layer, for the layers in use.

    ``alone`` is with the GPU to itself. ``kernels`` are those of the compute stream, of which ``memory`` are
    bound by memory; ``host`` is the time of its launches; ``kernels_end`` is when the last kernel has ended.
    ``idle`` is how long the compute stream is idle at least, even if its kernels have as few SMs as may be
    (``LEAST_SMS``).
    """

    alone: Floats
    kernels: Floats
    memory: Floats
    host: Floats
    kernels_end: Floats
    idle: Floats


_WITHOUT_GRADIENTS = (
    forward_block,
    ends.embedding_forward,
    ends.head_forward,
    loss.loss_forward,
    loss.loss_backward,
)
"""Functions that build blocks without any gradient of parameters."""

LEAST_SMS = 0.75
"""Share of the SMs that kernels keep beside all collectives that the bound counts; a kernel that needs all
SMs keeps that share of its speed."""

LEAST_HBM = 1 - MOST_HBM / 1000
"""Share of HBM's bandwidth that kernels keep beside these collectives."""


@dataclass(frozen=True)
class BlockName:
    """A block, named by the function that builds it: for an end of the model, for a layer of a run, or for a
    forward of one layer ``beside`` the backward of another."""

    build: Any
    run: Any = None
    beside: Any = None
    half: Half | None = None

    def of(self, blocks: Blocks) -> Block:
        if self.beside is not None:
            return blocks.pair(self.run, self.beside)
        if self.half is None:
            return blocks.end(self.build) if self.run is None else blocks.layer(self.build, self.run)
        local = blocks.local.of(self.run.kind)
        if self.half is Half.EXPERTS and local.experts and not local.experts.tensor_parallel:
            local = local.routed
        block: Block = self.build(blocks.begin(local), self.run.recompute, half=self.half)
        return block

    @cached_property
    def halves(self) -> tuple[BlockName, ...]:
        """The two halves of a block that run in turn with others; none for blocks without experts."""
        if self.build not in (forward_block, backward_block) or self.beside is not None:
            return ()
        if not self.run.kind.experts or by_operators(self.run.recompute):
            return ()
        return self._half(Half.EXPERTS, OF_ATTENTION), self._half(Half.ATTENTION, OF_EXPERTS)

    @property
    def has_router_loss(self) -> bool:
        """Whether a half with experts has a router's loss, if there is one: a layer's forward has it, or the
        backward that runs that forward again."""
        return self.half is Half.EXPERTS and (self.build is forward_block) != unrecorded(self.run.recompute)

    def _half(self, half: Half, others: Recompute) -> BlockName:
        """One half of the block, which does not recompute what the other half has."""
        return replace(self, half=half, run=replace(self.run, recompute=self.run.recompute - others))


@dataclass(frozen=True)
class BlockNames:
    """Stands in place of ``Blocks``, and gives the name of each block, or pair of blocks, that an action asks
    for.

    ``local`` is any local shape with the experts and exchanges in question: pairs ask for it.
    """

    local: LocalShape | None = None

    def end(self, build: BuildEnd) -> BlockName:
        return BlockName(build)

    def layer(self, build: BuildLayer, run: LayerRun) -> BlockName:
        return BlockName(build, _one_layer(run, recompute_of(build, run, run.recompute)))

    def layer_of(self, kind: ActionKind, run: LayerRun) -> Block:
        return Blocks.layer_of(cast(Blocks, self), kind, run)

    def pair(self, forward: LayerRun, backward: LayerRun) -> BlockName:
        return BlockName(
            None,
            _one_layer(forward, recompute_of(forward_block, forward, forward.recompute)),
            _one_layer(backward, backward.recompute),
        )


def recompute_of(build: Any, run: LayerRun, recompute: Recompute) -> Recompute:
    """What the name of a layer's block says of ``recompute``. A forward is the same whatever is recomputed,
    but where its experts keep nothing."""
    if build is not forward_block:
        return recompute
    return seen_by_forward(recompute) if run.kind.experts else NOTHING


def _one_layer(run: LayerRun, recompute: Recompute) -> LayerRun:
    return replace(run, count=1, recompute=recompute)


@dataclass(kw_only=True)
class ActionTimes:
    """Seconds of the actions of a stage, by layer of the tables: for all ``used`` layers at once, which are
    those that were last asked for (``ask``).

    Blocks of stages ``in_common`` are timed once for this process and those that are forked from it later.
    """

    tables: ScreenTables
    used: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    in_common: InitVar[Iterable[Stage]] = ()
    actions: dict[tuple[ActionKind, Stage], BlockTimes] = field(default_factory=dict)
    pairs: dict[tuple[Stage, Stage], BlockTimes] = field(default_factory=dict)
    _names: dict[tuple[ActionKind, Stage], tuple[tuple[BlockName, int], ...]] = field(default_factory=dict)
    _one_of: dict[BlockName, BlockName] = field(default_factory=dict)
    _asked: dict[BlockName, BlockTimes] = field(default_factory=dict)
    _known: dict[BlockName, CommonFigures] = field(default_factory=dict)
    _parts: dict[tuple[bool, bool], Codes] = field(default_factory=dict)

    def __post_init__(self, in_common: Iterable[Stage]) -> None:
        self._places = np.zeros(len(self.tables.layers), dtype=np.int64)
        self.ask(self.used)
        actions = [self._named(kind, stage) for stage in in_common for kind in ActionKind]
        for name, _ in chain(*actions):
            for one in (name, *name.halves):
                self._parts_of(one)
                self._known.setdefault(one, self._figures(shared=True))

    def places(self, rows: Codes) -> Codes:
        """For each layout, the place of its layer among the used ones."""
        found: Codes = self._places[self.tables.layer[rows]]
        return found

    def ask(self, layers: Codes) -> None:
        """Set the layers that are asked for from now on."""
        self.used = np.flatnonzero(np.bincount(layers))
        self._places[self.used] = np.arange(len(self.used))
        for known in (self.actions, self.pairs, self._asked):
            known.clear()

    def of(self, kind: ActionKind, stage: Stage) -> BlockTimes:
        """Seconds of an action of that kind on such a stage, by used layer."""
        key = kind, stage
        found = self.actions.get(key)
        if found is None:
            found = self.actions[key] = self._total(self._named(kind, stage))
        return found

    def _named(self, kind: ActionKind, stage: Stage) -> tuple[tuple[BlockName, int], ...]:
        """The blocks of an action, each with how often it runs."""
        key = kind, stage
        found = self._names.get(key)
        if found is None:
            row = action_blocks(Action(0, kind, 0), stage, cast(Blocks, BlockNames()))
            named = cast("tuple[tuple[BlockName, int], ...]", row)
            one_of = self._one_of.setdefault  # equal names are one, so that each has its halves once
            found = self._names[key] = tuple((one_of(name, name), count) for name, count in named)
        return found

    def of_pair(self, forward: Stage, backward: Stage, local: LocalShape) -> BlockTimes | None:
        """Seconds of a forward and a backward that run as one, by used layer; None where they run in turn.
        ``local`` is that of layers with the same exchanges."""
        if not runs_as_one(forward, backward, local):
            return None
        if (forward, backward) not in self.pairs:
            row = pair_blocks(forward, backward, cast(Blocks, BlockNames(local)))
            named = Counter(cast(BlockName, block) for block, *_, count in row or () for _ in range(count))
            self.pairs[forward, backward] = self._total(named.items())
        return self.pairs[forward, backward]

    def _total(self, named: Iterable[tuple[BlockName, int]]) -> BlockTimes:
        total = [np.zeros(len(self.used)) for _ in BlockTimes._fields]
        for name, count in named:
            for each, seconds in zip(total, self.named(name), strict=True):
                each += count * seconds
        return BlockTimes(*total)

    def named(self, name: BlockName) -> BlockTimes:
        """Seconds of one block, by used layer."""
        # Of groups that reach beyond what a layer's tables are by.
        if name.build in (amax_reduction, attention_amax_reduction):
            return BlockTimes(*np.zeros((len(BlockTimes._fields), len(self.used))))
        found = self._asked.get(name)
        if found is None:
            halves = name.halves if name.half is None else ()
            found = _in_turn(*map(self.named, halves)) if halves else self._built(name)
            self._asked[name] = found
        return found

    def _built(self, name: BlockName) -> BlockTimes:
        """Seconds of a block that is the same for several layers, and is built once for all of these."""
        if name not in self._known:
            self._known[name] = self._figures()
        # Beside other exchanges than its own, kernels of a pair may have more SMs than by itself.
        sms = self.tables.cluster.gpu.sms if name.beside is None else 0
        work = partial(self._timed, name, sms)
        return BlockTimes(*self._known[name].of(self._parts_of(name)[self.used], work))

    def _timed(self, name: BlockName, sms: int, layer: int) -> tuple[float, ...]:
        return _times(name.of(self.tables.blocks_of(layer)), sms)

    def _figures(self, *, shared: bool = False) -> CommonFigures:
        return CommonFigures(len(BlockTimes._fields), len(self.tables.layers), shared=shared)

    def _parts_of(self, name: BlockName) -> Codes:
        """For each layer, the first layer that has the same block."""
        forward = name.build in _WITHOUT_GRADIENTS
        layered = name.half is None and name.run is not None and name.run.kind.experts
        if name.beside is not None or layered:
            return self.tables.forward_of if forward else self._every
        kind = name.half is Half.EXPERTS, name.has_router_loss
        if kind not in self._parts:
            keys = [one.part(experts=kind[0], loss=kind[1]) for one in self.tables.layers]
            first = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
            self._parts[kind] = np.array([first[key] for key in keys], dtype=np.int64)
        parts = self._parts[kind]
        return parts[self.tables.forward_of] if forward else parts

    @cached_property
    def _every(self) -> Codes:
        return np.arange(len(self.tables.layers))


def _in_turn(first: BlockTimes, then: BlockTimes) -> BlockTimes:
    """The figures of two blocks, of which the second begins when the first has ended."""
    found = BlockTimes(*(one + other for one, other in zip(first, then, strict=True)))
    return found._replace(kernels_end=first.alone + then.kernels_end)


def _times(block: Block, sms: int) -> tuple[float, ...]:
    kernels = [op.work for op in block.ops if isinstance(op.work, Compute)]
    kernels_s = sum(work.seconds for work in kernels)
    memory_s = sum(work.seconds for work in kernels if work.kind == "memory-bound")
    alone_s, kernels_end_s = solo_ends(block, sms=sms)
    least = IN_TWO_PASSES if any(work.static_schedule for work in kernels) else LEAST_SMS
    slow_s = memory_s / LEAST_HBM + (kernels_s - memory_s) / least
    slow = (
        solo_ends(block, stretch=1 / least, stretch_memory=1 / LEAST_HBM)[0] if alone_s > kernels_s else 0.0
    )
    idle_s = max(0.0, slow - slow_s)
    return alone_s, kernels_s, memory_s, block.host_s, kernels_end_s, idle_s
