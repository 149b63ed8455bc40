"""Several jobs on one fabric as one set of ranks: who crosses which link, and which ranks are alike.

Jobs meet on links between switches alone. Jobs that run the same programs from the same moment fold into one
another where their links allow it. Knows lowered jobs; knows no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .can_bind import can_bind
from .fabric import Routed, kept, uses
from .fold import Folded, check_classes, of_classes
from .partition import partition, start_colours
from .programs import programs_of_classes
from .ranks import Ranks, ranks_of
from .weak_links import topology_for

if TYPE_CHECKING:
    from ..lowering.lower import Lowered
    from ..program.program import Programs
    from .fabric import CrossedFabric, Use
    from .partition import Ids
    from .ranks import Degradation


@dataclass(frozen=True, kw_only=True)
class FoldedJobs:
    """The ``programs`` of all jobs, of which the first job's come first; ``first`` is the first job by
    itself. ``job_of`` is the job of each class (where equal jobs share a class: the first of them)."""

    programs: Programs
    first: Folded
    job_of: tuple[int, ...]


def folded_jobs(
    jobs: Sequence[Lowered],
    kinds: Sequence[int],
    degradation: Degradation,
    *,
    fold: bool,
    max_classes: int,
) -> FoldedJobs | None:
    """The classes of all jobs together, with ``degradation`` of the first; None where no link joins them.

    Jobs of one of the ``kinds``, numbered from 0 as they come, run the same programs from the same moment.

    Raises:
        ValueError: more than ``max_classes``.
    """
    own = [ranks_of(job) for job in jobs]
    fabric = _fabric(jobs, kinds, own, degradation)
    if fabric is None:
        return None
    ranks = _joined(jobs, kinds, own)
    if fold:
        start = start_colours(ranks, degradation)
        healthy = ranks.signature if all(job.alike for job in jobs) else None
        found = partition(ranks, start, fabric, healthy=healthy)
    else:
        found = partition(ranks, np.arange(ranks.world), fabric)
    classes = _as_they_come(found.rank)
    first_rank = np.unique(classes, return_index=True)[1]
    check_classes(jobs[0], len(first_rank), max_classes)
    base = replace(
        jobs[0].programs,
        classes=tuple(program for job in _distinct(jobs, kinds) for program in job.programs.classes),
        links=tuple(links for job in _distinct(jobs, kinds) for links in job.programs.links),
    )
    programs = programs_of_classes(base, ranks, classes, degradation, fabric, found)
    job = np.repeat(np.arange(len(jobs)), [one.world for one in own])
    of_first = classes[: own[0].world]
    part = _part(programs, int(of_first.max()) + 1)
    return FoldedJobs(
        programs=programs,
        first=of_classes(own[0], of_first, part),
        job_of=tuple(job[first_rank].tolist()),
    )


def _distinct(jobs: Sequence[Lowered], kinds: Sequence[int]) -> list[Lowered]:
    """The first job of each kind."""
    return [jobs[kinds.index(kind)] for kind in range(max(kinds) + 1)]


def _first_programs(jobs: Sequence[Lowered], kinds: Sequence[int]) -> list[int]:
    """For each job, the number of its first program among the programs of all kinds."""
    counts = [len(job.programs.classes) for job in _distinct(jobs, kinds)]
    first = [0, *np.cumsum(counts).tolist()]
    return [first[kind] for kind in kinds]


def _fabric(
    jobs: Sequence[Lowered], kinds: Sequence[int], own: Sequence[Ranks], degradation: Degradation
) -> CrossedFabric | None:
    """The links that can bind under all jobs at once; None if there are none."""
    cluster = jobs[0].plan.cluster
    if not can_bind(cluster) and not any(state.fabric_share for state in degradation.states):
        return None
    topology = topology_for(cluster)
    found: dict[Use, list[Routed]] = {}
    rank, count = 0, dict[str, int]()
    for job, program, ranks in zip(jobs, _first_programs(jobs, kinds), own, strict=True):
        for (a, b), use in uses(job, ranks, topology, degradation):
            if isinstance(a, str) and isinstance(b, str):
                found.setdefault((a, b), []).append(_numbered_from(use, count.get(a, 0), rank))
            elif isinstance(a, int) and isinstance(b, int):
                found.setdefault((program + a, b), []).append(_numbered_from(use, rank, rank))
        for name, instance in ranks.instance.items():
            count[name] = count.get(name, 0) + int(instance.max(initial=-1)) + 1
        rank += ranks.world
    if not found:
        return None
    return kept({use: _all(parts) for use, parts in found.items()}, topology, cluster, degradation)


def _numbered_from(use: Routed, owner: int, rank: int) -> Routed:
    return replace(use, owner=use.owner + owner, sender=use.sender + rank, receiver=use.receiver + rank)


def _all(parts: Sequence[Routed]) -> Routed:
    """The uses of one name by several jobs, joined into one."""
    return Routed(
        owner=np.concatenate([one.owner for one in parts]),
        sender=np.concatenate([one.sender for one in parts]),
        receiver=np.concatenate([one.receiver for one in parts]),
        link=np.concatenate([one.link for one in parts]),
        weight=np.concatenate([one.weight for one in parts]),
    )


def _joined(jobs: Sequence[Lowered], kinds: Sequence[int], own: Sequence[Ranks]) -> Ranks:
    """The ranks of all jobs in a row. Instances of a communicator are numbered on from job to job."""
    programs = _first_programs(jobs, kinds)
    names = sorted({name for ranks in own for name in ranks.instance})
    peers = sorted({q for ranks in own for q in ranks.peer})
    instance: dict[str, list[Ids]] = {name: [] for name in names}
    peer: dict[int, list[Ids]] = {q: [] for q in peers}
    count, rank = dict.fromkeys(names, 0), 0
    for ranks in own:
        none = np.full(ranks.world, -1)
        for name in names:
            mine = ranks.instance.get(name, none)
            instance[name].append(np.where(mine >= 0, mine + count[name], -1))
            count[name] += int(mine.max(initial=-1)) + 1
        for q in peers:
            its = ranks.peer.get(q, none)
            peer[q].append(np.where(its >= 0, its + rank, -1))
        rank += ranks.world
    return Ranks(
        signature=np.concatenate([r.signature + first for r, first in zip(own, programs, strict=True)]),
        stage=np.concatenate([ranks.stage for ranks in own]),
        instance={name: np.concatenate(parts) for name, parts in instance.items()},
        peer={q: np.concatenate(parts) for q, parts in peer.items()},
    )


def _as_they_come(classes: Ids) -> Ids:
    """Classes numbered by their first ranks, so that those of the first job come first."""
    _, first, number = np.unique(classes, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[number.ravel()]


def _part(programs: Programs, count: int) -> Programs:
    """The first ``count`` classes by themselves: they meet none of the others."""
    return replace(
        programs,
        classes=programs.classes[:count],
        links=programs.links[:count],
        bindings=programs.bindings[:count],
        communicators={
            name: joined for name, joined in programs.communicators.items() if max(joined) < count
        },
        changes=tuple(
            replace(change, slow=change.slow[:count], links=change.links[:count])
            for change in programs.changes
        ),
    )
