"""What a cluster in print fixes, and the refusal of what contradicts it.

Knows no cluster: each has a module of its own with its figures and their sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Published:
    """A cluster as printed. A job may use a part of it: its first hosts, unless a placement says otherwise.

    ``gpus`` are catalogue keys that fit; ``facts`` are what is known, ``sources`` where from, with
    ``unverified`` on whatever was not read in the first source.
    """

    name: str
    nodes: int
    gpus_per_node: int
    gpus: tuple[str, ...]
    interconnects: tuple[str, ...]
    facts: Mapping[str, str] = field(hash=False)
    sources: tuple[str, ...]

    def check(self, gpu: str, gpus: int, gpus_per_node: int, interconnect: str) -> None:
        """Raise ValueError for the first thing that the cluster does not have."""
        most = self.nodes * self.gpus_per_node
        if gpu not in self.gpus:
            raise ValueError(f"{self.name} has {' or '.join(self.gpus)}, not {gpu}")
        if gpus_per_node != self.gpus_per_node:
            raise ValueError(f"{self.name} has {self.gpus_per_node} GPUs per host, not {gpus_per_node}")
        if interconnect not in self.interconnects:
            raise ValueError(
                f"{self.name} is wired with {' or '.join(self.interconnects)}, not {interconnect}"
            )
        if gpus > most:
            raise ValueError(f"{self.name} has {most} GPUs, fewer than the {gpus} of the job")
