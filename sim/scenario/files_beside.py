"""Files that a document names, found from the folder of the one that names them.

Knows in which fields a path may stand; what is in the files others read. Parts of a cluster that a file holds
are read in own_hardware.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .tree import TreeNode, nearest


def with_fault_traces(tree: TreeNode, plain: dict[str, Any]) -> dict[str, Any]:
    """Files of faults are found from the folder of the document that names them."""
    faults = plain.get("faults")
    events = faults.get("events") if isinstance(faults, dict) else None
    for number, event in enumerate(events if isinstance(events, list) else []):
        if isinstance(event, dict) and isinstance(event.get("trace"), str):
            mark = nearest(tree, ("faults", "events", number, "trace")).mark
            if mark.line:
                event["trace"] = str(Path(mark.file).parent / event["trace"])
    return plain


def _with_graph_file(tree: TreeNode, fields: Any) -> Any:
    """The block ``cluster`` with its graph file found from the folder of the document that names it."""
    node = nearest(tree, ("cluster", "fabric", "file"))
    fabric = fields.get("fabric") if isinstance(fields, dict) else None
    if not isinstance(fabric, dict) or not isinstance(fabric.get("file"), str) or not node.mark.line:
        return fields
    return {**fields, "fabric": {**fabric, "file": str(Path(node.mark.file).parent / fabric["file"])}}


def with_cluster_files(tree: TreeNode, fields: Any) -> Any:
    """The block ``cluster`` with the files of its graph, of neighbours and of measured speeds found from the
    folder of the document that names them.
    """
    fields = _with_neighbour_files(tree, _with_graph_file(tree, fields))
    varies = fields.get("variation") if isinstance(fields, dict) else None
    if not isinstance(varies, dict):
        return fields
    found = dict(varies)
    for part, law in varies.items():
        node = nearest(tree, ("cluster", "variation", part, "file"))
        if isinstance(law, dict) and isinstance(law.get("file"), str) and node.mark.line:
            found[part] = {**law, "file": str(Path(node.mark.file).parent / law["file"])}
    return {**fields, "variation": found}


def _with_neighbour_files(tree: TreeNode, fields: Any) -> Any:
    """The block ``cluster`` with the files of other jobs; what is not a file there is a shipped name."""
    others = fields.get("neighbours") if isinstance(fields, dict) else None
    if not isinstance(others, list):
        return fields
    found: list[Any] = []
    for number, other in enumerate(others):
        mark = nearest(tree, ("cluster", "neighbours", number, "scenario")).mark
        named = other.get("scenario") if isinstance(other, dict) else None
        file = Path(mark.file).parent / named if isinstance(named, str) and mark.line else None
        there = file is not None and file.is_file()
        found.append({**other, "scenario": str(file)} if there else other)
    return {**fields, "neighbours": found}


def with_counts_file(tree: TreeNode, fields: Any) -> Any:
    """The block ``training`` with the file of its router's counts found from that folder."""
    node = nearest(tree, ("training", "routing", "file"))
    routing = fields.get("routing") if isinstance(fields, dict) else None
    if not isinstance(routing, dict) or not isinstance(routing.get("file"), str) or not node.mark.line:
        return fields
    return {**fields, "routing": {**routing, "file": str(Path(node.mark.file).parent / routing["file"])}}


def beside(tree: TreeNode, key: str, path: str) -> str:
    """A file that is named relative to the one that names it."""
    named_in = Path(nearest(tree, (key,)).mark.file)
    return str(named_in.parent / path) if named_in.is_file() else path
