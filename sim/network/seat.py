"""How a group of ranks sits on the cluster, and nccl-tests' bus-bandwidth factors."""

from __future__ import annotations

from dataclasses import dataclass

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 1, "gather": 1, "scatter": 1}
"""How often (n-1)/n of the payload passes through a rank's link; the others pass it once, whole."""

WHOLE = ("broadcast", "reduce", "sendrecv")
KINDS = (*ROUNDS, *WHOLE)


@dataclass(frozen=True, kw_only=True)
class Seat:
    """How a group sits on the cluster: ``ranks`` over ``domains`` NVLink domains, equally.

    ``units`` counts the groups of hosts with leaf switches of their own that it spans.
    """

    ranks: int
    domains: int
    units: int = 1

    @property
    def per_domain(self) -> int:
        return self.ranks // self.domains


def payload_factor(kind: str, ranks: int) -> float:
    """Bytes through each rank's link per payload byte (nccl-tests' bus-bandwidth factor).

    >>> payload_factor("all_reduce", 8), payload_factor("all_gather", 8), payload_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    return 1.0 if kind in WHOLE else ROUNDS[kind] * (ranks - 1) / ranks
