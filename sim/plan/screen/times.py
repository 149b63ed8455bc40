"""Seconds of every block by itself, of all layers of the tables at once.

What an action runs is asked of ``sim/lowering/actions.py`` with names in place of blocks; each named block is
then timed once a layer (``sim/program/solo.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ....schedules.orders.action import Action, ActionKind
from ...lowering.actions import Blocks, action_blocks
from ...program.program import Block, Compute
from ...program.solo import solo_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...lowering.actions import BuildEnd, BuildLayer
    from ...lowering.layers.kinds import LayerRun
    from ...lowering.layers.stages import Stage
    from .tables import ScreenTables

    Floats = NDArray[np.float64]


class BlockTimes(NamedTuple):
    """Seconds by layer of the tables.

    ``alone``: with the GPU to itself; ``kernels`` of the compute stream, of which ``memory`` are bound by
    memory; ``host``; ``kernels_end``: until the last kernel has ended; ``idle``: for which the compute
    stream stands still at least, however little of the SMs its kernels have (``LEAST_SMS``).
    """

    alone: Floats
    kernels: Floats
    memory: Floats
    host: Floats
    kernels_end: Floats
    idle: Floats


LEAST_SMS = 0.75
"""The part of the SMs that kernels keep beside all collectives that the bound counts."""


@dataclass(frozen=True)
class BlockName:
    """A block by what builds it: an end of the model, or a layer of a run."""

    build: Any
    run: Any = None

    def of(self, blocks: Blocks) -> Block:
        return blocks.end(self.build) if self.run is None else blocks.layer(self.build, self.run)


class BlockNames:
    """In place of ``Blocks``: gives the name of each block that an action asks for."""

    def end(self, build: BuildEnd) -> BlockName:
        return BlockName(build)

    def layer(self, build: BuildLayer, run: LayerRun) -> BlockName:
        return BlockName(build, replace(run, count=1))


@dataclass(kw_only=True)
class ActionTimes:
    """Seconds of the actions of a stage, of all layers of the tables that are ``used`` at once."""

    tables: ScreenTables
    used: Sequence[int]
    known: dict[BlockName, BlockTimes] = field(default_factory=dict)
    actions: dict[tuple[ActionKind, Stage], BlockTimes] = field(default_factory=dict)

    def of(self, kind: ActionKind, stage: Stage) -> BlockTimes:
        """Seconds of an action of that kind on such a stage, by layer."""
        if (kind, stage) not in self.actions:
            named = action_blocks(Action(0, kind, 0), stage, cast(Blocks, BlockNames()))
            total = np.zeros((len(BlockTimes._fields), len(self.tables.layers)))
            for name, count in cast("tuple[tuple[BlockName, int], ...]", named):
                total += count * np.stack(self.named(name))
            self.actions[kind, stage] = BlockTimes(*total)
        return self.actions[kind, stage]

    def named(self, name: BlockName) -> BlockTimes:
        """Seconds of one block, by layer."""
        if name not in self.known:
            tables = self.tables
            found = np.zeros((len(tables.layers), len(BlockTimes._fields)))
            for number in self.used:
                found[number] = _times(name.of(tables.blocks_of(number)), tables.cluster.gpu.sms)
            self.known[name] = BlockTimes(*found.T)
        return self.known[name]


def _times(block: Block, sms: int) -> tuple[float, ...]:
    kernels = [op.work for op in block.ops if isinstance(op.work, Compute)]
    kernels_s = sum(work.seconds for work in kernels)
    memory_s = sum(work.seconds for work in kernels if work.kind == "memory-bound")
    alone_s, kernels_end_s = solo_ends(block, sms=sms)
    slow_s = memory_s + (kernels_s - memory_s) / LEAST_SMS
    idle_s = max(0.0, solo_ends(block, stretch=1 / LEAST_SMS)[0] - slow_s) if alone_s > kernels_s else 0.0
    return alone_s, kernels_s, memory_s, block.host_s, kernels_end_s, idle_s
