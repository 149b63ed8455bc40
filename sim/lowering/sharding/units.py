"""What is gathered and reduced together: the units of an action, in the order in which it needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...program.program import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Parameters that are gathered together.

    ``elements`` of them are sharded over the shard group, ``experts`` over their own, unless these are whole
    on each rank (``experts_whole``), and ``whole`` are never sharded. With ``again`` they are gathered once
    for the recomputation and once for the backward. ``matrices`` are the elements of each matrix in the order
    of the forward, where matrices are gathered one by one; ``forward_products`` and ``backward_products``
    count the GEMMs and attention of a pass. Gathered elements take ``narrow`` times the bytes of a
    parameter, gathered experts ``narrow_experts`` times.
    """

    name: str
    elements: float
    experts: float = 0.0
    experts_whole: bool = False
    whole: float = 0.0
    again: bool = False
    matrices: tuple[float, ...] = ()
    forward_products: int = 1
    backward_products: int = 2
    narrow: float = 1.0
    narrow_experts: float = 1.0

    @property
    def sharded(self) -> float:
        """Elements that are gathered from shards."""
        return self.elements + (0.0 if self.experts_whole else self.experts)

    @property
    def gathered(self) -> float:
        """``sharded`` elements, each by its bytes once gathered."""
        return self.elements * self.narrow + (
            0.0 if self.experts_whole else self.experts * self.narrow_experts
        )

    @property
    def total(self) -> float:
        """All elements of the unit."""
        return self.elements + self.experts + self.whole


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks that need ``unit`` and no other parameters."""

    blocks: tuple[Block, ...]
    unit: Unit


def pieces(blocks: Iterable[tuple[Block, Unit | None, int]], together: float) -> tuple[Piece, ...]:
    """Blocks in their order as pieces, each with the unit that it needs.

    Blocks without parameters join the piece before them, or at the start the one after them. Neighbouring
    layers join while their unit has at most ``together`` elements.
    """
    found: list[Piece] = []
    waiting: tuple[Block, ...] = ()
    for block, unit in _one_by_one(blocks):
        if unit is None:
            if found:
                found[-1] = Piece((*found[-1].blocks, block), found[-1].unit)
            else:
                waiting = (*waiting, block)
        elif found and (joint := _joint(found[-1].unit, unit, together)):
            found[-1] = Piece((*found[-1].blocks, block), joint)
        else:
            found.append(Piece((*waiting, block), unit))
            waiting = ()
    if waiting:
        found.append(Piece(waiting, Unit(name="none", elements=0.0)))
    return tuple(found)


def _one_by_one(blocks: Iterable[tuple[Block, Unit | None, int]]) -> Iterator[tuple[Block, Unit | None]]:
    for block, unit, count in blocks:
        for _ in range(count):
            yield block, unit


def _joint(one: Unit, other: Unit, together: float) -> Unit | None:
    """Two layers as one unit. An end of the model that runs twice (multi-token prediction) stays one unit."""
    if not one.name == other.name == "layer" or one.sharded + other.sharded > together:
        return None
    return replace(
        one,
        elements=one.elements + other.elements,
        experts=one.experts + other.experts,
        whole=one.whole + other.whole,
        matrices=one.matrices + other.matrices,
        forward_products=one.forward_products + other.forward_products,
        backward_products=one.backward_products + other.backward_products,
    )
