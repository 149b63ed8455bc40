"""Programs of classes of ranks: each class runs its pipeline rank's program, meeting classes where that
met groups.

A communicator whose members are all of one class stays that class's own: its members are equal and never
wait for one another. One that joins several classes is shared, and what the programs had memoised
(segments) is spelled out where a shared communicator is part of it. Knows programs; which ranks make a
class is given (ranks.py).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from ..program.program import Block, Collective, Compute, Exchange, Program, Programs, Segment, Work
from ..program.spell_out import spell_out
from .paths import paths_of_classes
from .ranks import Ranks, Trouble

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .fabric import Fabric
    from .partition import Partition


def programs_of_classes(
    programs: Programs,
    ranks: Ranks,
    classes: NDArray[np.int64],
    trouble: Trouble,
    fabric: Fabric | None = None,
    found: Partition | None = None,
) -> Programs:
    """One program per class. With a class for each rank, the whole job unfolded.

    ``found`` is the partition that ``classes`` are of, where it is at hand.
    """
    first: dict[int, int] = {}
    for rank, number in enumerate(classes.tolist()):
        first.setdefault(number, rank)
    written = [_Class(programs, ranks, classes, trouble, rank) for _, rank in sorted(first.items())]
    communicators = {name: members for one in written for name, members in one.communicators.items()}
    names = {number: one.names for number, one in enumerate(written)}
    paths = paths_of_classes(fabric, ranks, found, classes, first, names)
    return replace(
        programs,
        classes=tuple(one.program(paths.routed(r)) for r, one in enumerate(written)),
        paths=paths,
        communicators=communicators,
        links=tuple(one.links() for one in written),
    )


class _Class:
    """One class, seen from ``rank``, a rank of it."""

    def __init__(
        self, programs: Programs, ranks: Ranks, classes: NDArray[np.int64], trouble: Trouble, rank: int
    ) -> None:
        self.programs, self.ranks, self.classes, self.rank = programs, ranks, classes, rank
        self.trouble = trouble
        self.slow = trouble.slow.get(rank, 1.0)
        self.names: dict[str, str] = {}
        self.communicators: dict[str, tuple[int, ...]] = {}
        self.blocks: dict[Block, Block] = {}
        for name, instance in ranks.instance.items():
            if instance[rank] >= 0:
                self._name(name)

    def _name(self, name: str) -> None:
        """A name for the communicator that every class of its instance gives it too."""
        members = tuple(sorted({int(self.classes[m]) for m in self.ranks.members(name, self.rank)}))
        if len(members) > 1:
            self.names[name] = f"{name} of {', '.join(map(str, members))}"
            self.communicators[self.names[name]] = members

    def links(self) -> dict[str, float]:
        """The class's own links, with what is left of their capacity."""
        share = self.trouble.link_share
        own = self.programs.links[int(self.ranks.signature[self.rank])]
        return {name: rate * share.get((self.rank, name), 1.0) for name, rate in own.items()}

    def program(self, routed: frozenset[str]) -> Program:
        """What the class runs. Blocks are memoised where they meet no other class, and nothing on the way."""
        own = self.programs.classes[int(self.ranks.signature[self.rank])]
        renamed = Program(ops=tuple(replace(op, work=self._work(op.work)) for op in own.ops))
        met = routed | self.communicators.keys()
        if not met:
            return renamed
        return spell_out(renamed, lambda segment: any(_meets(block, met) for block, _ in segment.blocks))

    def _work(self, work: Work) -> Work:
        match work:
            case Compute() if self.slow != 1.0:
                return replace(work, seconds=work.seconds * self.slow)
            case Collective() if work.communicator in self.names:
                return replace(work, communicator=self.names[work.communicator])
            case Exchange():
                return Exchange(tuple(replace(part, peer=self._peer(part.peer)) for part in work.parts))
            case Segment() if self.slow != 1.0 or self.names:
                return Segment(tuple((self._block(block), count) for block, count in work.blocks))
        return work

    def _peer(self, stage: int) -> int:
        return int(self.classes[self.ranks.peer[stage][self.rank]])

    def _block(self, block: Block) -> Block:
        """Each distinct block once, as this class runs it."""
        if block not in self.blocks:
            ops = tuple(replace(op, work=self._work(op.work)) for op in block.ops)
            same = all(op.work is old.work for op, old in zip(ops, block.ops, strict=True))
            self.blocks[block] = block if same else Block(block.name, ops)
        return self.blocks[block]


def _meets(block: Block, communicators: AbstractSet[str]) -> bool:
    """Whether a block holds a collective of one of these."""
    works = (op.work for op in block.ops)
    return any(isinstance(work, Collective) and work.communicator in communicators for work in works)
