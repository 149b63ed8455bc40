"""Which collectives of a layer run beside its GEMMs, under a scheduler that counts GEMMs and knows no
times.

One collective is under way at a time, and the scheduler wants each one beside a certain number of GEMMs. A
pass over a layer has few GEMMs, so that some of its collectives find none left: they run with nothing
beside them. A collective that gets the last GEMMs is hidden as a whole, even if they are fewer than
wanted. Gathers come first, since GEMMs wait for them, while only the update waits for gradients.

Source: sim/scenario/sharding.py, of implementation xla. Where XLA is given measured times
(xla_gpu_pgle_profile_file_or_directory_path) its scheduler does better than this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...program.program import Op
from .units import Piece


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """The rule of XLA's scheduler: ``products_each`` GEMMs hide one collective.

    ``in_turn``: a layer's parameters are gathered only once it begins, and it waits for the first gather;
    otherwise they are gathered while the layer before it computes. ``waits``: no reduction is hidden.
    """

    products_each: int
    in_turn: bool
    waits: bool

    def gathers(
        self, row: Sequence[Piece], gathers: Sequence[tuple[Op, ...]], *, backward: bool
    ) -> tuple[list[tuple[Op, ...]], list[tuple[Op, ...]]]:
        """For each piece, the gathers that overlap it and those that it waits for."""
        beside: list[tuple[Op, ...]] = [()] * len(row)
        awaited: list[tuple[Op, ...]] = []
        for k, ops in enumerate(gathers):
            host = k if self.in_turn else k - 1
            least = 1 if self.in_turn else 0
            hidden = min(len(ops) - least, self._room(row[host], backward=backward)) if host >= 0 else 0
            cut = len(ops) - max(0, hidden)
            awaited.append(ops[:cut])
            if host >= 0:
                beside[host] = ops[cut:]
        return beside, awaited

    def reductions(
        self, piece: Piece, gathers: int, ops: tuple[Op, ...]
    ) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
        """Which of ``ops`` overlap a backward ``piece``, which already hides so many ``gathers``, and
        which it waits for."""
        left = 0 if self.waits else max(0, self._room(piece, backward=True) - gathers)
        return ops[len(ops) - min(left, len(ops)) :], ops[: len(ops) - min(left, len(ops))]

    def _room(self, piece: Piece, *, backward: bool) -> int:
        """How many collectives the GEMMs of a piece's forward or backward can hide."""
        unit = piece.unit
        return math.ceil((unit.backward_products if backward else unit.forward_products) / self.products_each)
