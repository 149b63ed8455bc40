"""Which ranks send to which over the network while a collective runs: members' messages, in NCCL's order.

NVLink domains follow one another in the order of their first ranks. A ring goes from domain to domain, on
as many channels as a domain has members: the i-th sends to the i-th of the next, down its rail. Two binary
trees join domains in the same way, both up and down. Messages between all pairs go to every member of
other domains, or, where NVLink takes them on from there (rails), to the i-th of each. Where each rank hands
something to its neighbour (ring attention), the last of a domain alone sends to the first of the next.
Knows ranks and domains as arrays; knows neither links nor rates.

Sources: NCCL v2.28.9 src/graph/connect.cc (connectRings, connectTrees: channel by channel through nodes),
src/graph/trees.cc (ncclGetDtree), as schedules/transfers/trees.py has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from ...schedules.transfers.trees import two_trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

Pattern = Literal["ring", "tree", "pairs", "rails", "neighbours"]
PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """Rank ``sender`` of group ``instance`` sends ``receiver`` the ``share`` of what its NIC carries.

    Arrays of equal length. Shares count from the busiest member, one of the domain that holds the fewest:
    rings and trees carry as much over the edge of every domain, and of pairs others send less.
    """

    instance: Ids
    sender: Ids
    receiver: Ids
    share: NDArray[np.float64]


def sent(pattern: str, instance: Ids, domain: Ids) -> Sent:
    """Messages between domains; ``instance`` numbers each rank's group (-1: none), ``domain`` its domain."""
    hosts = _Domains.of(instance, domain)
    found = [
        _between(hosts, np.flatnonzero(hosts.count == count), pattern, count)
        for count in np.unique(hosts.count).tolist()
        if count > 1
    ]
    if not found:
        empty = np.zeros(0, dtype=np.int64)
        return Sent(instance=empty, sender=empty, receiver=empty, share=np.zeros(0))
    instances, senders, receivers, shares = (np.concatenate(column) for column in zip(*found, strict=True))
    return Sent(instance=instances, sender=senders, receiver=receivers, share=shares.astype(np.float64))


@dataclass(frozen=True, kw_only=True)
class _Domains:
    """Groups by their parts in one domain: group g has ``ranks[g]`` ranks in ``count[g]`` parts from
    ``first[g]`` on, of ``fewest[g]`` at least; part p the ``size[p]`` ranks of ``member`` from ``start[p]``
    on.
    """

    ranks: Ids
    fewest: Ids
    count: Ids
    first: Ids
    size: Ids
    start: Ids
    member: Ids

    @classmethod
    def of(cls, instance: Ids, domain: Ids) -> _Domains:
        member = np.flatnonzero(instance >= 0)
        group, host = instance[member], domain[member]
        _, name = np.unique(group * (int(domain.max(initial=0)) + 1) + host, return_inverse=True)
        lowest = np.full(int(name.max(initial=-1)) + 1, len(instance))
        np.minimum.at(lowest, name, member)
        order = np.lexsort((member, lowest[name], group))
        member, group, lowest = member[order], group[order], lowest[name[order]]
        new = np.ones(len(member), dtype=bool)
        new[1:] = (group[1:] != group[:-1]) | (lowest[1:] != lowest[:-1])
        start = np.flatnonzero(new)
        count = np.bincount(group[start], minlength=int(instance.max(initial=-1)) + 1)
        size = np.diff(np.append(start, len(member)))
        fewest = np.full(len(count), len(instance))
        np.minimum.at(fewest, group[start], size)
        return cls(
            ranks=np.bincount(group, minlength=len(count)),
            fewest=fewest,
            count=count,
            first=np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64),
            size=size,
            start=start,
            member=member,
        )


def _between(
    hosts: _Domains, groups: Ids, pattern: str, count: int
) -> tuple[Ids, Ids, Ids, NDArray[np.float64]]:
    """Messages of all ``groups``, which have ``count`` parts each."""
    a, b, share = _edges(pattern, count)
    group = np.repeat(groups, len(a))
    source, target = (
        hosts.first[group] + np.tile(a, len(groups)),
        hosts.first[group] + np.tile(b, len(groups)),
    )
    here, there, ranks, fewest = (
        hosts.size[source],
        hosts.size[target],
        hosts.ranks[group],
        hosts.fewest[group],
    )
    if pattern == "neighbours":
        last, first = hosts.start[source] + here - 1, hosts.start[target]
        return group, hosts.member[last], hosts.member[first], np.tile(share, len(groups))
    lanes = here * there if pattern == "pairs" else np.maximum(here, there)
    row = np.repeat(np.arange(len(group)), lanes)
    lane = np.arange(len(row)) - np.repeat(np.cumsum(lanes) - lanes, lanes)
    from_lane = lane // there[row] if pattern == "pairs" else lane % here[row]
    shares = (
        1.0 / (ranks - fewest)
        if pattern == "pairs"
        else np.tile(share, len(groups)) * (fewest * count) / count / lanes
    )
    sender = hosts.member[hosts.start[source][row] + from_lane]
    receiver = hosts.member[hosts.start[target][row] + lane % there[row]]
    return group[row], sender, receiver, shares[row]


def _edges(pattern: str, count: int) -> tuple[Ids, Ids, NDArray[np.float64]]:
    """From which part to which, with the share of what a part sends in all."""
    if pattern in ("ring", "neighbours"):
        here = np.arange(count)
        return here, (here + 1) % count, np.ones(count)
    if pattern == "tree":
        joined = [
            (c, p) for tree in two_trees(range(count)) for c, p in tree.parents.items() if p is not None
        ]
        child, parent = np.array(joined, dtype=np.int64).T
        # Half of the payload on each tree; two domains send each other one payload, of more each sends two.
        shares = np.full(2 * len(joined), 0.5 if count == 2 else 0.25)
        return np.concatenate([child, parent]), np.concatenate([parent, child]), shares
    if pattern in ("pairs", "rails"):
        a, b = np.divmod(np.arange(count * count), count)
        return a[a != b], b[a != b], np.full(count * (count - 1), 1 / (count - 1))
    raise ValueError(f"no pattern {pattern!r}; known: {', '.join(PATTERNS)}")
