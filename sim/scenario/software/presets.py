"""The catalogue of software presets, read from presets.yaml."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.resources import files

import yaml

from .software import Software


@lru_cache(maxsize=1)
def _presets() -> dict[str, Software]:
    document = yaml.safe_load(files(__package__).joinpath("presets.yaml").read_text())
    return {name: Software(name=name, **fields) for name, fields in document.items()}


def software_names() -> tuple[str, ...]:
    """Names of all presets, in catalogue order."""
    return tuple(_presets())


def get_software(name: str) -> Software:
    """The preset ``name``. Raises ValueError naming the known ones, the nearest first."""
    presets = _presets()
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown software {name!r}{hint} Known: {', '.join(presets)}")
    return presets[name]
