"""Hardware of a user's own in a scenario: files that hold it, and a name that a change turns into a base.

Knows where such a file may stand in a document; what its fields mean is in hardware/own_*.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ...hardware.calibrated.overlay import is_file
from ...hardware.fields import FROM_DOCUMENT
from ...hardware.files import FileError, read_text
from .errors import Problem, ScenarioError
from .tree import TreeNode
from .yaml_source import LIMITS, read_tree

PARTS = ("gpu", "interconnect", "node")
"""Fields of ``cluster`` that a file may hold, each under its own name."""

Described = TypeVar("Described", bound=BaseModel)


def with_hardware_files(tree: TreeNode) -> TreeNode:
    """The document with each part of its cluster that names a file replaced by what stands there.

    Raises:
        ScenarioError: no such file, none that can be read, or one without that part.
    """
    cluster = tree.entries.get("cluster")
    if cluster is None:
        return tree
    entries = dict(cluster.entries)
    for part in PARTS:
        node = entries.get(part)
        if node is not None and isinstance(node.value, str) and is_file(node.value):
            entries[part] = _part_of_file(node, part)
    if entries == cluster.entries:
        return tree
    return tree.with_entries({**tree.entries, "cluster": cluster.with_entries(entries)})


def _part_of_file(node: TreeNode, part: str) -> TreeNode:
    """The part in the file that ``node`` names, relative to the document that names it."""
    folder = Path(node.mark.file).parent if node.mark.line else Path()
    path = folder / str(node.value)
    where = f"cluster.{part}"
    try:
        read = hardware_tree(path)
    except FileError as error:
        problem = Problem(mark=node.mark, path=where, message=str(error), value=node.plain())
        raise ScenarioError([problem]) from None
    found = read.entries.get(part)
    if found is None:
        message = f"{path} has no {part}; it has {', '.join(read.entries) or 'no fields'}"
        raise ScenarioError([Problem(mark=node.mark, path=where, message=message, value=node.plain())])
    return replace(found, key_mark=node.key_mark)


def hardware_tree(path: Path) -> TreeNode:
    """A hardware file: ``gpu``, ``interconnect`` and ``node``, as a cluster has them. FileError where it
    cannot be read, ScenarioError where it is no YAML."""
    return read_tree(read_text(path, limit=LIMITS.bytes), str(path))


def with_names_as_bases(base: TreeNode, change: TreeNode) -> TreeNode:
    """``change`` with the name that ``base`` gives a GPU or a network as what it extends, where it describes
    one.

    So ``cluster.interconnect.scale=0.5`` halves the network that the scenario names.
    """
    cluster, own = change.entries.get("cluster"), base.entries.get("cluster")
    if cluster is None or own is None:
        return change
    entries = dict(cluster.entries)
    for part in PARTS[:2]:
        described, named = entries.get(part), own.entries.get(part)
        if described is None or named is None or not described.entries:
            continue
        has_a_base = {"extends", "architecture", "kind"} & set(described.entries)
        if isinstance(named.value, str) and not is_file(named.value) and not has_a_base:
            entries[part] = described.with_entries({"extends": named, **described.entries})
    if entries == cluster.entries:
        return change
    return change.with_entries({**change.entries, "cluster": cluster.with_entries(entries)})


def described(part: type[Described], fields: Any) -> Described | None:
    """The hardware that a block describes, or None where it describes none: its errors are reported where the
    block is read."""
    try:
        return part.model_validate(fields, context=FROM_DOCUMENT)
    except ValidationError:
        return None
