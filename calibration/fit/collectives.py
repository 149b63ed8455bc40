"""Curves of single collectives: ``t = alpha + gamma sqrt(S) + S/B`` over the payload S, from measured sweeps.

Knows the form, what physics allows of it, and how sure its constants are. Does not know how they
change with the number of nodes: that is ``collective_constants``.

The form is a pipeline's with the best chunk size (Hockney's alpha and B, and what filling costs);
single measurements can be three times too slow, so the loss is robust and in log space.

Sources: Hockney 1994; Efron & Tibshirani 1993 (bootstrap of rows).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster

_TOLERANCE = 0.1  # relative error at which the loss turns from squares to absolute values


@dataclass(frozen=True, kw_only=True)
class SizeSweep:
    """Measured (bytes, seconds) of one collective on one system.

    ``tier`` is ``node`` or the kind of network; ``ceiling_bytes_per_s`` is the payload rate that the
    links allow at most.
    """

    kind: str
    architecture: str
    tier: str
    ranks: int
    domains: int
    ceiling_bytes_per_s: float
    points: tuple[tuple[float, float], ...]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        return self.kind, self.architecture, self.tier, self.ranks, self.domains


@dataclass(frozen=True, kw_only=True)
class FittedConstant:
    """A constant and the interval that holds nine in ten of its bootstrap replicas."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class FittedCurve:
    """``alpha_s + gamma_s sqrt(S) + S / bytes_per_s``, and |predicted / measured - 1| over its points."""

    sweep: SizeSweep
    alpha_s: FittedConstant
    gamma_s: FittedConstant
    bytes_per_s: FittedConstant
    median_residual: float
    p90_residual: float


def ceiling_bytes_per_s(kind: str, ranks: int, domains: int, cluster: Cluster) -> float:
    """The payload rate that no algorithm can exceed: line rates over the bytes that must cross them.

    All-reduce needs the payload once into each GPU, and 2(N-1)/N of it out of each of N domains;
    the others (n-1)/n into a GPU and (N-1)/N into a domain, all_to_all of each GPU's own payload;
    point-to-point and rooted ones need it once.
    """
    local = ranks // domains
    gathers = kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    nvlink = max(cluster.gpu.nvlink_bytes_per_s, cluster.gpu.pcie_bytes_per_s)
    inside = nvlink / ((ranks - 1) / ranks if gathers else 1.0)
    if domains == 1 or cluster.nodes == 1:
        return inside
    network = cluster.interconnect
    nic = network.link_bytes_per_s * network.links_per_host / cluster.gpus_per_node
    edge = nic if kind in ("all_to_all", "sendrecv", "gather", "scatter") else nic * local
    crossing = (domains - 1) / domains
    share = {"all_reduce": 2 * crossing, "sendrecv": 1.0, "broadcast": 1.0, "reduce": 1.0}.get(kind, crossing)
    return min(inside, edge / share)


def pooled(sweeps: Sequence[SizeSweep]) -> tuple[SizeSweep, ...]:
    """Merge the sweeps of each key into one with all their points, in order of first appearance."""
    groups: dict[tuple[str, str, str, int, int], list[SizeSweep]] = {}
    for sweep in sweeps:
        groups.setdefault(sweep.key, []).append(sweep)
    return tuple(
        replace(
            members[0],
            ceiling_bytes_per_s=max(one.ceiling_bytes_per_s for one in members),
            points=tuple(point for one in members for point in one.points),
        )
        for members in groups.values()
    )


def fit_curve(sweep: SizeSweep, *, replicas: int = 100) -> FittedCurve:
    """The curve of a sweep, with intervals from ``replicas`` bootstraps of its points.

    ValueError with fewer than four points: three constants need more.
    """
    import numpy as np

    if len(sweep.points) < 4:
        raise ValueError(f"{sweep.kind} of {sweep.ranks} ranks: {len(sweep.points)} sizes; a curve needs 4")
    sizes, times = (np.array(column, dtype=float) for column in zip(*sweep.points, strict=True))
    best = _solve(sizes, times, sweep.ceiling_bytes_per_s)
    draw = np.random.default_rng(0)
    drawn = [draw.integers(0, len(sizes), len(sizes)) for _ in range(replicas)]
    replica = np.array([_solve(sizes[i], times[i], sweep.ceiling_bytes_per_s, best) for i in drawn] or [best])
    low, high = np.quantile(replica, [0.05, 0.95], axis=0)
    residuals = np.abs(_seconds(best, sizes) / times - 1)
    alpha, gamma, rate = (
        FittedConstant(value=float(v), low=float(min(v, a)), high=float(max(v, b)))
        for v, a, b in zip(best, low, high, strict=True)
    )
    return FittedCurve(
        sweep=sweep,
        alpha_s=alpha,
        gamma_s=gamma,
        bytes_per_s=rate,
        median_residual=float(np.median(residuals)),
        p90_residual=float(np.quantile(residuals, 0.9)),
    )


def _seconds(constants: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    alpha, gamma, rate = constants
    seconds: NDArray[np.float64] = alpha + gamma * np.sqrt(sizes) + sizes / rate
    return seconds


def _solve(
    sizes: NDArray[np.float64],
    times: NDArray[np.float64],
    ceiling: float,
    start: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """alpha, gamma and B that fit best, as logarithms so that they stay positive."""
    import numpy as np
    from scipy.optimize import least_squares

    low = np.log([1e-8, 1e-16, ceiling * 1e-5])
    high = np.log([10.0, 1.0, ceiling])
    if start is None:
        fastest = min(ceiling, float(np.max(sizes / times)))
        middle = float(np.median(times)) / math.sqrt(float(np.median(sizes)))
        start = np.array([float(np.min(times)), middle / 10, fastest])
    result = least_squares(
        lambda x: np.log(_seconds(np.exp(x), sizes) / times) / _TOLERANCE,
        np.clip(np.log(start), low + 1e-9, high - 1e-9),
        bounds=(low, high),
        loss="soft_l1",
    )
    solved: NDArray[np.float64] = np.exp(result.x)
    return solved
