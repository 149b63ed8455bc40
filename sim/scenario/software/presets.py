"""The catalogue of software presets, read from presets.yaml."""

from __future__ import annotations

from ....hardware.catalogue import Table
from .called import software_called
from .software import Software

PRESETS = Table("software", __package__, "presets.yaml", Software)


def software_names() -> tuple[str, ...]:
    """Names of all presets, in catalogue order."""
    return PRESETS.names()


def get_software(name: str) -> Software:
    """The preset ``name``, or that of the framework of that name: ``torchtitan``, ``LitGPT``.

    Raises ValueError naming the known presets, the nearest first.
    """
    return PRESETS.get(name if name in PRESETS.records() else software_called(name) or name)
