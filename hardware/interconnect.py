"""Networks between hosts by name: rate, latency and switch size of one kind of NIC.

Knows the catalogue file interconnects.yaml. Does not know how switches are wired: that is the fabric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .carried import CarriedFigure
from .catalogue import Table, unknown_name

Kind = Literal["infiniband", "roce", "tcpx", "tcpxo", "efa", "slingshot", "omnipath", "none", "unknown"]

NCCL_MESSAGE_CHUNK_BYTES = 131072.0
"""NCCL's own cut of a message in a communicator of several hosts (NCCL 2.18 to 2.28, init.cc)."""

NCCL_LONGEST_CHUNK_BYTES = 524288.0
"""The longest cut that NCCL makes, whatever NCCL_P2P_NET_CHUNKSIZE says: an eighth of the 4 MiB of Simple's
buffer, which has eight steps (init.cc, computeBuffSizes; NCCL_BUFFSIZE would make it longer)."""


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """The NICs of a host and the switches that they plug into.

    ``link_bytes_per_s`` is the line rate of one of ``links_per_host`` links, per direction;
    ``efficiency`` is the share of it that large messages reach. ``latency_s`` is one way, NIC to
    NIC through one switch; each further switch adds ``switch_latency_s``. ``switch_ports`` counts
    the ports of one switch at the line rate. ``message_chunk_bytes`` is how NCCL cuts a message between
    hosts (NCCL_P2P_NET_CHUNKSIZE; a provider's plugin may set it). ``ring_step_s`` is what each step of a
    ring between hosts takes with Simple beside its bytes; ``nccl_latency_s`` the latency that the plugin
    tells NCCL, which chooses algorithms by it; ``nccl_algo`` and ``nccl_proto`` what the provider has jobs
    set (NCCL_ALGO, NCCL_PROTO), inside hosts too. A message of more than ``eager_bytes`` is fetched by its
    receiver, which adds ``rendezvous_s``. ``nics_as_one``: NCCL takes a host's NICs for ports of one, so that
    a communicator uses one of them.

    ``carried`` are figures that a user's description (``own``) leaves out.

    Kind ``none`` has no links: the job stays inside one NVLink domain. Kind ``unknown`` has no
    figures, so a cluster of several hosts refuses it.
    """

    name: str
    kind: Kind
    link_bytes_per_s: float
    links_per_host: int
    latency_s: float
    switch_latency_s: float
    efficiency: float
    switch_ports: int
    sources: Mapping[str, str] = field(hash=False)
    message_chunk_bytes: float = NCCL_MESSAGE_CHUNK_BYTES
    ring_step_s: float = 0.0
    nccl_latency_s: float = 0.0
    nccl_algo: str | None = None
    nccl_proto: str | None = None
    eager_bytes: float = math.inf
    rendezvous_s: float = 0.0
    nics_as_one: bool = False
    carried: tuple[CarriedFigure, ...] = ()
    own: bool = False

    @property
    def connects_hosts(self) -> bool:
        """Whether there is a network with known figures at all."""
        return self.kind not in ("none", "unknown")

    @property
    def longer_chunks(self) -> float:
        """Bytes of a cut of a message over those of NCCL's own cut."""
        return min(self.message_chunk_bytes, NCCL_LONGEST_CHUNK_BYTES) / NCCL_MESSAGE_CHUNK_BYTES

    @property
    def host_bytes_per_s(self) -> float:
        """Usable rate of all links of a host together, per direction."""
        return self.link_bytes_per_s * self.links_per_host * self.efficiency


INTERCONNECTS = Table("interconnect", __package__, "interconnects.yaml", Interconnect)


def get_interconnect(name: str) -> Interconnect:
    """The interconnect of that catalogue key, ``<fabric>-<Gb/s per link>-x<links per host>``.

    Raises:
        ValueError: no such key; the message has the nearest one and all that are offered.
    """
    return INTERCONNECTS.get(interconnect_called(name))


def interconnect_called(name: str) -> str:
    """The catalogue key that ``name`` means, in any case and with any of space, ``_`` and ``-`` between its
    words.

    >>> interconnect_called("IB NDR400 x8")
    'ib-ndr400-x8'

    Raises:
        ValueError: no such key; the message has the nearest one and all that are offered.
    """
    if name in INTERCONNECTS.records():  # as nearly all are, before every key is spelled plainly
        return name
    known = {_plain(key): key for key in interconnect_names()}
    if _plain(name) not in known:
        raise unknown_name("interconnect", name, offered_interconnects())
    return known[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def interconnect_names() -> tuple[str, ...]:
    """Every catalogue key, in the order of the file."""
    return INTERCONNECTS.names()


def offered_interconnects() -> tuple[str, ...]:
    """The keys to choose from: all but ``unknown``, which is what files of measured runs say whose source
    does not name a network, and which no job of several hosts runs on."""
    return tuple(name for name, one in INTERCONNECTS.records().items() if one.kind != "unknown")


def networks_between_hosts() -> tuple[str, ...]:
    """The keys of networks that a job of several hosts can run on."""
    return tuple(name for name, one in INTERCONNECTS.records().items() if one.connects_hosts)
