"""The traces of several ranks of one step together: which rank was late for which collective, and how long
the others waited.

Knows that the k-th collective of a group is the same one on each of its ranks, and that ranks whose clocks
are one (Kineto stamps with the host's time) can be compared. Does not know why a rank is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .step_record import LATE, DeviceOp, RankStep, RankTrace

_Call = tuple[object, str, int]


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """How one rank spent its step: ``busy_s`` in kernels that compute, ``waited_s`` in collectives for ranks
    that arrived later, and ``caused_s``, for how long the others waited because it arrived last."""

    rank: int
    step_s: float
    busy_s: float
    waited_s: float
    caused_s: float


def with_late_peers(
    steps: Mapping[int, RankStep],
) -> tuple[dict[int, RankStep], dict[int, tuple[float, float]]]:
    """The steps by rank, each collective cut where its last rank came: before that it is ``late peers``; and
    by rank the seconds that it waited, and that others waited for it.

    Only calls that all the given members of a group have are compared, and of these such as overlap in time.
    """
    calls: dict[_Call, dict[int, int]] = {}
    for rank, step in steps.items():
        count: dict[tuple[object, str], int] = {}
        for number, op in enumerate(step.ops):
            if op.kind == "communication" and (op.ranks or op.group):
                key = op.ranks or op.group, op.name
                count[key] = count.get(key, -1) + 1
                calls.setdefault((*key, count[key]), {})[rank] = number
    cuts: dict[int, dict[int, float]] = {rank: {} for rank in steps}
    waits = dict.fromkeys(steps, (0.0, 0.0))
    for (members, _, _), found in calls.items():
        there = [rank for rank in steps if not isinstance(members, tuple) or rank in members]
        if len(found) < 2 or len(found) < len(there):
            continue
        ops = {rank: steps[rank].ops[number] for rank, number in found.items()}
        last = max(ops, key=lambda rank: ops[rank].start_s)
        came = ops[last].start_s
        if came >= min(op.end_s for op in ops.values()):
            continue  # clocks that are not one
        for rank, op in ops.items():
            cuts[rank][found[rank]] = came
            waited, caused = waits[rank]
            waits[rank] = waited + came - op.start_s, caused
        waited, caused = waits[last]
        waits[last] = waited, caused + sum(came - op.start_s for op in ops.values()) / (len(ops) - 1)
    return {rank: _cut(step, cuts[rank]) for rank, step in steps.items()}, waits


def _cut(step: RankStep, cuts: Mapping[int, float]) -> RankStep:
    ops: list[DeviceOp] = []
    for number, op in enumerate(step.ops):
        came = cuts.get(number)
        if came is None or came <= op.start_s:
            ops.append(op)
        else:
            ops += [replace(op, end_s=came, axis=LATE), replace(op, start_s=came)]
    return replace(step, ops=tuple(ops))


def shares(steps: Mapping[int, RankStep], waits: Mapping[int, tuple[float, float]]) -> tuple[RankShare, ...]:
    """What each rank did and waited, in order of their ranks."""
    from ..readers.traced import merged

    found = []
    for rank, step in sorted(steps.items()):
        spans = merged((op.start_s, op.end_s) for op in step.ops if op.kind != "communication")
        found.append(
            RankShare(
                rank=rank,
                step_s=step.took_s,
                busy_s=sum(end - begin for begin, end in spans),
                waited_s=waits[rank][0],
                caused_s=waits[rank][1],
            )
        )
    return tuple(found)


def slowest(found: Sequence[RankShare]) -> RankShare | None:
    """The rank that others waited for longest, if they waited at all."""
    best = max(found, key=lambda one: one.caused_s, default=None)
    return best if best is not None and best.caused_s > 0 else None


def same_step(traces: Mapping[int, RankTrace]) -> dict[int, RankStep]:
    """The same step of every rank: among the steps that all ranks have, by name, the one of median duration.

    Where the ranks have no step in common, the median of each.
    """
    by_name = [{step.name: step for step in one.steps} for one in traces.values()]
    common = [name for name in by_name[0] if all(name in steps for steps in by_name)]
    if not common:
        return {rank: one.median_step for rank, one in traces.items()}
    common.sort(key=lambda name: sum(steps[name].took_s for steps in by_name))
    chosen = common[(len(common) - 1) // 2]
    return {rank: steps[chosen] for rank, steps in zip(traces, by_name, strict=True)}


def first_of_each(traces: Sequence[RankTrace]) -> dict[int, RankTrace]:
    """The traces by rank. ValueError naming both files where two are of one rank."""
    found: dict[int, RankTrace] = {}
    for one in traces:
        if one.rank in found:
            raise ValueError(
                f"{one.file} and {found[one.rank].file} are both of rank {one.rank}; give one of them"
            )
        found[one.rank] = one
    return found
