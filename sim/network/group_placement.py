"""How a group of ranks sits on the cluster, and nccl-tests' bus-bandwidth factors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "gather": 1, "scatter": 1}
"""How often (n-1)/n of the payload passes through a rank's link; the others pass it once, whole."""

WHOLE = ("broadcast", "reduce", "sendrecv")


@dataclass(frozen=True, kw_only=True)
class GroupPlacement:
    """How a group sits on the cluster: ``ranks`` over ``domains`` NVLink domains.

    ``units`` counts the groups of hosts with leaf switches of their own that it spans. ``parts`` are the
    ranks in each domain, the most first, where they are not as many everywhere; () where they are.
    ``hosts`` counts the hosts whose cards NVLink does not join, where it holds as many ranks in each; 0:
    every domain is a host, or a rack of them.
    ``kinds`` are the kinds of GPUs that it has, in order (Communication.others); 0: the cluster's.

    Raises:
        ValueError: parts that are equal, out of order, or not those of ``ranks`` over ``domains``.
    """

    ranks: int
    domains: int
    units: int = 1
    parts: tuple[int, ...] = ()
    hosts: int = 0
    kinds: tuple[int, ...] = field(default=(0,), repr=False)

    def __post_init__(self) -> None:
        parts = self.parts
        if parts and (
            (sum(parts), len(parts)) != (self.ranks, self.domains)
            or parts[0] == parts[-1]
            or min(parts) < 1
            or sorted(parts, reverse=True) != list(parts)
        ):
            raise ValueError(
                f"parts {parts} of {self.ranks} ranks over {self.domains} domains: give each domain's, "
                "the most first, or none where they are equal"
            )

    @property
    def nodes(self) -> int:
        """What NCCL has as its nodes: hosts whose cards meet over PCIe, else domains."""
        return self.hosts or self.domains

    @property
    def most(self) -> int:
        """Ranks in the domain that holds the most of them."""
        return self.parts[0] if self.parts else self.ranks // self.domains

    @property
    def fewest(self) -> int:
        """Ranks in the domain that holds the fewest: those that send the most over each NIC."""
        return self.parts[-1] if self.parts else self.ranks // self.domains


def placement_of_parts(parts: Iterable[int], in_hosts: Iterable[int] = ()) -> GroupPlacement:
    """The placement of a group with so many ranks in each of its domains, in whatever order; ``in_hosts``: in
    each host, where these hold several domains.

    >>> placement_of_parts([4, 4]), placement_of_parts([2, 6]).parts
    (GroupPlacement(ranks=8, domains=2, units=1, parts=(), hosts=0), (6, 2))
    """
    ordered = tuple(sorted(parts, reverse=True))
    equal = ordered[0] == ordered[-1]
    hosts = list(in_hosts)
    even = len(set(hosts)) == 1
    return GroupPlacement(
        ranks=sum(ordered),
        domains=len(ordered),
        parts=() if equal else ordered,
        hosts=len(hosts) if even else 0,
    )


def placement_in_a_row(ranks: int, domain: int, host: int = 0) -> GroupPlacement:
    """The placement of ranks that fill domains of so many GPUs one after another; ``host``: and hosts of so
    many, where these hold several domains.

    >>> placement_in_a_row(256, 72).parts
    (72, 72, 72, 40)
    """
    in_hosts = _filled(ranks, host) if host > domain else []
    return placement_of_parts(_filled(ranks, domain), in_hosts)


def _filled(ranks: int, size: int) -> list[int]:
    full, rest = divmod(ranks, size)
    return [size] * full + [rest] * (rest > 0)


def payload_factor(kind: str, ranks: int) -> float:
    """Bytes through each rank's link per payload byte (nccl-tests' bus-bandwidth factor).

    >>> payload_factor("all_reduce", 8), payload_factor("all_gather", 8), payload_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    return 1.0 if kind in WHOLE else ROUNDS[kind] * (ranks - 1) / ranks
