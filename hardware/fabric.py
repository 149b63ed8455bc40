"""How hosts are wired to switches: the user's choice of a network shape.

Knows the shapes by name, one module of ``fabrics`` each. Knows no GPUs, rates or latencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, get_args

from .catalogue import unknown_name
from .fabrics.clos import Clos
from .interconnect import Interconnect

FabricKind = Literal["rail-optimized", "fat-tree", "nvlink"]


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The shape of a cluster's network.

    ``oversubscription`` is host-side over spine-side capacity of a leaf switch (1: non-blocking).
    ``nodes_per_leaf`` is how many hosts share their leaf switches: a scalable unit in a
    rail-optimized fabric; None fills half of the switch's ports with hosts. ``nodes_per_rack`` is
    how many hosts of each multi-host NVLink domain the job uses; None takes all of them (a
    scheduler that hands out 16 of the 18 trays of an NVL72 rack makes domains of 64 GPUs).

    Raises:
        ValueError: unknown kind, or a number that is not positive.
    """

    kind: FabricKind = "rail-optimized"
    oversubscription: float = 1.0
    nodes_per_leaf: int | None = None
    nodes_per_rack: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(FabricKind):
            raise unknown_name("fabric", self.kind, get_args(FabricKind))
        if not (self.oversubscription > 0 and math.isfinite(self.oversubscription)):
            raise ValueError(f"oversubscription must be a positive number, not {self.oversubscription}")
        for field in ("nodes_per_leaf", "nodes_per_rack"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field} must be at least 1, not {value}")


def default_fabric(interconnect: Interconnect) -> Fabric:
    """The shape in which that interconnect is published.

    InfiniBand and RoCE training clusters are rail-optimized (NVIDIA SuperPOD, MegaScale). EFA and
    Omni-Path hosts hang on a leaf switch with all their links: AWS does not publish rails and
    sprays packets over all paths; Jean Zay's Omni-Path is a tree of 48-port switches.
    """
    if not interconnect.connects_hosts:
        return Fabric(kind="nvlink")
    return Fabric(kind="fat-tree" if interconnect.kind in ("efa", "omnipath") else "rail-optimized")


def plan_switches(fabric: Fabric, interconnect: Interconnect, nodes: int) -> Clos | None:
    """The switches that ``nodes`` hosts need; None where the fabric has no network.

    The module of ``fabrics`` is found by the kind's name.
    """
    module = import_module(f".fabrics.{fabric.kind.replace('-', '_')}", __package__)
    plan: Clos | None = module.plan(
        nodes=nodes,
        links_per_host=interconnect.links_per_host,
        switch_ports=interconnect.switch_ports,
        oversubscription=fabric.oversubscription,
        nodes_per_leaf=fabric.nodes_per_leaf,
    )
    return plan
