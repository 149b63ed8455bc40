"""The programs that are replayed for a lowered step, and the ranks that each of them stands for.

Without trouble, ranks that differ only in their tensor- or data-parallel coordinate are equal by
construction: one class per pipeline rank, which is what lowering wrote (structural folding; a test holds
colour refinement to the same classes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..report.result import RankClass
from .programs import programs_of_classes
from .ranks import Trouble, ranks_of

if TYPE_CHECKING:
    from ..program.program import Programs
    from ..step.lower import Lowered

MOST_RANKS = 4096
"""Ranks that are replayed one by one: a few hundred thousand events and a minute."""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """``ranks`` says what each class of ``programs`` stands for; ``first_of_stage`` is the first class of
    each pipeline rank.
    """

    programs: Programs
    ranks: tuple[RankClass, ...]
    first_of_stage: Mapping[int, int]


def folded(lowered: Lowered) -> Folded:
    """One class per pipeline rank."""
    groups = lowered.plan.groups
    ranks = tuple(
        RankClass(name=f"pp {r}", pp=r, count=groups.ranks_per_stage, first_rank=first)
        for r, first in enumerate(groups.first_rank)
    )
    return Folded(programs=lowered.programs, ranks=ranks, first_of_stage={r: r for r in range(len(ranks))})


def unfolded(lowered: Lowered) -> Folded:
    """One class per rank. Raises ValueError above ``MOST_RANKS``."""
    world = lowered.plan.scenario.world_size
    if world > MOST_RANKS:
        raise ValueError(
            f"{world:,} ranks are too many to replay one by one (at most {MOST_RANKS:,}); fold them, or take "
            "fewer GPUs"
        )
    ranks = ranks_of(lowered)
    programs = programs_of_classes(lowered.programs, ranks, np.arange(world), Trouble())
    stages = ranks.signature.tolist()
    return Folded(
        programs=programs,
        ranks=tuple(
            RankClass(name=f"rank {rank} (pp {pp})", pp=pp, count=1, first_rank=rank)
            for rank, pp in enumerate(stages)
        ),
        first_of_stage={pp: stages.index(pp) for pp in set(stages)},
    )
