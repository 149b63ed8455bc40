"""Collectives as people write them: ``allreduce``, ``all-to-all``, ``AllGather``, ``all_reduce_perf``."""

from __future__ import annotations

from ...hardware.catalogue import unknown_name
from .group_placement import KINDS

_OTHER = {"bcast": "broadcast", "sendreceive": "sendrecv", "p2p": "sendrecv", "alltoallv": "all_to_all"}
"""Names of logs that differ from ours by more than their spelling, with ours."""


def kind_called(name: str) -> str:
    """The kind that ``name`` means, whatever stands between its words.

    >>> kind_called("AllReduce"), kind_called("all-to-all"), kind_called("reduce_scatter_perf")
    ('all_reduce', 'alltoall', 'reduce_scatter')

    Raises:
        ValueError: no such collective; the message has the nearest one and all of them.
    """
    plain = _plain(name).removesuffix("perf")
    known = {_plain(kind): kind for kind in KINDS} | _OTHER
    if plain not in known:
        raise unknown_name("collective", name, KINDS)
    return known[plain]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")
