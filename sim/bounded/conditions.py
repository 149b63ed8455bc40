"""When a step has bounds, and which communicators join what.

Knows ranks and their programs, and what is wrong in them; replays nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..fold.fabric import fabric_of
from ..fold.partition import partition_of
from ..fold.ranks import ranks_of
from ..program.program import RepeatedBlocks
from .layer_edges import TENSOR
from .replicas import replicas_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..fold.ranks import Degradation, Ranks
    from ..lowering.lower import Lowered
    from ..program.program import Programs
    from .replicas import Replicas

    Ids = NDArray[np.int64]

MOST_CLASSES = 256
"""Ranks up to which all are replayed: it takes three to ten seconds."""

MOST_STRUCK = 512
"""Ranks with something wrong up to which their classes are counted; more of them always make more classes."""


def why_exact(lowered: Lowered, degradation: Degradation) -> str:
    """Why a step has no bounds, so that only a replay of all ranks says how long it takes; empty where it
    has."""
    if degradation.later:
        return "what is wrong comes or goes within the step"
    if not all(map(math.isfinite, degradation.slow.values())):
        return "a rank stops"
    if degradation.link_share or degradation.fabric_share:
        return "links are weak"
    if lowered.plan.scenario.cluster.other_gpus:
        return "GPUs are of different kinds"
    if not lowered.alike:
        return "ranks of one stage have different programs"
    if lowered.programs.ends != "together":
        return "ranks end the step one by one"
    ranks = ranks_of(lowered)
    if fabric_of(lowered, ranks, degradation) is not None:
        return "replicas share links of the fabric"
    replicas = replicas_of(lowered.plan.process_groups, ranks, degradation)
    if replicas is None or replicas.count < 2:
        return "there is one replica"
    if any(name in _within_layers(lowered.programs) for name in crossing(ranks, replicas)):
        return "replicas meet within layers"
    return ""


def differing(lowered: Lowered, degradation: Degradation) -> int:
    """The most classes of ranks that differ, where they are so many that bounds may be cheaper and the step
    has bounds; else 0."""
    struck = len(degradation.slow)
    if struck < 2 or why_exact(lowered, degradation):
        return 0
    if struck > MOST_STRUCK:
        return lowered.plan.scenario.world_size
    found = int(partition_of(ranks_of(lowered), degradation).rank.max()) + 1
    return found if found > MOST_CLASSES else 0


def crossing(ranks: Ranks, replicas: Replicas) -> list[str]:
    """Communicators that join ranks of several replicas."""
    number = np.empty(ranks.world, dtype=np.int64)
    number[replicas.rank] = np.arange(replicas.count)[:, None, None]
    found = []
    for name, instance in ranks.instance.items():
        inside = instance >= 0
        if not _decides(instance[inside], number[inside]):
            found.append(name)
    return found


def awaiting(ranks: Ranks) -> list[str]:
    """Communicators that join all ranks of a tensor-parallel group wherever they join any of it."""
    group = ranks.instance.get(TENSOR)
    if group is None:
        return []
    return [name for name, instance in ranks.instance.items() if _decides(group, instance)]


def _decides(one: Ids, other: Ids) -> bool:
    """Whether ranks with equal numbers in ``one`` have equal numbers in ``other``; -1 in ``one`` means
    none."""
    with_it = np.empty(int(one.max(initial=-1)) + 2, dtype=np.int64)
    with_it[one] = other
    return bool((with_it[one] == other).all())


def _within_layers(programs: Programs) -> frozenset[str]:
    """Communicators that layers call."""
    return frozenset(
        name
        for program in {id(one): one for one in programs.classes}.values()
        for op in program.ops
        if isinstance(op.work, RepeatedBlocks)
        for name in op.work.communicators
    )
