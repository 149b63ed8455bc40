"""What the spread of a cluster's parts does to the ranks of a step: how slow each is, and its links.

A rank's kernels take as long as its GPU's speed says; memory makes those that are bound by it longer, which
counts by their share of the stage's kernel seconds. Knows lowered steps; replays nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..fold.ranks import Degradation
from ..program.program import Compute, Program, RepeatedBlocks
from ..scenario.variation import speeds
from .outages import PORTS, together

if TYPE_CHECKING:
    from ..lowering.lower import Lowered
    from ..scenario.faults.machine import Machine
    from ..scenario.variation import Speeds, VariationSpec

    Ids = np.typing.NDArray[np.int64]


def varied(given: Degradation, lowered: Lowered, machine: Machine, draw: int) -> Degradation:
    """``given`` on the cluster of a lowered scenario as ``draw`` (from 0) has it."""
    spec = lowered.plan.scenario.cluster.variation
    if spec is None:
        return given
    drawn = _drawn(spec, lowered, machine, draw)
    later = tuple((at_s, together([state, drawn])) for at_s, state in given.later)
    return replace(together([given, drawn]), later=later)


def rank_speeds(spec: VariationSpec, lowered: Lowered, machine: Machine, draw: int) -> tuple[Speeds, ...]:
    """By rank, the speed of its GPU, of that's memory, and of its way into the network."""
    gpu = lowered.plan.placed.gpu
    size = {
        "gpu": 1,
        "host": machine.gpus_per_node,
        "rack": machine.gpus_per_node * machine.nodes_per_rack,
    }[spec.per]
    unit = gpu // size
    count = int(unit.max()) + 1
    laws = (spec.gpu_speed, spec.hbm, spec.link)
    return tuple(speeds(law, count, spec.seed + draw, stream)[unit] for stream, law in enumerate(laws))


def _drawn(spec: VariationSpec, lowered: Lowered, machine: Machine, draw: int) -> Degradation:
    gpu, hbm, link = rank_speeds(spec, lowered, machine, draw)
    bound = np.array([_memory_bound(program) for program in lowered.programs.classes])[lowered.program_of]
    slow = (1 - bound + bound / hbm) / gpu
    return Degradation(
        slow={rank: float(slow[rank]) for rank in np.flatnonzero(slow != 1.0).tolist()},
        link_share={
            (rank, port): float(link[rank]) for rank in np.flatnonzero(link != 1.0).tolist() for port in PORTS
        },
    )


def _memory_bound(program: Program) -> float:
    """The share of its kernels' seconds that is bound by memory."""
    bound = whole = 0.0
    for op in program.ops:
        work = op.work
        blocks = work.blocks if isinstance(work, RepeatedBlocks) else ()
        kernels = [(inner.work, count) for block, count in blocks for inner in block.ops] or [(work, 1)]
        for kernel, count in kernels:
            if isinstance(kernel, Compute):
                whole += count * kernel.seconds
                bound += count * kernel.seconds * (kernel.kind == "memory-bound")
    return bound / whole if whole else 0.0
