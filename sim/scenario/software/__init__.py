"""Software stacks: which kernels and overlaps a framework has, by name and year.

Read software.py first, which has six groups of fields: kernels.py, gradients.py, pipeline.py, host.py,
sharding.py, exchange.py (by group.py, what all groups share).

- stacks by name: presets.py, called.py (what people call their frameworks);
- what a preset implies for a scenario: rules.py, with the files of frameworks/.
"""

from __future__ import annotations

from .presets import get_software, software_names
from .software import Software

__all__ = ["Software", "get_software", "software_names"]
