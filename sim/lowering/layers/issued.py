"""What a kernel issues, as it is compiled for each maker's GPUs.

Knows that NVIDIA's schedulers begin every instruction in turn, and AMD's compute units vector instructions
beside those that take scalars, branch or read memory (kernels/memory_bound.py). Does not know which kernels
run.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....kernels.kernel import MemoryBound


@dataclass(frozen=True, slots=True)
class Issued:
    """Instructions of single threads: all of them in ``nvidia``'s code; in ``amd``'s those of its vector
    units, where one that takes these four times as long (an exponential, a reciprocal) counts as four."""

    nvidia: float = 0.0
    amd: float = 0.0

    def __add__(self, other: Issued) -> Issued:
        return Issued(self.nvidia + other.nvidia, self.amd + other.amd)

    def __mul__(self, times: float) -> Issued:
        return Issued(self.nvidia * times, self.amd * times)

    __rmul__ = __mul__

    def kernel(self, hbm_bytes: float, *, launches: int = 1) -> MemoryBound:
        """A memory-bound kernel that issues these while it moves ``hbm_bytes``."""
        return MemoryBound(
            hbm_bytes=hbm_bytes,
            launches=launches,
            instructions=self.nvidia,
            vector_instructions=self.amd,
        )

    def __truediv__(self, parts: float) -> Issued:
        return self * (1.0 / parts)


def counted_once(instructions: float) -> Issued:
    """What nobody counted in AMD's code is taken for as much there as in NVIDIA's."""
    return Issued(instructions, instructions)


NOTHING = Issued()
"""Of kernels whose bytes take longer, for all that is known."""
