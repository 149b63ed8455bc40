"""What a network shape reads of the user's choices and of the ports: parts of a Fabric and an Interconnect.

Protocols, because ``hardware`` imports this package and must not be imported by it.
"""

from __future__ import annotations

from typing import Protocol


class Options(Protocol):
    """The options that network shapes read of ``hardware.fabric.Fabric``, which documents them."""

    @property
    def oversubscription(self) -> float: ...
    @property
    def spine_oversubscription(self) -> float: ...
    @property
    def levels(self) -> int | None: ...
    @property
    def nodes_per_leaf(self) -> int | None: ...
    @property
    def dimensions(self) -> tuple[int, int, int] | None: ...
    @property
    def routers_per_group(self) -> int | None: ...
    @property
    def global_links(self) -> int | None: ...


class Ports(Protocol):
    """Ports of ``hardware.interconnect.Interconnect``, which documents them."""

    @property
    def name(self) -> str: ...
    @property
    def link_bytes_per_s(self) -> float: ...
    @property
    def links_per_host(self) -> int: ...
    @property
    def switch_latency_s(self) -> float: ...
    @property
    def efficiency(self) -> float: ...
    @property
    def switch_ports(self) -> int: ...
