"""The programs that are replayed for a lowered step, and the ranks that each of them stands for.

Without degradation, and where no link of the fabric can bind, ranks that differ only in their tensor- or
data-parallel coordinate are equal by construction: one class per pipeline rank, which is what lowering wrote
(structural folding; a test holds colour refinement to the same classes). Else refinement finds the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..result.step import RankClass
from .can_bind import can_bind
from .ranks import HEALTHY, Degradation, ranks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..lowering.lower import Lowered
    from ..program.program import Programs
    from .ranks import Ranks

MOST_RANKS = 4096
"""Ranks that are replayed one by one: a few hundred thousand events and a minute."""

MOST_CLASSES = 4096
"""Classes that are replayed unless a user asks for more: as many ranks would be."""


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Folded programs. ``ranks`` says which ranks each class of ``programs`` stands for;
    ``first_of_stage`` is the first class of each pipeline rank. ``of_rank`` is the class of every rank;
    None: its pipeline rank."""

    programs: Programs
    ranks: tuple[RankClass, ...]
    first_of_stage: Mapping[int, int]
    of_rank: NDArray[np.int64] | None = None


def folded(
    lowered: Lowered, degradation: Degradation = HEALTHY, *, max_classes: int = MOST_CLASSES
) -> Folded:
    """One class for all ranks that do the same at the same time.

    Raises:
        ValueError: more than ``max_classes`` of them.
    """
    alike = lowered.alike
    if alike and degradation == HEALTHY and not can_bind(lowered.plan.cluster):
        return _structural(lowered)
    from .fabric import fabric_of
    from .partition import partition_of
    from .programs import programs_of_classes

    ranks = ranks_of(lowered)
    fabric = fabric_of(lowered, ranks, degradation)
    if alike and degradation == HEALTHY and fabric is None:
        return _structural(lowered)
    found = partition_of(ranks, degradation, fabric)
    count = int(found.rank.max()) + 1
    check_classes(lowered, count, max_classes)
    programs = programs_of_classes(lowered.programs, ranks, found.rank, degradation, fabric, found)
    return of_classes(ranks, found.rank, programs)


def unfolded(lowered: Lowered, degradation: Degradation = HEALTHY) -> Folded:
    """The step with every rank in a class of its own, as it is without folding.

    Raises:
        ValueError: there are more than ``MOST_RANKS`` ranks.
    """
    world = lowered.plan.scenario.world_size
    if world > MOST_RANKS:
        raise ValueError(
            f"{world:,} ranks are too many to replay one by one (at most {MOST_RANKS:,}); fold them, or take "
            "fewer GPUs"
        )
    from .fabric import fabric_of
    from .programs import programs_of_classes

    ranks = ranks_of(lowered)
    each, fabric = np.arange(world), fabric_of(lowered, ranks, degradation)
    return of_classes(ranks, each, programs_of_classes(lowered.programs, ranks, each, degradation, fabric))


def check_classes(lowered: Lowered, count: int, most: int) -> None:
    """ValueError for more classes than are replayed."""
    if count > most:
        raise ValueError(_too_many(lowered, count, most))


def _structural(lowered: Lowered) -> Folded:
    """One class per pipeline rank."""
    ranks = tuple(
        RankClass(name=f"pp {r}", pp=r, count=len(stage), first_rank=int(stage[0]))
        for r, stage in enumerate(lowered.plan.process_groups.stages)
    )
    return Folded(programs=lowered.programs, ranks=ranks, first_of_stage={r: r for r in range(len(ranks))})


def of_classes(ranks: Ranks, classes: NDArray[np.int64], programs: Programs) -> Folded:
    """The folded programs, where ``of_rank`` is the class of every rank."""
    _, first, counts = np.unique(classes, return_index=True, return_counts=True)
    stages = ranks.stage[first].tolist()
    heaviest = np.argsort(ranks.signature[first], kind="stable").tolist()
    named = tuple(
        RankClass(name=_name(pp, rank, count), pp=pp, count=count, first_rank=rank)
        for pp, rank, count in zip(stages, first.tolist(), counts.tolist(), strict=True)
    )
    return Folded(
        programs=programs,
        ranks=named,
        first_of_stage={stages[number]: number for number in reversed(heaviest)},
        of_rank=classes,
    )


def _name(pp: int, rank: int, count: int) -> str:
    return f"rank {rank} (pp {pp})" if count == 1 else f"{count:,} like rank {rank} (pp {pp})"


def _too_many(lowered: Lowered, count: int, most: int) -> str:
    fabric, world = lowered.plan.cluster.fabric, lowered.plan.scenario.world_size
    if fabric.ecmp == "hashed":
        advice = "a hash routes every flow by itself: set cluster.fabric.ecmp to spread, take fewer GPUs"
    else:
        advice = "take fewer GPUs, or fewer faults"
    return (
        f"{count:,} classes of {world:,} ranks behave differently, more than the {most:,} that are replayed: "
        f"{advice}, or raise the limit (--max-classes)"
    )
