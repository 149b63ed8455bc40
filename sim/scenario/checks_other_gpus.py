"""What must hold where hosts have GPUs of different kinds: what is known of all of them, and alike.

Knows catalogues; knows no layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hardware.gpus import get_gpu, gpu_names
from ...hardware.node import node_for
from .finding import Finding

if TYPE_CHECKING:
    from .blocks import ClusterSpec, Training

PATH = ("cluster", "other_gpus")

BESIDE = ("node", "neighbours", "power", "price_list", "measured_network", "what_if")
"""Fields of the cluster that say something of one kind of GPU, or of all hosts alike."""


def other_gpus_fit(cluster: ClusterSpec, training: Training | None) -> Iterator[Finding]:
    """Kinds that are known, on hosts that are there and have one kind each, joined alike."""
    others = cluster.other_gpus
    if not others:
        return
    hosts = cluster.nodes
    taken: dict[int, int] = {}
    for number, one in enumerate(others):
        path = (*PATH, number)
        if one.gpu not in gpu_names():
            try:
                get_gpu(one.gpu)
            except ValueError as error:
                yield Finding(path=(*path, "gpu"), message=str(error))
            continue
        yield from _joined_alike(cluster, one.gpu, (*path, "gpu"))
        wrong = next((host for host in one.hosts if host >= hosts), None)
        if wrong is not None:
            message = f"host {wrong} is not there: they are 0 to {hosts - 1}"
            yield Finding(path=(*path, "hosts"), message=message)
        twice = next((host for host in one.hosts if taken.setdefault(host, number) != number), None)
        if twice is not None:
            yield Finding(path=(*path, "hosts"), message=f"host {twice} has two kinds of GPUs")
    for name in BESIDE:
        if getattr(cluster, name) is not None:
            message = f"{name} speaks of one kind of GPU, and there are {1 + len(others)}; leave one out"
            yield Finding(path=("cluster", name), message=message)
    for name in ("cpu_offload", "nvme_offload", "activation_offload"):
        if training and getattr(training, name):
            message = "hosts with different GPUs are not modelled beside offloading; leave one out"
            yield Finding(path=("training", name), message=message)


def _joined_alike(cluster: ClusterSpec, name: str, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Hosts have the same number of GPUs, all of which NVLink joins."""
    if isinstance(cluster.gpu, str) and cluster.gpu not in gpu_names():
        return
    node = node_for(get_gpu(name))
    if cluster.gpus_per_node > node.max_gpus:
        message = f"a host with {name} holds up to {node.max_gpus} GPUs, not {cluster.gpus_per_node}"
        yield Finding(path=path, message=message)
    kinds = [get_gpu(name), *([get_gpu(cluster.gpu)] if isinstance(cluster.gpu, str) else [])]
    for gpu in kinds:
        if node_for(gpu).hosts_per_domain > 1 or gpu.nvlink_domain < cluster.gpus_per_node:
            message = f"NVLink of {gpu.name} does not join exactly the {cluster.gpus_per_node} GPUs of a host"
            yield Finding(path=path, message=message)
            return
