"""Clusters in print, read from published.yaml: what each fixes, and the refusal of what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .catalogue import Table

if TYPE_CHECKING:
    from .fabrics.inputs import Options, Ports
    from .fabrics.tiers import Tiers


@dataclass(frozen=True, kw_only=True)
class Published:
    """A cluster as printed. A job may use a part of it: its first hosts, unless a placement says otherwise.

    ``name`` is that of its fabric. ``gpus`` are catalogue keys that fit; ``facts`` are what is known,
    ``sources`` where from, with ``unverified`` on whatever was not read in the first source. ``wiring`` are
    fields of ``Clos`` or of ``Tiers``, as its ``rule`` says. ``pxn``: a job may choose it.
    """

    name: str
    title: str
    what: str
    nodes: int
    gpus_per_node: int
    gpus: tuple[str, ...]
    interconnects: tuple[str, ...]
    wiring: Mapping[str, Any] = field(hash=False)
    facts: Mapping[str, str] = field(hash=False)
    sources: tuple[str, ...]
    pxn: bool = True

    def check(self, gpu: str, gpus: int, gpus_per_node: int, interconnect: str) -> None:
        """Refuse a job that the published cluster cannot hold.

        Raises:
            ValueError: the GPU, the GPUs of a host, the network or the number of GPUs is another one than
                the cluster has; names the value and what the cluster has instead.
        """
        most = self.nodes * self.gpus_per_node
        if gpu not in self.gpus:
            raise ValueError(f"{self.title} has {' or '.join(self.gpus)}, not {gpu}")
        if gpus_per_node != self.gpus_per_node:
            raise ValueError(f"{self.title} has {self.gpus_per_node} GPUs per host, not {gpus_per_node}")
        if interconnect not in self.interconnects:
            raise ValueError(
                f"{self.title} is wired with {' or '.join(self.interconnects)}, not {interconnect}"
            )
        if gpus > most:
            raise ValueError(f"{self.title} has {most} GPUs, fewer than the {gpus} of the job")

    def network(self, fabric: Options, interconnect: Ports, nodes: int) -> Tiers:
        """The switches and routes of the whole cluster as it was printed, however few hosts the job uses."""
        from .fabrics.clos import Clos
        from .fabrics.tiers import Tiers, tiers_of

        del fabric, nodes  # the printed shape holds for every job
        counts = {"nodes": self.nodes, "links_per_host": interconnect.links_per_host, **self.wiring}
        rule = counts.pop("rule")
        if rule == "clos":
            return tiers_of(Clos(switch_ports=interconnect.switch_ports, **counts))
        assert rule == "tiers", rule
        return Tiers(**counts)


def _published(*, gpus: list[str], interconnects: list[str], sources: list[str], **fields: Any) -> Published:
    return Published(gpus=tuple(gpus), interconnects=tuple(interconnects), sources=tuple(sources), **fields)


PUBLISHED = Table("published cluster", __package__, "published.yaml", _published)
