"""Logs of nccl-tests as the cases that the simulator can predict: who reads and who predicts do not meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..calibration.nccl_log import Measurements
    from ..sim.validation.collectives import CollectiveCase


def case_of(log: Measurements, gpu: str | None = None, interconnect: str | None = None) -> CollectiveCase:
    """The case of a log; ``gpu`` and ``interconnect`` replace what it says of them."""
    from dataclasses import replace

    from ..calibration.nccl_system import forced_choice, system_of
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import default_fabric
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import get_interconnect
    from ..sim.network.seat import Seat
    from ..sim.validation.collectives import CollectiveCase

    system = system_of(log, gpu, interconnect)
    network = get_interconnect(system.interconnect)
    cluster = Cluster(
        gpu=get_gpu(system.gpu),
        gpus=log.ranks,
        gpus_per_node=log.gpus_per_node,
        interconnect=network,
        fabric=replace(default_fabric(network), nodes_per_rack=system.nodes_per_rack),
    )
    algorithm, protocol = forced_choice(log)
    return CollectiveCase(
        log=log.log,
        kind=log.kind,
        seat=Seat(ranks=log.ranks, domains=-(-log.ranks // cluster.nvlink_domain)),
        cluster=cluster,
        points=tuple((float(row.bytes), row.seconds) for row in log.rows),
        algorithm=algorithm,
        protocol=protocol,
    )


def read_cases(
    files: Sequence[Path], gpu: str | None = None, interconnect: str | None = None
) -> tuple[tuple[CollectiveCase, ...], tuple[str, ...]]:
    """Cases of ``files``, and the names of those that ran with settings they do not state."""
    from ..calibration.nccl_log import read_log
    from ..calibration.nccl_system import tuned

    logs = [read_log(path) for path in files]
    cases = tuple(case_of(log, gpu, interconnect) for log in logs)
    return cases, tuple(log.log for log in logs if tuned(log))
