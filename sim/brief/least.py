"""A step in which nobody shares a link: no longer than the step as it is, with a critical path of its own.

Where context parallelism crosses hosts, messages between pipeline ranks take links from collectives inside
blocks, which the engine then replays op by op. That is nine tenths of such a replay, and a thousandth of the
step. What loses by much is known to lose without it (docs/decisions/0130-what-loses-by-much.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bounded.extremes import least
from ..bounded.sm_holding import holds_follow_kernels

if TYPE_CHECKING:
    from ..program.program import Programs


def least_programs(programs: Programs) -> Programs:
    """The programs with each communication as fast as it is alone.

    No step of them is longer, provided that ranks arrive at collectives which hold SMs by their own kernels
    (docs/decisions/0067-bounds-that-are-proven.md); where they do not, the programs stay as they are.
    """
    return least(programs) if holds_follow_kernels(programs) else programs
