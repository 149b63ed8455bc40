"""Reading a catalogue file that lies beside this module, and refusing a name that it lacks.

Knows YAML and close names; does not know what the entries mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

import yaml

from .shown import value_text

_LONGEST = 100
"""Characters of a name that a message repeats, and that are compared with known ones."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(file_name: str) -> dict[str, dict[str, Any]]:
    """Entries of ``hardware/<file_name>`` by name, in the order of the file."""
    text = files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.load(text, Loader=_LOADER)
    return entries


def unknown_name(what: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not in the catalogue: the nearest name first, then all of them."""
    names = tuple(known)
    by_lower_case = {known_name.lower(): known_name for known_name in names}
    nearest = get_close_matches(str(name)[:_LONGEST].lower(), by_lower_case, n=1, cutoff=0.4)
    hint = f" Did you mean {by_lower_case[nearest[0]]}?" if nearest else ""
    return ValueError(f"no {what} is called {value_text(name, _LONGEST)}.{hint} Known: {', '.join(names)}")
