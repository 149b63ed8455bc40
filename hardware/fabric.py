"""How hosts are wired to switches: the user's choice of a network shape.

Knows the shapes by name: one module of ``fabrics`` each, or a row of published.yaml. Knows no GPUs, rates
or latencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from .catalogue import unknown_name
from .fabrics.clos import Clos
from .interconnect import Interconnect
from .published import PUBLISHED

if TYPE_CHECKING:
    from .fabrics.network import Network

Ecmp = Literal["spread", "hashed"]

_TREE = {"oversubscription", "spine_oversubscription", "levels", "nodes_per_leaf"}
_SHAPES: dict[str, set[str]] = {
    "rail-optimized": _TREE | {"pxn"},
    "fat-tree": _TREE,
    "nvlink": set(),
    "dragonfly": {"nodes_per_leaf", "routers_per_group", "global_links"},
    "torus": {"oversubscription", "dimensions"},
    "custom": {"file"},
}
"""Shapes that are computed, and the options that each reads."""


def fabric_kinds() -> tuple[str, ...]:
    """Every kind of fabric: the shapes that are computed, then the clusters in print."""
    return (*_SHAPES, *PUBLISHED.names())


def _options(kind: str) -> set[str]:
    """Options that a kind of fabric reads; all kinds read ``ecmp``, ``seed`` and ``nodes_per_rack`` too."""
    return _SHAPES[kind] if kind in _SHAPES else {"pxn"} if PUBLISHED.get(kind).pxn else set()


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """The shape of a cluster's network.

    ``oversubscription`` is host-side over spine-side capacity of a leaf switch (1: non-blocking).
    ``nodes_per_leaf`` is how many hosts share their leaf switches: a scalable unit in a
    rail-optimized fabric; None fills half of the switch's ports with hosts. ``nodes_per_rack`` is
    how many hosts of each multi-host NVLink domain the job uses; None takes all of them (a
    scheduler that hands out 16 of the 18 trays of an NVL72 rack makes domains of 64 GPUs). Hosts that it
    leaves idle have no number and no links.

    ``spine_oversubscription`` is the same ratio of a spine switch, ``levels`` 2 or 3 fixes the number of
    switch tiers (None: as many as the ports demand). ``pxn``: a GPU first hands its data over NVLink to
    the neighbour on the target's rail. ``dimensions`` are the hosts along each axis of a torus (None:
    the most cubic shape). ``routers_per_group`` and ``global_links`` (per router) shape a dragonfly.
    ``file`` holds a custom graph (``graph_file.py``). ``ecmp``: traffic spreads evenly over
    equal-cost links, or a hash with ``seed`` picks one of them for each flow.

    Raises:
        ValueError: unknown kind, a number that is not positive, or an option that the kind does not read.
    """

    kind: str = "rail-optimized"
    oversubscription: float = 1.0
    nodes_per_leaf: int | None = None
    nodes_per_rack: int | None = None
    spine_oversubscription: float = 1.0
    levels: int | None = None
    pxn: bool = False
    dimensions: tuple[int, int, int] | None = None
    routers_per_group: int | None = None
    global_links: int | None = None
    file: str | None = None
    ecmp: Ecmp = "spread"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in fabric_kinds():
            raise unknown_name("fabric", self.kind, fabric_kinds())
        for field in ("oversubscription", "spine_oversubscription"):
            ratio = getattr(self, field)
            if not (ratio > 0 and math.isfinite(ratio)):
                raise ValueError(f"{field} must be a positive number, not {ratio}")
        for field in ("nodes_per_leaf", "nodes_per_rack", "routers_per_group", "global_links"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field} must be at least 1, not {value}")
        if self.levels not in (None, 2, 3):
            raise ValueError(f"levels must be 2 (leaf, spine) or 3 (leaf, spine, core), not {self.levels}")
        if self.dimensions is not None and (len(self.dimensions) != 3 or min(self.dimensions) < 1):
            raise ValueError(f"dimensions must be three whole numbers of hosts, not {self.dimensions}")
        if self.ecmp not in get_args(Ecmp):
            raise unknown_name("ecmp rule", self.ecmp, get_args(Ecmp))
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        if self.seed and self.ecmp != "hashed":
            raise ValueError(f"seed {self.seed} is of hashed ECMP; set ecmp to hashed, or leave it out")
        self._check_options()

    def _check_options(self) -> None:
        read = _options(self.kind) | {"kind", "ecmp", "seed", "nodes_per_rack"}
        for field in fields(self):
            if field.name not in read and getattr(self, field.name) != field.default:
                takers = ", ".join(kind for kind in fabric_kinds() if field.name in _options(kind))
                fixed = " (a published cluster fixes its shape)" if self.kind in PUBLISHED.records() else ""
                raise ValueError(
                    f"fabric {self.kind!r} takes no {field.name}{fixed}; leave it out, or choose {takers}"
                )
        if self.kind == "custom" and not self.file:
            raise ValueError("fabric 'custom' needs file: a GraphML or YAML file with the graph")


def default_fabric(interconnect: Interconnect) -> Fabric:
    """The shape in which that interconnect is published.

    InfiniBand and RoCE training clusters are rail-optimized (NVIDIA SuperPOD, MegaScale). EFA and
    Omni-Path hosts hang on a leaf switch with all their links: AWS does not publish rails and
    sprays packets over all paths; Jean Zay's Omni-Path is a tree of 48-port switches.
    """
    if not interconnect.connects_hosts:
        return Fabric(kind="nvlink")
    without_rails = interconnect.kind in ("efa", "omnipath", "slingshot")
    return Fabric(kind="fat-tree" if without_rails else "rail-optimized")


def plan_switches(fabric: Fabric, interconnect: Interconnect, nodes: int) -> Clos | None:
    """Switches of a rail-optimized fabric or a fat tree for ``nodes`` hosts; None for every other kind."""
    if fabric.kind not in ("rail-optimized", "fat-tree"):
        return None
    plan: Clos = _module(fabric.kind).plan(fabric, interconnect, nodes)
    return plan


def network_of(fabric: Fabric, interconnect: Interconnect, nodes: int) -> Network | None:
    """The switches of ``nodes`` hosts and their routes; None where there are only NVSwitches."""
    maker = PUBLISHED.records().get(fabric.kind) or _module(fabric.kind)
    network: Network | None = maker.network(fabric, interconnect, nodes)
    return network


def _module(kind: str) -> Any:
    """The module of ``fabrics`` that computes this shape, found by name. It has a function ``network``."""
    return import_module(f".fabrics.{kind.replace('-', '_')}", __package__)
