"""Expanded programs, without repeated blocks: every block's ops in their place, as without a memo.

What repeated blocks mean is said here: they follow one another, each beginning and ending with all its
streams joined. The engine's short cut must give the same times (tests/test_repeated_blocks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from .bind import bound
from .program import UNORDERED, Block, Op, Program, Programs, RepeatedBlocks

Piece = Block | RepeatedBlocks
"""A piece of repeated blocks: one block whose ops are written one by one, or blocks that stay as they are."""


def rendezvous_expanded(programs: Programs) -> Programs:
    """The programs without bindings, and op by op where blocks call collectives that join other classes."""
    programs = bound(programs)

    def meets(repeated: RepeatedBlocks) -> bool:
        return not repeated.communicators.isdisjoint(programs.communicators)

    return replace(programs, classes=tuple(expand(one, meets) for one in programs.classes))


def expand(program: Program, chosen: Callable[[RepeatedBlocks], bool]) -> Program:
    """The program with the ``chosen`` repeated blocks expanded into their ops."""
    return _written(program, lambda work: work.row if chosen(work) else ())


def expand_blocks(programs: Programs, chosen: Callable[[Block], bool]) -> Programs:
    """The programs with the ops of ``chosen`` blocks in their place, between what is left of their rows."""
    known: dict[int, tuple[Piece, ...]] = {}

    def pieces(work: RepeatedBlocks) -> tuple[Piece, ...]:
        if id(work) not in known:
            known[id(work)] = tuple(_pieces(work, chosen))
        return known[id(work)]

    written = {id(one): one for one in programs.classes}
    written = {key: _written(one, pieces) for key, one in written.items()}
    return replace(programs, classes=tuple(written[id(one)] for one in programs.classes))


def _pieces(work: RepeatedBlocks, chosen: Callable[[Block], bool]) -> Iterator[Piece]:
    """The row of repeated blocks, cut around the chosen ones; nothing where none is."""
    if not any(chosen(block) for block, _ in work.blocks):
        return
    for apart, row in groupby(work.blocks, lambda pair: chosen(pair[0])):
        if apart:
            yield from (block for block, count in row for _ in range(count))
        else:
            yield RepeatedBlocks(tuple(row))


def _written(program: Program, pieces: Callable[[RepeatedBlocks], Sequence[Piece]]) -> Program:
    writer = _Writer(pieces)
    for op in program.ops:
        writer.write(op)
    return Program(ops=tuple(writer.ops))


@dataclass
class _Writer:
    """``ends[i]`` are the written ops that end op i; ``joined`` those that the compute stream awaits next.
    Repeated blocks are written as their ``pieces``, or as they are where they have none.
    """

    pieces: Callable[[RepeatedBlocks], Sequence[Piece]]
    ops: list[Op] = field(default_factory=list)
    ends: list[tuple[int, ...]] = field(default_factory=list)
    joined: tuple[int, ...] = ()
    last_compute: tuple[int, ...] = ()

    def write(self, op: Op) -> None:
        after = tuple(sorted({end for earlier in op.after for end in self.ends[earlier]}))
        if isinstance(op.work, RepeatedBlocks) and (pieces := self.pieces(op.work)):
            joined = tuple(sorted({*after, *self.joined, *self.last_compute}))
            for piece in pieces:
                if isinstance(piece, Block):
                    joined = self._block(piece, joined, op.action)
                else:
                    self.ops.append(
                        op._replace(work=piece, after=joined, host_s=piece.host_s, host_sync=False)
                    )
                    joined = (len(self.ops) - 1,)
            self.joined = self.last_compute = joined
            self.ends.append(joined)
            if op.host_sync and joined:  # the host waits for what it issued last, which awaits all else
                self.ops[joined[-1]] = self.ops[joined[-1]]._replace(host_sync=True)
            return
        if op.stream == "compute":
            after = tuple(sorted({*after, *self.joined}))
            self.joined, self.last_compute = (), (len(self.ops),)
        self.ends.append((len(self.ops),))
        self.ops.append(op._replace(after=after))

    def _block(self, block: Block, joined: tuple[int, ...], action: str) -> tuple[int, ...]:
        """The ops that end the block, or whatever it follows where it has none."""
        base, ends = len(self.ops), set[int]()
        last: dict[str, int] = {}
        for op in block.ops:
            after = tuple(base + earlier for earlier in op.after) or joined
            index = len(self.ops)
            if op.stream == UNORDERED:
                ends.add(index)
            else:
                last[op.stream] = index
            self.ops.append(op._replace(after=after, action=action))
        return tuple(sorted({*ends, *last.values()})) or joined
