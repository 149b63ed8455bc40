"""What a scenario remembers of its making: the parts that were checked, and their document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .tree import TreeNode

READ_FROM = "read_from"
"""Key of the validation context that brings the document of a scenario."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The very parts that were checked, and the document that they were read from, if any.

    Frozen parts cannot change, so a scenario that still has these is sound. Equal to any other: it says
    nothing about the scenario.
    """

    parts: tuple[Any, ...] = field(default=(), compare=False)
    document: TreeNode | None = field(default=None, compare=False)
