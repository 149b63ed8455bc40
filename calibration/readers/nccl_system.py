"""The catalogue's names for what a log says in words about its GPU and its network.

Knows how clouds call networks, and which settings a user forced. A network of which only rates are stated is
that of the catalogue with the nearest ones. Does not guess: a log that states neither is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...hardware.interconnect import Interconnect, get_interconnect
from ...hardware.node import node_for
from ...hardware.own_interconnect import OwnInterconnect, interconnect_from
from .foreign.gpu_named import gpu_named
from .foreign.values import shown
from .named_gpus import StatedGpu, chip_of
from .nccl_log import Measurements

_NETWORKS = (
    (r"TCPXO", "tcpxo-200-x8"),
    (r"TCPX\b", "tcpx-200-x4"),
    (r"EFA 4x100\b", "efa-400-x1"),
    (r"EFA", "efa-3200"),
    (r"RoCE/IB", "ib-hdr200-x8"),  # A100 with rails of mlx5: HDR or Ethernet, 200 Gb/s either way
    (r"HDR", "ib-hdr200-x8"),
    (r"NDR|400 Gb/s InfiniBand|InfiniBand.*400 Gb/s", "ib-ndr400-x8"),
    (r"ConnectX-8", "gcp-rdma400-x8"),
    (r"(?i)slingshot", "slingshot-200-x4"),
    (r"8x400 Gb/s", "roce-400-x8"),
)


@dataclass(frozen=True, kw_only=True)
class System:
    """The GPU of a log, and its network.

    ``nodes_per_rack`` is set where NVLink joins fewer hosts than the rack holds.
    """

    gpu: StatedGpu
    interconnect: Interconnect
    nodes_per_rack: int | None = None


def system_of(log: Measurements, gpu: StatedGpu | None = None, interconnect: str | None = None) -> System:
    """The system of a log; ``gpu`` and ``interconnect`` replace what it says.

    ValueError where neither the log nor the caller names the GPU, or the network of several hosts.
    """
    fabric = log.stated.get("fabric", "")
    gpu = gpu or gpu_named(log.gpu or "")
    if gpu is None:
        raise ValueError(f"{log.file}: no GPU of the catalogue in {shown(log.gpu)}; give --gpu")
    apart = bool(re.search(r"distinct nvlink domains", fabric, re.IGNORECASE))
    racks = node_for(chip_of(gpu)).hosts_per_domain > 1 and not apart
    alone = log.nodes == 1 or (racks and log.ranks <= 72)
    name = interconnect or _first(_NETWORKS, fabric) or ("nvlink-only" if alone else None)
    if log.gpus_per_node == 4 and name == "ib-ndr400-x8":
        name = "ib-ndr400-x4"  # one NIC a GPU
    network = get_interconnect(name) if name else _by_rates(fabric, log.gpus_per_node or 1)
    if network is None:
        raise ValueError(f"{log.file}: no network of the catalogue in {shown(fabric)}; give --interconnect")
    return System(gpu=gpu, interconnect=network, nodes_per_rack=1 if apart else None)


def _by_rates(fabric: str, gpus_per_node: int) -> Interconnect | None:
    """InfiniBand or Ethernet with the NICs that the log states: ``8x100 Gb/s``, ``one 200 Gb/s NIC per GPU``,
    ``2 NICs of 100 Gbps``. None where it states none.

    >>> [_by_rates("Omni, one 200 Gb/s NIC per GPU", 8).links_per_host, _by_rates("no word of it", 8)]
    [8, None]
    """
    rate = re.search(r"(\d+(?:\.\d+)?)\s*Gb(?:/s|ps|it/s)", fabric)
    if rate is None:
        return None
    number = re.search(r"(\d+)\s*(?:x|×|NICs?\b|rails?\b)", fabric)
    links = gpus_per_node if re.search(r"per GPU", fabric) else int(number[1]) if number else 1
    kind = "infiniband" if re.search(r"InfiniBand|\bIB\b", fabric) else "roce"
    stated = {"name": fabric, "kind": kind, "rate": f"{rate[1]} Gb/s", "nics_per_node": links}
    return interconnect_from(OwnInterconnect.model_validate(stated))


def forced_choice(log: Measurements) -> tuple[str | None, str | None]:
    """Algorithm and protocol that the log's user forced by NCCL_ALGO and NCCL_PROTO, in our names."""
    env = log.stated.get("env", "")
    algorithm, protocol = (re.search(rf"{name}=(\w+)", env) for name in ("NCCL_ALGO", "NCCL_PROTO"))
    names = {"ring": "ring", "tree": "tree", "nvls": "nvls", "nvlstree": "nvls_tree"}
    protocols = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
    return (
        names.get(algorithm[1].lower()) if algorithm else None,
        protocols.get(protocol[1].lower()) if protocol else None,
    )


def tuned(log: Measurements) -> bool:
    """Whether the log says that it ran with settings it does not state: no fit may learn from it."""
    return "settings not stated" in log.stated.get("note", "")


def _first(rules: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((name for rule, name in rules if re.search(rule, text)), None)
