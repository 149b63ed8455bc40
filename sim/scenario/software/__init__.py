"""Software stacks: which kernels and overlaps a framework has, by name and year."""

from __future__ import annotations

from .presets import get_software, software_names
from .software import Software

__all__ = ["Software", "get_software", "software_names"]
