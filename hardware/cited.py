"""What a mark in the sources of the catalogue means, for whoever reads them in a table."""

from __future__ import annotations

from collections.abc import Iterable

MARK = "[ref]"


def marks_explained(sources: Iterable[str]) -> tuple[str, ...]:
    """A line on the mark if one of the ``sources`` has it.

    >>> marks_explained(["400 Gb/s Ethernet [ref]"])[0].startswith("[ref]: ")
    True
    >>> marks_explained(["NVIDIA H100 datasheet"])
    ()
    """
    words = (
        "the project's table of hardware facts; hardware/gpus.yaml names the documents that it was read in"
    )
    return (f"{MARK}: {words}",) if any(MARK in one for one in sources) else ()
