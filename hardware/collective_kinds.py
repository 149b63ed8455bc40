"""The kinds of collectives, and how people write them: ``allreduce``, ``all-to-all``, ``AllGather``."""

from __future__ import annotations

from .catalogue import unknown_name

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "broadcast", "reduce",
    "sendrecv",
)  # fmt: skip

_OTHER = {"bcast": "broadcast", "sendreceive": "sendrecv", "p2p": "sendrecv", "alltoallv": "all_to_all"}
"""Names of logs that differ from ours by more than their spelling, with ours."""


def kind_called(name: str) -> str:
    """The kind that ``name`` means, whatever stands between its words.

    >>> kind_called("AllReduce"), kind_called("all-to-all"), kind_called("reduce_scatter_perf")
    ('all_reduce', 'all_to_all', 'reduce_scatter')

    Raises:
        ValueError: no such collective; the message has the nearest one and all of them.
    """
    kind = known_kind(name)
    if kind is None:
        raise unknown_name("collective", name, KINDS)
    return kind


def known_kind(name: str) -> str | None:
    """The kind by any of its spellings, or None for a name of no collective."""
    return _BY_PLAIN_NAME.get(_plain(name).removesuffix("perf"))


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter not in "-_ ")


_BY_PLAIN_NAME = {_plain(kind): kind for kind in KINDS} | _OTHER
