"""A single NVLink domain: no network outside it."""

from __future__ import annotations


def network(*_: object) -> None:
    """No switches but NVSwitches."""
