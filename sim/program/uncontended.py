"""Programs in which nobody takes anything from anybody: every communication has its links to itself and holds
no SMs, and no kernel is slowed down by what moves beside it.

Such a step is max-plus: an op starts when the last of what it waits for has ended, and takes a time of its
own. So it grows with each of these times, and with shares of links and SMs every op takes at least as long:
its length is a floor for the step, and for the step with any fault that only takes capacity away
(docs/faults.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..network.paths import NO_PATHS
from ..network.transfer import Transfer, link_names
from .program import Block, Collective, Exchange, Program, Programs, RepeatedBlocks, Work


def uncontended(programs: Programs) -> Programs:
    """The programs with each communication at the rate that its own class's links leave it alone."""
    writers: dict[tuple[tuple[str, float], ...], _Writer] = {}
    classes = []
    for program, links in zip(programs.classes, programs.links, strict=True):
        writer = writers.setdefault(tuple(sorted(links.items())), _Writer(links))
        classes.append(writer.program(program))
    return replace(programs, classes=tuple(classes), paths=NO_PATHS, corun_slowdown=0.0)


@dataclass
class _Writer:
    """Writes programs of classes with these links; each distinct part once."""

    links: Mapping[str, float]
    programs: dict[int, Program] = field(default_factory=dict)
    works: dict[int, tuple[Work, Work]] = field(default_factory=dict)  # by identity, which is kept alive
    blocks: dict[Block, Block] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        found = self.programs.get(id(program))
        if found is None:
            ops = tuple(op._replace(work=self._work(op.work)) for op in program.ops)
            found = self.programs[id(program)] = Program(ops=ops)
        return found

    def _work(self, work: Work) -> Work:
        if id(work) not in self.works:
            self.works[id(work)] = work, self._written(work)
        return self.works[id(work)][1]

    def _written(self, work: Work) -> Work:
        match work:
            case Collective():
                return replace(work, transfer=self._alone(work.transfer))
            case Exchange():
                return Exchange(tuple(p._replace(transfer=self._alone(p.transfer)) for p in work.parts))
            case RepeatedBlocks():
                return RepeatedBlocks(tuple((self._block(block), count) for block, count in work.blocks))
        return work

    def _block(self, block: Block) -> Block:
        if block not in self.blocks:
            ops = tuple(op._replace(work=self._work(op.work)) for op in block.ops)
            self.blocks[block] = Block(block.name, ops)
        return self.blocks[block]

    def _alone(self, transfer: Transfer) -> Transfer:
        rates = [
            self.links[link] / weight
            for name, weight in transfer.weights
            for link in link_names(name)
            if weight and self.links.get(link)
        ]
        rate = min([transfer.ceiling_bytes_per_s, *rates])
        return replace(transfer, ceiling_bytes_per_s=rate, weights=(), sms=0)
