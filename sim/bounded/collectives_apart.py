"""Programs whose replicas meet between blocks, where they would meet inside blocks that do nothing else.

A block that is one reduction over all replicas, such as that of FP8 maxima behind a virtual stage, makes one
group of all ranks whose repeated blocks have it. Such a group runs together, so that the step has no bounds
and each rank takes a time of its own. As an op of its own the reduction means the same (expand.py); replicas
run by themselves in between, and bounds hold for it as for reductions of gradients. Knows ranks and their
programs; replays nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..fold.ranks import HEALTHY, ranks_of
from ..program.expand import expand_blocks
from ..program.program import Collective, RepeatedBlocks
from .conditions import crossing
from .replicas import replicas_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..lowering.lower import Lowered
    from ..program.program import Block, Programs


def collectives_apart(lowered: Lowered) -> Lowered:
    """The step with blocks that are nothing but collectives of several replicas turned into ops of the
    programs; the step itself where there are none."""
    if not any(_communicators(block) for block in _blocks(lowered.programs)):
        return lowered
    ranks = ranks_of(lowered)
    replicas = replicas_of(lowered.plan.process_groups, ranks, HEALTHY)
    across = frozenset(crossing(ranks, replicas)) if replicas else frozenset()
    if not any(_communicators(block) & across for block in _blocks(lowered.programs)):
        return lowered
    programs = expand_blocks(lowered.programs, lambda block: bool(_communicators(block) & across))
    return replace(lowered, programs=programs)


def _blocks(programs: Programs) -> Iterator[Block]:
    """The distinct blocks of all programs."""
    rows = {id(op.work): op.work for program in programs.classes for op in program.ops}
    for work in rows.values():
        if isinstance(work, RepeatedBlocks):
            yield from (block for block, _ in work.blocks)


def _communicators(block: Block) -> frozenset[str]:
    """The communicators of a block that is collectives alone; none of a block that has kernels."""
    works = [op.work for op in block.ops]
    named = frozenset(work.communicator for work in works if isinstance(work, Collective))
    return named if all(isinstance(work, Collective) for work in works) else frozenset()
