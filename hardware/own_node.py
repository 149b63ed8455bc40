"""A host that a user describes: how its GPUs are joined, and what of it a datasheet of the GPU does not
say."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .fields import Count, CountOrZero, Flag, Rate, Text, number
from .gpu import Gpu
from .node import Node, node_for

Links = Literal["none", "pairs", "mesh", "switch"]


class OwnNode(BaseModel):
    """A host. What it leaves out is that of the host that its GPU is sold in."""

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    name: Text = Field(default="own host", description="how results call it")
    gpus: Count | None = Field(default=None, description="GPUs that it holds", examples=[8])
    links: Links | None = Field(
        default=None,
        description="what joins its GPUs besides PCIe (NVLink, xGMI): nothing, bridges of two, a link for "
        "every two, or switches",
    )
    pcie_switches: CountOrZero | None = Field(default=None, description="0: every GPU on the CPU's own lanes")
    peer_access: Flag | None = Field(
        default=None, description="false: GPUs reach one another through the host's memory alone"
    )
    memory_bandwidth: Rate | None = Field(default=None, description="of the host's memory")
    launch_factor: Annotated[float, number(gt=0, le=100)] | None = Field(
        default=None,
        description="how many times as long a kernel's launch takes as on a host of x86; Grace: 1.44",
    )


def node_from(own: OwnNode, gpu: Gpu) -> Node:
    """The host of a description."""
    usual = node_for(gpu)
    held = own.gpus or usual.max_gpus
    switches = {"switch": max(1, usual.nvswitches), None: usual.nvswitches}.get(own.links, 0)
    return replace(
        usual,
        name=own.name,
        max_gpus=held,
        nvswitches=switches,
        hosts_per_domain=usual.hosts_per_domain if own.links in (None, "switch") else 1,
        pcie_switches=usual.pcie_switches if own.pcie_switches is None else own.pcie_switches,
        memory_bytes_per_s=own.memory_bandwidth or usual.memory_bytes_per_s,
        launch_factor=own.launch_factor or usual.launch_factor,
        loop_factor=own.launch_factor or usual.loop_factor,
        source="the scenario",
    )


def gpu_in(own: OwnNode, gpu: Gpu) -> Gpu:
    """The GPU as its links and its driver work in that host."""
    peers = gpu.peer_access if own.peer_access is None else own.peer_access
    if own.links is None:
        return replace(gpu, peer_access=peers)
    held = own.gpus or node_for(gpu).max_gpus
    domain = {"none": 1, "pairs": 2}.get(own.links, held)
    return replace(gpu, nvlink_domain=domain, nvls=gpu.nvls and own.links == "switch", peer_access=peers)
