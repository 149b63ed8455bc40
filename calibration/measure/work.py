"""One collective of one size, ready to run in a process of a group, and whether its result is right.

Ranks hold small whole numbers, their place in the group plus one, so that every result is known and
float32 holds it exactly. Knows torch.distributed by what it is handed; times nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")


@dataclass(frozen=True)
class MeasuredWork:
    """``run`` the collective; after the first time, ask whether the result is ``right``."""

    run: Callable[[], None]
    right: Callable[[], bool]


def work(
    kind: str, elements: int, torch: Any, dist: Any, group: Any, members: Sequence[int], device: Any
) -> MeasuredWork:
    """``kind`` on ``elements`` of float32 in ``group``, whose global ranks are ``members``.

    Elements are of the buffer that nccl-tests counts: gathered, scattered or reduced as a whole.
    """
    n, place = len(members), members.index(dist.get_rank())

    def full(count: int, value: float) -> Any:
        return torch.full((count,), value, dtype=torch.float32, device=device)

    mine, part, total = float(place + 1), elements // n, n * (n + 1) / 2
    places = torch.arange(1, n + 1, dtype=torch.float32, device=device)
    if kind == "all_reduce":
        buffer = full(elements, mine)  # in place: checked after the first call alone, later ones sum sums
        return MeasuredWork(
            lambda: dist.all_reduce(buffer, group=group), lambda: bool((buffer == total).all())
        )
    if kind == "all_gather":
        given, found = full(part, mine), full(elements, 0)
        # torch 2.13 renames this one and the next; older ones know the old names only.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        right = lambda: bool((found.view(n, part) == places[:, None]).all())  # noqa: E731
        return MeasuredWork(lambda: gather(found, given, group=group), right)
    if kind == "reduce_scatter":
        given, found = full(elements, mine), full(part, 0)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return MeasuredWork(lambda: scatter(found, given, group=group), lambda: bool((found == total).all()))
    if kind == "all_to_all":
        given, found = full(elements, mine), full(elements, 0)
        right = lambda: bool((found.view(n, part) == places[:, None]).all())  # noqa: E731
        return MeasuredWork(lambda: dist.all_to_all_single(found, given, group=group), right)
    if kind == "broadcast":
        buffer = full(elements, mine)
        first = members[0]
        return MeasuredWork(
            lambda: dist.broadcast(buffer, src=first, group=group), lambda: bool((buffer == 1.0).all())
        )
    return _sendrecv(elements, full, dist, group, members, place, device)


def _sendrecv(
    elements: int,
    full: Callable[[int, float], Any],
    dist: Any,
    group: Any,
    members: Sequence[int],
    place: int,
    device: Any,
) -> MeasuredWork:
    """Each rank to the next of its group, as nccl-tests' sendrecv."""
    n = len(members)
    given, found = full(elements, float(place + 1)), full(elements, 0)
    ahead, behind = members[(place + 1) % n], members[(place - 1) % n]

    def exchange() -> None:
        sent = dist.isend(given, ahead, group=group)
        received = dist.irecv(found, behind, group=group)
        sent.wait()
        received.wait()

    def batched() -> None:
        sent = dist.P2POp(dist.isend, given, ahead, group)
        received = dist.P2POp(dist.irecv, found, behind, group)
        for one in dist.batch_isend_irecv([sent, received]):
            one.wait()

    # NCCL waits for ever where both wait for the other's receive, unless they start as one group.
    run = batched if device.type == "cuda" else exchange
    expected = float((place - 1) % n + 1)
    return MeasuredWork(run, lambda: bool((found == expected).all()))
