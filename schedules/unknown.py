"""The refusal of a name that no schedule or algorithm has; in the words of hardware/catalogue.py, which this
folder does not import.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


class UnknownEntry(ValueError):
    """A ``name`` that no entry has. ``known`` are those that there are, ``nearest`` one of them or None."""

    def __init__(self, what: str, name: str, known: Collection[str]) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        self.nearest = next(iter(get_close_matches(name.lower(), self.known, n=1, cutoff=0.4)), None)
        hint = f" Did you mean {self.nearest}?" if self.nearest else ""
        super().__init__(f"no {what} is called {name!r}.{hint} Known: {', '.join(self.known)}")

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return UnknownEntry, (self.what, self.name, self.known)
