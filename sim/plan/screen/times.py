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
    from .tables import Tables

    Floats = NDArray[np.float64]


class Times(NamedTuple):
    """Seconds by layer of the tables: ``solo`` alone on the GPU, ``kernels`` of the compute stream, ``host``;
    ``kernels_end``: until the last kernel has ended."""

    solo: Floats
    kernels: Floats
    host: Floats
    kernels_end: Floats


@dataclass(frozen=True)
class Named:
    """A block by what builds it: an end of the model, or a layer of a run."""

    build: Any
    run: Any = None

    def of(self, blocks: Blocks) -> Block:
        return blocks.end(self.build) if self.run is None else blocks.layer(self.build, self.run)


class Names:
    """In place of ``Blocks``: gives the name of each block that an action asks for."""

    def end(self, build: BuildEnd) -> Named:
        return Named(build)

    def layer(self, build: BuildLayer, run: LayerRun) -> Named:
        return Named(build, replace(run, count=1))


@dataclass(kw_only=True)
class ActionTimes:
    """Seconds of the actions of a stage, of all layers of the tables that are ``used`` at once."""

    tables: Tables
    used: Sequence[int]
    known: dict[Named, Times] = field(default_factory=dict)
    actions: dict[tuple[ActionKind, Stage], Times] = field(default_factory=dict)

    def of(self, kind: ActionKind, stage: Stage) -> Times:
        """Seconds of an action of that kind on such a stage, by layer."""
        if (kind, stage) not in self.actions:
            named = action_blocks(Action(0, kind, 0), stage, cast(Blocks, Names()))
            total = np.zeros((4, len(self.tables.layers)))
            for name, count in cast("tuple[tuple[Named, int], ...]", named):
                total += count * np.stack(self.named(name))
            self.actions[kind, stage] = Times(*total)
        return self.actions[kind, stage]

    def named(self, name: Named) -> Times:
        """Seconds of one block, by layer."""
        if name not in self.known:
            tables = self.tables
            found = np.zeros((len(tables.layers), 4))
            for number in self.used:
                block = name.of(tables.blocks_of(number))
                solo_s, kernels_end_s = solo_ends(block)
                found[number] = solo_s, _kernels_s(block), block.host_s, kernels_end_s
            self.known[name] = Times(*found.T)
        return self.known[name]


def _kernels_s(block: Block) -> float:
    return sum(op.work.seconds for op in block.ops if isinstance(op.work, Compute))
