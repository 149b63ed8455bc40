"""The catalogue of software presets, read from presets.yaml."""

from __future__ import annotations

import difflib

from ....hardware.catalogue import Table
from .software import Software

PRESETS = Table("software", __package__, "presets.yaml", Software)


def software_names() -> tuple[str, ...]:
    """Names of all presets, in catalogue order."""
    return PRESETS.names()


def get_software(name: str) -> Software:
    """The preset ``name``. Raises ValueError naming the known ones, the nearest first."""
    presets = PRESETS.records()
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown software {name!r}{hint} Known: {', '.join(presets)}")
    return presets[name]
