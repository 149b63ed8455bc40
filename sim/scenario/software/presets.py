"""The catalogue of software presets, read from presets.yaml."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

import yaml

from ....hardware.catalogue import unknown_name
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
        raise unknown_name("software", name, presets)
    return presets[name]
