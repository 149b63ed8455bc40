"""NCCL's choice against measured logs, which say which algorithm must have run and how long it took.

Sections are those of the project's table of hardware facts, whose bands these are.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nccl_communicators import A100, B200, GIB, H100, A, P, choose, on

from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.sim.network.nccl.cost_model import bus_gb_per_s
from stepsim.sim.network.nccl.paths import Communicator


@dataclass(frozen=True)
class Row:
    """One line of a log, and the communicator that it was measured on."""

    log: str
    kind: str
    size: int
    time_s: float
    bus_gb_per_s: float
    comm: Communicator
    nccl_algo: str | None


LOGS = {
    "oci_a100_1n8g_allreduce": on(A100, 1),
    "azure_ndv4_a100_2n16g_allreduce_hdr": on(A100, 2),
    "dgxc_h100_1n8g_allreduce": on(H100, 1),
    "h100_ib_2n16g_allreduce_issue309": on(H100, 2),
    "h100_ib_2n16g_allreduce_ring_issue309": on(H100, 2),
    "h100_ib_4n32g_allreduce_issue309": on(H100, 4),
    "h100_ib_8n64g_allreduce_issue309": on(H100, 8),
    "h100_ib_8n64g_allreduce_mincta24_issue309": on(H100, 8),
    "nebius_2n16g_allreduce_dstack": on(H100, 2),
    "nebius_h200_2n16g_allreduce": on("H200-SXM-141GB", 2),
    "lambda_b200_2n16g_allreduce_dstack": on(B200, 2),
    "vultr_b200_1n8g_allgather": on(B200, 1),
    "vultr_b200_1n8g_allreduce": on(B200, 1),
    "vultr_b200_1n8g_reducescatter": on(B200, 1),
    "vultr_b200_2n16g_allgather": on(B200, 2),
    "vultr_b200_2n16g_allreduce": on(B200, 2),
}


def rows(shared: Path) -> Iterator[Row]:
    with (shared / "data" / "nccl_logs.csv").open() as file:
        for row in csv.DictReader(file):
            if row["log"] in LOGS:
                yield Row(
                    log=row["log"],
                    kind=row["collective"],
                    size=int(row["size_B"]),
                    time_s=float(row["time_us"]) * 1e-6,
                    bus_gb_per_s=float(row["busbw_GBps"]),
                    comm=LOGS[row["log"]],
                    nccl_algo="Ring" if "_ring_" in row["log"] else None,
                )


def test_nothing_but_switches_that_reduce_explains_more_than_a_ring_can(shared: Path) -> None:
    """Where a log's bus bandwidth is above the ring's, NCCL must have taken NVLS or NVLSTree there."""
    seen = set()
    for row in rows(shared):
        ring = bus_gb_per_s(A.RING, P.SIMPLE, CollectiveKind(row.kind), row.comm)
        if row.bus_gb_per_s > 1.03 * ring:
            assert choose(row.kind, row.size, row.comm).algorithm in (A.NVLS, A.NVLS_TREE), row
            seen.add(row.log)
    assert len(seen) == 7


def test_rings_are_chosen_where_only_rings_fit_the_plateau(shared: Path) -> None:
    """A100 has no switch that reduces; all_gather and reduce_scatter reach the ring's plateau and no more."""
    for row in rows(shared):
        ring_only = row.kind != "all_reduce" or row.comm.architecture == "ampere"
        if ring_only and row.size >= GIB:
            chosen = choose(row.kind, row.size, row.comm)
            assert (chosen.algorithm, chosen.protocol) == (A.RING, P.SIMPLE)


BANDS = [  # from, below, lowest and highest geometric mean of predicted over measured: section 3.5
    (GIB, 1 << 60, 0.79, 1.055),
    (1 << 26, GIB, 0.60, 1.10),
    (1 << 20, 1 << 26, 0.49, 0.84),
    (1 << 15, 1 << 20, 0.45, 0.97),
    (1, 1 << 15, 0.42, 0.94),
]


@pytest.mark.parametrize(("low", "high", "least", "most"), BANDS)
def test_nccls_model_is_as_good_as_it_is_known_to_be(
    shared: Path, low: int, high: int, least: float, most: float
) -> None:
    """Section 3.5: about right for the largest sizes, optimistic by up to 2 below 64 MB."""
    ratios: dict[str, list[float]] = {}
    for row in rows(shared):
        if low <= row.size < high:
            predicted_s = choose(row.kind, row.size, row.comm, nccl_algo=row.nccl_algo).predicted_s
            ratios.setdefault(row.log, []).append(math.log(predicted_s / row.time_s))
    assert len(ratios) >= 12
    for log, logs in ratios.items():
        assert least <= math.exp(sum(logs) / len(logs)) <= most, log


def test_rings_by_force_cost_what_the_log_of_rings_says(shared: Path) -> None:
    """NCCL_ALGO=Ring on 2 x 8 H100 against the same hosts left to choose.

    Logs of github.com/NVIDIA/nccl-tests/issues/309.
    """
    by_log: dict[str, list[Row]] = {}
    for row in rows(shared):
        if row.log.startswith("h100_ib_2n16g") and row.size >= GIB:
            by_log.setdefault(row.log, []).append(row)
    free, forced = by_log["h100_ib_2n16g_allreduce_issue309"], by_log["h100_ib_2n16g_allreduce_ring_issue309"]
    comm = on(H100, 2)
    for one, other in zip(free, forced, strict=False):
        assert one.size == other.size
        gain = other.time_s / one.time_s
        predicted = [
            choose("all_reduce", one.size, comm, nccl_algo=algo).predicted_s for algo in ("Ring", None)
        ]
        assert predicted[0] / predicted[1] == pytest.approx(gain, rel=0.06)
