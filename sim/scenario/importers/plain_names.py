"""Names of settings as they are looked up."""

from __future__ import annotations


def plain_name(name: str) -> str:
    """The name under which a setting is looked up: ``--num-layers``, ``num_layers`` and ``NUM_LAYERS`` are
    one."""
    return name.lstrip("-+").replace("-", "_").lower()
