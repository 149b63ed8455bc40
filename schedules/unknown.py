"""The refusal of a name that no schedule or algorithm has; in the words of hardware/catalogue.py, which this
folder does not import.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def unknown(what: str, name: str, known: Collection[str]) -> ValueError:
    """The error for ``name``: the nearest known name first, then all of them."""
    nearest = get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return ValueError(f"no {what} is called {name!r}.{hint} Known: {', '.join(known)}")
