"""A document as a tree whose every value remembers where it stands.

Knows mappings, lists and plain values, and how one document changes another. Does not know which
fields a scenario has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from ...hardware.explain import FieldPath
from .errors import Mark, Problem, ScenarioError

Scalar = str | int | float | bool | None

DEEPEST = 64
"""Levels of a document; scenarios have up to eight."""

STARTS_AFRESH = ("preset", "kind")
"""Keys that choose what a block is. A block that has one replaces the block it changes: fields given
beside the old choice say nothing about the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A value with its mark; ``key_mark`` is where its key stands, if it has one."""

    value: Scalar | dict[str, TreeNode] | list[TreeNode]
    mark: Mark
    key_mark: Mark | None = None

    @property
    def entries(self) -> dict[str, TreeNode]:
        """Entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def text(self) -> str | None:
        """The value if it is text."""
        return self.value if isinstance(self.value, str) else None

    def plain(self) -> Any:
        """Dicts, lists and scalars without marks."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value

    def with_entries(self, entries: dict[str, TreeNode]) -> TreeNode:
        """A mapping with ``entries`` in place of its own, at the same place in the file."""
        return replace(self, value=entries)


def from_plain(value: Any, mark: Mark, depth: int = 0) -> TreeNode:
    """Plain Python values as a tree; every node gets the same mark. Numbers of numpy become Python's.

    Raises:
        ScenarioError: nested beyond all sense, as a list that holds itself is.
    """
    if depth > DEEPEST:
        raise ScenarioError([Problem(mark=mark, path="", message=f"nested more than {DEEPEST} deep")])
    if isinstance(value, Mapping):
        entries = {str(key): from_plain(entry, mark, depth + 1) for key, entry in value.items()}
        return TreeNode(value=entries, mark=mark, key_mark=mark)
    if isinstance(value, list | tuple):
        return TreeNode(value=[from_plain(item, mark, depth + 1) for item in value], mark=mark, key_mark=mark)
    return TreeNode(value=_scalar(value), mark=mark, key_mark=mark)


def _scalar(value: Any) -> Any:
    """A number or a path of another type as Python's own; anything else as it is, for the types to refuse."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def merged(base: TreeNode, change: TreeNode) -> TreeNode:
    """``change`` laid over ``base``: mappings merge by key, everything else is replaced."""
    if not isinstance(base.value, dict) or not isinstance(change.value, dict):
        return change
    if any(key in change.value for key in STARTS_AFRESH):
        return change
    entries = dict(base.value)
    for key, entry in change.value.items():
        entries[key] = merged(entries[key], entry) if key in entries else entry
    return change.with_entries(entries)


def without_nulls(node: TreeNode) -> TreeNode:
    """The tree without entries that are null: null takes back what a base document states."""
    if isinstance(node.value, dict):
        kept = {key: without_nulls(entry) for key, entry in node.value.items() if entry.value is not None}
        return node.with_entries(kept)
    return node


def nearest(node: TreeNode, path: FieldPath) -> TreeNode:
    """The node at ``path``, or the last one on the way to it that exists."""
    for part in path:
        if isinstance(part, str) and part in node.entries:
            node = node.entries[part]
        elif isinstance(part, int) and isinstance(node.value, list) and part < len(node.value):
            node = node.value[part]
        else:
            break
    return node
