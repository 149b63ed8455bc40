"""Programs without segments, which the engine must run as it runs those with them."""

from __future__ import annotations

from dataclasses import replace

from stepsim.sim.program.bind import bound
from stepsim.sim.program.expand import expand
from stepsim.sim.program.program import Programs


def expanded(programs: Programs) -> Programs:
    """The same programs, op by op, and without bindings."""
    programs = bound(programs)
    return replace(programs, classes=tuple(expand(one, lambda _: True) for one in programs.classes))
