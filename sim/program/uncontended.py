"""Programs in which nobody takes anything from anybody: every communication has its links to itself and holds
no SMs and no bandwidth of HBM, and no kernel is slowed down by what moves beside it.

Such a step is max-plus: an op starts when the last of what it waits for has ended, and takes a time of its
own. So it grows with each of these times, and with shares of links and SMs every op takes at least as long:
its length is a floor for the step, and for the step with any fault that only takes capacity away
(docs/faults.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ..network.paths import NO_PATHS
from ..network.transfer import Transfer, link_names
from .program import Block, Collective, Exchange, MessageEnd, Op, Program, Programs, RepeatedBlocks, Work

Communication = Collective | MessageEnd


def uncontended(programs: Programs) -> Programs:
    """The programs with each communication at the rate that its own class's links leave it alone."""
    writers: dict[tuple[tuple[str, float], ...], Rewriter] = {}
    classes = []
    for program, links in zip(programs.classes, programs.links, strict=True):
        writer = writers.setdefault(tuple(sorted(links.items())), Rewriter(partial(_alone, links)))
        classes.append(writer.program(program))
    return replace(programs, classes=tuple(classes), paths=NO_PATHS, corun_slowdown=0.0)


def rate_alone(transfer: Transfer, links: Mapping[str, float]) -> float:
    """Payload bytes per second of a communication that has the links of its ranks to itself."""
    rates = [
        links[link] / weight
        for name, weight in transfer.weights
        for link in link_names(name)
        if weight and links.get(link)
    ]
    return min([transfer.ceiling_bytes_per_s, *rates])


def _alone(links: Mapping[str, float], _: str, one: Communication) -> Transfer:
    transfer = one.transfer
    rate = rate_alone(transfer, links)
    return replace(transfer, ceiling_bytes_per_s=rate, weights=(), sms=0, hbm=0)


@dataclass
class Rewriter:
    """Writes programs anew with what ``transfer`` makes of each communication, given its stream; each
    distinct part once.
    """

    transfer: Callable[[str, Communication], Transfer]
    programs: dict[int, Program] = field(default_factory=dict)
    works: dict[tuple[str, int], tuple[Work, Work]] = field(default_factory=dict)
    """Work without contention, by stream and identity of the original, which is kept alive here."""
    blocks: dict[Block, Block] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        """The uncontended form of a program; the same object for the same program."""
        found = self.programs.get(id(program))
        if found is None:
            found = self.programs[id(program)] = Program(ops=tuple(map(self._op, program.ops)))
        return found

    def _op(self, op: Op) -> Op:
        return op._replace(work=self._work(op.stream, op.work))

    def _work(self, stream: str, work: Work) -> Work:
        key = stream, id(work)
        if key not in self.works:
            self.works[key] = work, self._written(stream, work)
        return self.works[key][1]

    def _written(self, stream: str, work: Work) -> Work:
        match work:
            case Collective():
                return replace(work, transfer=self.transfer(stream, work))
            case Exchange():
                return Exchange(tuple(p._replace(transfer=self.transfer(stream, p)) for p in work.parts))
            case RepeatedBlocks():
                return RepeatedBlocks(tuple((self._block(block), count) for block, count in work.blocks))
        return work

    def _block(self, block: Block) -> Block:
        if block not in self.blocks:
            self.blocks[block] = Block(block.name, tuple(map(self._op, block.ops)))
        return self.blocks[block]
