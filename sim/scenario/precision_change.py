"""What a document says of one precision does not outlive a change to another.

How FP8 is scaled belongs to precision fp8 (checks_software.py). A change that chooses another precision over
a document in FP8, as a sweep over precisions does, takes that statement away with the precision it was for.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tree import TreeNode

_PRECISION = ("training", "precision")
_SCALING = ("software", "kernels", "fp8_scaling")


def without_scaling_of_fp8(base: TreeNode, changes: Sequence[TreeNode]) -> TreeNode:
    """``base`` without how FP8 is scaled, where it is in FP8 and ``changes`` choose another precision."""
    chosen = [text for text in (_text(change, _PRECISION) for change in changes) if text is not None]
    if not chosen or chosen[-1] == "fp8" or _text(base, _PRECISION) != "fp8":
        return base
    return _without(base, _SCALING)


def _text(node: TreeNode, path: Sequence[str]) -> str | None:
    """The text at ``path``, None where there is none."""
    for key in path:
        found = node.entries.get(key)
        if found is None:
            return None
        node = found
    return node.text


def _without(node: TreeNode, path: Sequence[str]) -> TreeNode:
    """``node`` without what is at ``path``."""
    first, *rest = path
    inner = node.entries.get(first)
    if inner is None:
        return node
    entries = {key: entry for key, entry in node.entries.items() if key != first}
    return node.with_entries({**entries, first: _without(inner, rest)} if rest else entries)
