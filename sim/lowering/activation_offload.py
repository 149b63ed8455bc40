"""Activations of layers on the host between forward and backward, by copies beside the neighbouring layers.

A layer's activations leave while the next layer computes, and come back while the one after it (the one
before it in backward) computes; the last layer of a stage is needed first and stays. A layer whose copy is
slower than its neighbour waits for it. Where a forward and a backward run as one, both kinds of copies do.

Sources: TransformerEngine pytorch/cpu_offload.py (AsyncDoubleBufferGroupOffloadHandler); Megatron-LM
--cpu-offloading-num-layers, and docs/source/api-guide/fine_grained_activation_offloading.md (pipelines, also
interleaved, and the overlap of exchanges).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ...schedules.orders.action import ActionKind
from ..program.program import Op
from .actions import Owned
from .layers.kinds import LayerRun
from .reductions import offload_link
from .sharding.compose import Around, Composer
from .state.activations import activation_bytes
from .updates.offload import FROM_HOST, TO_HOST

if TYPE_CHECKING:
    from .overlapped import OverlappedBlocks
    from .plan import StepPlan


@dataclass(frozen=True, kw_only=True)
class ActivationCopies:
    """Wraps the layers of actions into copies of their neighbours' activations."""

    plan: StepPlan
    composer: Composer

    def around(self, kind: ActionKind, row: Owned) -> Owned:
        """``row`` of a forward or a whole backward, with copies beside its layers."""
        forward = kind is ActionKind.FORWARD
        single = [(block, owner) for block, owner, count in row for _ in range(count)]
        layers = [i for i, (_, owner) in enumerate(single) if isinstance(owner, LayerRun)]
        found = []
        for i, (block, owner) in enumerate(single):
            place = layers.index(i) if isinstance(owner, LayerRun) else -1
            # forward: the one before leaves; backward, which begins with the last: the next comes
            other = place - 1 if forward else place + 1
            if place >= 0 and 0 <= other < len(layers):
                copy = self._copy(single[layers[other]][1], forward)
                block = self.composer.block((block,), Around(overlapping=(copy,), early=not forward))
            found.append((block, owner, 1))
        return tuple(found)

    def overlapped(self, row: OverlappedBlocks) -> OverlappedBlocks:
        """``row`` of a forward and a backward that run as one, with copies beside the layers of both."""
        single = [(block, mine, other) for block, mine, other, count in row for _ in range(count)]
        ahead = [i for i, (_, mine, _) in enumerate(single) if isinstance(mine, LayerRun)]
        back = [i for i, (_, _, other) in enumerate(single) if isinstance(other, LayerRun)]
        leaves = {i: single[before][1] for before, i in pairwise(ahead)}
        comes = {i: single[after][2] for i, after in pairwise(back)}
        found = []
        for i, (block, mine, other) in enumerate(single):
            copies = tuple(
                self._copy(layers[i], forward)
                for layers, forward in ((leaves, True), (comes, False))
                if i in layers
            )
            found.append(
                (self.composer.block((block,), Around(overlapping=copies, early=True)), mine, other, 1)
            )
        return tuple(found)

    def _copy(self, owner: str | LayerRun | None, forward: bool) -> Op:
        assert isinstance(owner, LayerRun), "only layers have copies"
        size = activation_bytes(self.plan.local, self.plan.scenario.software).layer(owner).kept
        name, stream = ("to host", TO_HOST) if forward else ("from host", FROM_HOST)
        return offload_link(self.plan).copy(f"activations {name}", stream, size)


def activation_copies(plan: StepPlan) -> ActivationCopies:
    """The copies of a plan whose activations leave the GPU."""
    return ActivationCopies(plan=plan, composer=Composer(plan.blocks.begin))
