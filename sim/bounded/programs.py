"""Programs of few replicas that stand for all: from above, and from below.

From above, replicas of a group are one, each stage of it as slow as the slowest rank there, and whoever meets
one of a group meets the group. From below, some replicas run and nobody waits for the others: each stage goes
at the pace of the slowest member of its tensor-parallel group, whom the group waits for in every layer, and
its messages arrive sooner by what the rank that sends or receives them may be ahead of it (edges.py).
Knows programs; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..fold.programs import programs_of_classes
from ..fold.ranks import Degradation, Ranks
from ..program.program import Exchange, MessageEnd, Program, Programs
from .edges import TENSOR, LayerEdges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..network.transfer import Transfer
    from .replicas import Replicas

    Ids = NDArray[np.int64]
    Factors = NDArray[np.float64]

TIES = 1e-6
"""Of two places in a replica with equally slow ranks, that where more are slow stands for all."""


@dataclass(frozen=True, kw_only=True)
class FromBelow:
    """``programs`` of some replicas; a step takes at most ``loose_s`` less than these do."""

    programs: Programs
    loose_s: float


def from_above(programs: Programs, ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Programs:
    """One class for each group of replicas and stage; ``groups`` has all replicas, each once."""
    few = _few(ranks, replicas, groups)
    return programs_of_classes(programs, few, np.arange(few.world), _slow(replicas.worst(groups)))


def class_of_ranks(ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Ids:
    """By rank, its class among those of ``from_above``; -1 for those of replicas in no group."""
    group = np.full(replicas.count, -1)
    for number, members in enumerate(groups):
        group[members] = number
    stages = np.arange(replicas.stages)
    found = np.empty(ranks.world, dtype=np.int64)
    found[replicas.rank] = np.where(group < 0, -1, group * replicas.stages)[:, None, None]
    found[replicas.rank] += np.where(group[:, None] < 0, 0, stages)[:, :, None]
    return found


def from_below(
    programs: Programs,
    ranks: Ranks,
    replicas: Replicas,
    chosen: Ids,
    edges: LayerEdges,
    turns: tuple[int, int],
) -> FromBelow:
    """One class for each of the ``chosen`` replicas and stage. ``turns`` is how often a way through the step
    goes from a collective of several replicas to a layer, and back (graph.py).
    """
    each = np.arange(len(chosen))
    slow = replicas.slow[chosen]
    place = (slow.max(axis=1) + TIES * slow.sum(axis=1)).argmax(axis=1)
    own = replicas.slow[chosen][each, :, place]
    members = _group_of(ranks, replicas, chosen, place)
    slowest = np.where(members, replicas.slow[chosen], 0.0).max(axis=2)
    least = np.where(members, replicas.slow[chosen], np.inf).min(axis=2)
    pace = np.minimum(slowest, own + np.array(edges.ahead))
    few = _few(ranks, replicas, [np.array([u]) for u in chosen])
    found = programs_of_classes(programs, few, np.arange(few.world), _slow(pace))
    ahead = pace - own
    classes = []
    for number, program in enumerate(found.classes):
        u, stage = divmod(number, replicas.stages)
        classes.append(_sooner(program, stage, ahead[u], edges))
    once_s = turns[0] * np.array(edges.head_s) + turns[1] * np.array(edges.tail_s)
    loose_s = float(((pace - least) * once_s).max())
    return FromBelow(programs=replace(found, classes=tuple(classes)), loose_s=loose_s)


def _group_of(ranks: Ranks, replicas: Replicas, chosen: Ids, place: Ids) -> NDArray[np.bool_]:
    """By replica, stage and rank, whether that is in the tensor-parallel group of the rank at ``place``."""
    if TENSOR not in ranks.instance:
        found = np.zeros(replicas.slow[chosen].shape, dtype=bool)
        found[np.arange(len(chosen)), :, place] = True
        return found
    instance = ranks.instance[TENSOR][replicas.rank[chosen]]
    same: NDArray[np.bool_] = instance == instance[np.arange(len(chosen)), :, place][:, :, None]
    return same


def _sooner(program: Program, stage: int, ahead: Factors, edges: LayerEdges) -> Program:
    """``program`` with messages that take less, where their ends are ``ahead`` of the slowest by stage."""
    if not ahead.any():
        return program
    ops = []
    for op in program.ops:
        if isinstance(op.work, Exchange):
            parts = tuple(_sooner_part(part, stage, ahead, edges) for part in op.work.parts)
            if parts != op.work.parts:
                op = replace(op, work=Exchange(parts))
        ops.append(op)
    return Program(ops=tuple(ops))


def _sooner_part(part: MessageEnd, stage: int, ahead: Factors, edges: LayerEdges) -> MessageEnd:
    sender, receiver = (stage, part.peer) if part.send else (part.peer, stage)
    tail_s, head_s = edges.of_message.get((sender, receiver, part.tag), (0.0, 0.0))
    less_s = float(ahead[sender] * tail_s + ahead[receiver] * head_s)
    return replace(part, transfer=_less(part.transfer, less_s)) if less_s > 0 else part


def _less(transfer: Transfer, less_s: float) -> Transfer:
    latency_s = max(0.0, transfer.latency_s - less_s)
    less_s -= transfer.latency_s - latency_s
    payload = max(0.0, transfer.bytes - less_s * transfer.ceiling_bytes_per_s)
    return replace(transfer, latency_s=latency_s, bytes=payload)


def _few(ranks: Ranks, replicas: Replicas, groups: list[Ids]) -> Ranks:
    """One rank for each group of replicas and stage; communicators of one rank join nobody."""
    of_rank, stages = class_of_ranks(ranks, replicas, groups), replicas.stages
    stage = np.tile(np.arange(stages), len(groups))
    number = np.repeat(np.arange(len(groups)), stages)
    instances = {name: _joined(one, of_rank, len(stage)) for name, one in ranks.instance.items()}
    talks = {q: sorted({int(s) for s in ranks.stage[peer >= 0]}) for q, peer in ranks.peer.items()}
    return Ranks(
        signature=stage,
        stage=stage,
        instance={name: i for name, i in instances.items() if np.bincount(i[i >= 0]).max(initial=0) > 1},
        peer={q: np.where(np.isin(stage, own), number * stages + q, -1) for q, own in talks.items()},
    )


def _joined(instance: Ids, of_rank: Ids, count: int) -> Ids:
    """By rank of the few, its instance of a communicator: those that share one of the few are one."""
    inside = (instance >= 0) & (of_rank >= 0)
    pairs = np.unique(np.stack([instance[inside], of_rank[inside]]), axis=1)
    parent = list(range(count))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    first: dict[int, int] = {}
    for number, one in pairs.T.tolist():
        parent[root(one)] = root(first.setdefault(number, one))
    found = np.full(count, -1, dtype=np.int64)
    for one in np.unique(pairs[1]).tolist():
        found[one] = root(one)
    return found


def _slow(factors: Factors) -> Degradation:
    flat = factors.ravel()
    return Degradation(slow={r: float(flat[r]) for r in np.flatnonzero(flat != 1.0).tolist()})
