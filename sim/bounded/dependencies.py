"""What each op of a program waits for. Knows programs; knows no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.program import UNORDERED

if TYPE_CHECKING:
    from ..program.program import Program


def dependencies_of(program: Program) -> list[list[int]]:
    """For each op, the ops that it waits for, except those that it waits for through another one."""
    last: dict[str, int] = {}
    found: list[list[int]] = []
    for i, op in enumerate(program.ops):
        before = set(op.after)
        if op.stream != UNORDERED:
            if op.stream in last:
                before.add(last[op.stream])
            last[op.stream] = i
        if len(before) > 1:
            before -= {k for j in before for k in found[j]}
        found.append(sorted(before))
    return found
