"""Fields that follow from others where a scenario leaves them out: host, network, chunks, replicas, schedule.

Knows blocks that are not checked yet, in which anything may stand; the types say what is wrong in them.
"""

from __future__ import annotations

from typing import Any

from ...hardware.fabric import default_fabric
from ...hardware.gpus import get_gpu, gpu_key, gpu_names
from ...hardware.interconnect import Interconnect, get_interconnect, interconnect_names
from ...hardware.node import Node, node_for
from ...hardware.own_gpu import OwnGpu, gpu_from
from ...hardware.own_interconnect import OwnInterconnect, interconnect_from
from ...hardware.own_node import OwnNode, node_from
from ...hardware.published import PUBLISHED
from .blocks import ClusterSpec, Parallelism, interconnect_key
from .checks import nvlink_domain
from .own_hardware import described
from .schedules import schedule_named


def with_machine_defaults(fields: Any) -> Any:
    """The block ``cluster`` with its GPU's host size, its network's usual shape, and none inside NVLink."""
    if not isinstance(fields, dict):
        return fields
    filled = dict(fields)
    node = _node_of(filled.get("gpu"), filled.get("node"))
    filled.setdefault("gpus_per_node", node.max_gpus if node else 8)
    gpus, per_node = _whole(filled.get("gpus")), _whole(filled["gpus_per_node"])
    if ("gpu" in filled and node is None) or ("gpus" in filled and gpus is None):
        filled.setdefault("interconnect", interconnect_names()[0])  # a guess: the reason is already a problem
    fabric = filled.get("fabric", {})
    published = isinstance(fabric, dict) and fabric.get("kind") in PUBLISHED.names()
    if published:
        filled.setdefault("interconnect", PUBLISHED.get(fabric["kind"]).interconnects[0])
    if (
        gpus
        and per_node
        and gpus
        <= nvlink_domain(
            node.hosts_per_domain if node else 1, per_node, _whole(filled.get("gpus_per_domain"))
        )
    ):
        filled.setdefault("interconnect", "nvlink-only")
    network = _network_of(filled.get("interconnect"))
    if network and network.kind != "unknown" and isinstance(fabric, dict):
        filled["fabric"] = {"kind": default_fabric(network).kind, **fabric}
    return filled


def _node_of(gpu: Any, node: Any) -> Node | None:
    """The host of a block that is not checked yet; None where its GPU is none."""
    name = gpu_key(gpu)
    if isinstance(name, str):
        chip = get_gpu(name) if name in gpu_names() else None
    else:
        own = described(OwnGpu, gpu)
        chip = gpu_from(own) if own else None
    host = described(OwnNode, node) if chip and node is not None else None
    if chip is None:
        return None
    return node_from(host, chip) if host else node_for(chip)


def _network_of(interconnect: Any) -> Interconnect | None:
    """The network of a block that is not checked yet; None where it is none."""
    name = interconnect_key(interconnect)
    if isinstance(name, str):
        return get_interconnect(name) if name in interconnect_names() else None
    own = described(OwnInterconnect, interconnect)
    return interconnect_from(own) if own else None


def with_layout_defaults(fields: Any, schedule: Any, cluster: ClusterSpec | None) -> Any:
    """The block ``parallelism`` with vpp and dp, which follow from the schedule and the number of GPUs."""
    if not isinstance(fields, dict):
        return fields
    filled = dict(fields)
    if isinstance(schedule, str) and "vpp" not in filled:
        filled["vpp"] = _chunks_of(schedule)
    tp, pp, cp = (_whole(filled.get(axis, 1)) for axis in ("tp", "pp", "cp"))
    if cluster and tp and pp and cp:
        filled.setdefault("dp", max(1, cluster.gpus // (tp * pp * cp)))
    filled.setdefault("dp", 1)  # a guess: the reason is already a problem
    return filled


def _chunks_of(schedule: str) -> int:
    """Chunks per stage that go without saying: those of a V, or of a table; 1 if that is a problem."""
    try:
        return schedule_named(schedule).chunks
    except ValueError:
        return 1


def default_schedule(par: Parallelism) -> str:
    """The schedule of a layout that names none."""
    if par.pp == 1:
        return "none"
    return "1f1b" if par.vpp == 1 else "interleaved"


def _whole(value: Any) -> int | None:
    """A positive whole number, which may be written 1e3; None for anything else: the types report it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value >= 1 and value == value // 1 else None
