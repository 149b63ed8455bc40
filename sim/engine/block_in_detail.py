"""A block that runs op by op, from where it is until it ends.

Its other streams wait for what is before them in the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from .chain import Chain
from .kernel_stream import BlocksReplay, HandsOver, KernelStream

if TYPE_CHECKING:
    from .clock import Clock
    from .rank_state import RankState
    from .rendezvous import RendezvousPoints
    from .scope import Scope
    from .signal import Callback
    from .single_block import BlockPlace


@dataclass(slots=True, eq=False)
class BlockInDetail:
    """The ops of the block at ``place`` that have not ended, whose times are in ``block``; ``over`` is called
    when all have, unless its kernels ``hand_over`` before."""

    env: Clock
    rank: RankState
    rendezvous_points: RendezvousPoints
    repeated_blocks: BlocksReplay
    place: BlockPlace
    block: Scope
    over: Callback
    hands_over: HandsOver
    others: list[Chain] = field(default_factory=list)

    def begin(self) -> None:
        """Run all streams from where they are."""
        place, block = self.place, self.block
        self.others = list(self._chains())
        unfinished = {block.ops[k].stream for k, end in enumerate(block.end) if end < 0}
        for stream, last in place.repeated.last_on.items():
            if last <= place.number and stream not in unfinished:
                self.rank.ended_on(place.i, stream)
        row = [k for row in place.block.streams.get("compute", ()) for k in row if block.end[k] < 0]
        kernels = KernelStream(self.env, self.rank, self.repeated_blocks, block, row, self.hands_over)
        kernels.ended.then(self._ends)
        kernels.go()

    def is_idle(self) -> bool:
        """Whether none of its communications is under way."""
        return not any(chain.awaited or chain.holds for chain in self.others)

    def give_up(self) -> None:
        """Stop running ops: the block runs as a whole from here on. Streams that were to go on at this very
        moment do not begin their ops."""
        self.block.waiting.clear()
        for chain in self.others:
            chain.given_up = True

    def _ends(self) -> None:
        """Kernels have ended: wait for the first of all others that has not."""
        for chain in self.others:
            if not chain.ended.happened:
                chain.ended.then(self._ends)
                return
        self.over()

    def _chains(self) -> Iterator[Chain]:
        """Begin every stream of the block except that of its kernels."""
        place, block = self.place, self.block
        for stream, rows in place.block.streams.items():
            if stream == "compute":
                continue
            for row in rows:
                if left := [k for k in row if block.end[k] < 0]:
                    yield self._begun(stream, left)

    def _begun(self, stream: str, row: list[int]) -> Chain:
        """A stream of communications that has begun."""
        place, behind = self.place, self.repeated_blocks.behind
        chain = Chain(self.env, self.rank, self.rendezvous_points, behind, self.block, row)
        if place.repeated.last_on[stream] == place.number:
            chain.ended.then(partial(self.rank.ended_on, place.i, stream))
        self._begin_behind(chain, stream)
        return chain

    def _begin_behind(self, chain: Chain, stream: str) -> None:
        """Run a chain when what comes before the repeated blocks on its stream has ended."""
        scope, i = self.place.scope, self.place.i
        for earlier in scope.before.get(i, ()):
            if scope.ops[earlier].stream == stream and scope.end[earlier] < 0:
                scope.then(earlier, partial(self._begin_behind, chain, stream))
                return
        chain.go()
