"""A measured run as if nobody had read its trainer's code.

It is then predicted with a generic preset, chosen by how its own preset shards and whether that is written
in JAX, as for trainers that have no preset (sim/scenario/software/called.yaml). What the case states of its
software stays stated.
"""

from __future__ import annotations

from dataclasses import replace

from ...sim.scenario.software import get_software
from .case import Case
from .preset import preset_of

_NAMES = {"xla": "JAX", "torch": "PyTorch FSDP", "": "a trainer"}
"""What a case calls a trainer of which nothing is known but this, so that it gets a generic preset."""


def as_unread(case: Case) -> Case | None:
    """The case with a generic name in place of its framework's; None where nobody read its code anyway."""
    software = get_software(preset_of(case.software))
    if not software.read:
        return None
    if software.sharding.implementation == "xla":
        known = "xla"
    else:
        known = "torch" if case.layout.zero == 3 else ""
    return replace(case, software=replace(case.software, framework=_NAMES[known]))
