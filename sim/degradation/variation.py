"""What the spread of a cluster's parts does to the ranks of a step: how slow each is, and its links.

A rank's kernels take as long as its GPU's speed says; memory makes those that are bound by it longer, which
counts by their share of the stage's kernel seconds. Knows lowered steps; replays nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..fold.ranks import Degradation
from ..program.program import Compute, Program
from ..scenario.variation import speeds
from .outages import PORTS, together

if TYPE_CHECKING:
    from ..lowering.lower import Lowered
    from ..scenario.faults.machine import Machine
    from ..scenario.variation import Speeds, VariationSpec

    Ids = np.typing.NDArray[np.int64]


def varied(
    given: Degradation, lowered: Lowered, machine: Machine, draw: int, *, by_speed: bool = False
) -> Degradation:
    """``given`` on the cluster of a lowered scenario as ``draw`` (from 0) has it; ``by_speed``: with ranks on
    the GPUs that ``gpus_by_speed`` gives them.
    """
    spec = lowered.plan.scenario.cluster.variation
    if spec is None:
        return given
    gpu = gpus_by_speed(lowered, machine, draw) if by_speed else lowered.plan.placed.gpu
    drawn = _drawn(spec, lowered, machine, draw, gpu)
    later = tuple((at_s, together([state, drawn])) for at_s, state in given.later)
    return replace(together([given, drawn]), later=later)


def gpus_by_speed(lowered: Lowered, machine: Machine, draw: int) -> Ids:
    """The GPU of every rank where those of a host are in order of their speed, the slowest first, and so are
    hosts, by their slowest GPU.

    A tensor-parallel group goes at the pace of its slowest member, so slow ones share it. Of slow stages the
    first costs a step least: the others' forwards are over before it is waited for.
    """
    spec, gpu = lowered.plan.scenario.cluster.variation, lowered.plan.placed.gpu
    assert spec is not None
    speed = rank_speeds(spec, machine, draw, gpu)[0]
    by_host = speed[np.argsort(gpu)].reshape(-1, min(machine.gpus_per_node, len(gpu)))
    inside = np.argsort(by_host, axis=1, kind="stable")
    hosts = np.argsort(by_host.min(axis=1), kind="stable")
    found: Ids = (inside + np.arange(len(by_host))[:, None] * by_host.shape[1])[hosts].ravel()
    return found


def rank_speeds(spec: VariationSpec, machine: Machine, draw: int, gpu: Ids) -> tuple[Speeds, ...]:
    """The speed of every rank's GPU, of its memory and of its way into the network; ``gpu`` is where each
    rank runs."""
    size = {
        "gpu": 1,
        "host": machine.gpus_per_node,
        "rack": machine.gpus_per_node * machine.nodes_per_rack,
    }[spec.per]
    unit = gpu // size
    count = int(unit.max()) + 1
    laws = (spec.gpu_speed, spec.hbm, spec.link)
    return tuple(speeds(law, count, spec.seed + draw, stream)[unit] for stream, law in enumerate(laws))


def _drawn(spec: VariationSpec, lowered: Lowered, machine: Machine, draw: int, where: Ids) -> Degradation:
    gpu, hbm, link = rank_speeds(spec, machine, draw, where)
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
    for op, count in program.counted_ops():
        if isinstance(kernel := op.work, Compute):
            whole += count * kernel.seconds
            bound += count * kernel.seconds * (kernel.kind == "memory-bound")
    return bound / whole if whole else 0.0
