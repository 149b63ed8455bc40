"""Communicators on the machines that tests of NCCL know, and short names of its algorithms and protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.hardware.node import node_for
from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.sim.network.nccl.choice import AlgorithmChoice, legal_choices
from stepsim.sim.network.nccl.constants import NcclAlgorithm, NcclProtocol
from stepsim.sim.network.nccl.cost_model import lines, seconds_on
from stepsim.sim.network.nccl.paths import Communicator, communicator_on

AR, AG = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
A = NcclAlgorithm
P = NcclProtocol
GIB = 1 << 30

A100, H100, H800, B200 = "A100-SXM4-80GB", "H100-SXM5-80GB", "H800-SXM5-80GB", "B200-SXM-180GB"
HDR, NDR = "ib-hdr200-x8", "ib-ndr400-x8"


def on(
    gpu: str,
    nodes: int,
    network: str = "",
    local: int = 8,
    *,
    cpu: Literal["intel", "amd", "other"] = "intel",
    sharp: bool = False,
) -> Communicator:
    interconnect = get_interconnect(network or (HDR if gpu == A100 else NDR))
    cluster = Cluster(
        gpu=get_gpu(gpu),
        gpus=8 * max(nodes, 2),
        gpus_per_node=8,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )
    return communicator_on(cluster, ranks=local * nodes, domains=nodes, cpu=cpu, sharp=sharp)


def on_racks(gpu: str, domains: int) -> Cluster:
    """So many full NVLink domains, and one host more."""
    interconnect = get_interconnect(NDR)
    found = Cluster(
        gpu=get_gpu(gpu),
        gpus=node_for(get_gpu(gpu)).max_gpus,
        gpus_per_node=node_for(get_gpu(gpu)).max_gpus,
        interconnect=interconnect,
        fabric=default_fabric(interconnect),
    )
    return replace(found, gpus=found.gpus_per_node + domains * max(found.nvlink_domain, found.gpus_per_node))


def choose(
    kind: CollectiveKind | str, payload_bytes: float, comm: Communicator, **variables: str | None
) -> AlgorithmChoice:
    """The quickest of what is legal and asked for."""
    return legal_choices(kind, payload_bytes, comm, **variables)[0]


def seconds(
    algorithm: NcclAlgorithm,
    protocol: NcclProtocol,
    kind: CollectiveKind,
    payload_bytes: float,
    comm: Communicator,
) -> float:
    """NCCL's predicted time for one combination."""
    (line,) = (one for one in lines(kind, comm) if (one.algorithm, one.protocol) == (algorithm, protocol))
    return seconds_on(line, kind, payload_bytes, comm)
