"""The catalogue of software presets, read from presets.yaml."""

from __future__ import annotations

from ....hardware.catalogue import Table, UnknownName
from .called import framework_names, software_called
from .software import Software

PRESETS = Table("software", __package__, "presets.yaml", Software)

KIN = (
    "For a trainer without a preset name its kin: generic-fsdp (torch's FSDP or DDP, DeepSpeed's ZeRO-3),"
    " generic-megatron (tensor and pipeline parallelism of its own), generic-jax."
)
"""What to write for a trainer that nobody read (docs/decisions/0050-a-stack-that-nobody-read.md)."""


def software_names() -> tuple[str, ...]:
    """Names of all presets, in catalogue order."""
    return PRESETS.names()


def get_software(name: str) -> Software:
    """The preset ``name``, or that of the framework of that name: ``torchtitan``, ``LitGPT``.

    Raises ValueError naming the known presets, the nearest first, and those of trainers that nobody read.
    """
    try:
        return PRESETS.get(name if name in PRESETS.records() else software_called(name) or name)
    except UnknownName as error:
        raise error.advised(KIN, framework_names()) from None
