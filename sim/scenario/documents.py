"""Scenario files, shipped scenarios and ``--set`` overrides, as one document.

Knows where scenarios lie and how documents change one another: base < ``extends`` child < ``--set``.
Does not know the fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from ... import scenarios
from ...hardware.catalogue import unknown_name
from ...hardware.files import FileError, read_text, require_file
from ...hardware.shown import clipped, value_text
from .aliases import canonical
from .errors import CHANGE, COMMAND_LINE, Mark, Problem, ScenarioError
from .own_hardware import with_names_as_bases
from .precision_change import without_scaling_of_fp8
from .tree import TreeNode, from_plain, merged
from .yaml_source import LIMITS, SHOWN_SUFFIXES, read_tree

_SUFFIXES = (".yaml", ".yml", ".json")
_IN_PYTHON = "scenario"
"""Stands in messages where a file would, for a document that is a mapping."""

_DEEPEST = 32
"""Keys of a change: no field lies half as deep."""

_SIGNS = ("model", "cluster", "training", "software", "extends", "step_time", "faults")
"""By one of these a file is known as a scenario, a part of one, or a campaign."""

_DEEPEST_CHAIN = 32
"""Documents that extend one another. People use three; a thousand would only be a thousand files to open."""

_DEEPEST_FIELD = 16
"""Names in ``a.b.c=value``; fields of a scenario have up to five."""

_OF_ONE_DOCUMENT = ("extends", "name", "title", "published")
"""Keys that describe the very document they stand in, so no other document inherits them."""

_THE_JOB = ("model", "cluster", "parallelism", "training", "schedule", "schedule_options")
"""What a title and a published number describe: neither fits a job that ``--set`` has changed."""


Changes = Sequence[str] | Mapping[str, Any]
"""Lines such as ``parallelism.tp=4``, whose value is YAML; or dotted fields and their values."""


def whole_document(source: str | Path | Mapping[str, Any]) -> tuple[TreeNode, str]:
    """The document laid over what it extends, and the name that it has where it does not say one."""
    if isinstance(source, Mapping):
        return with_base(canonical_tree(from_plain(source, Mark(file=_IN_PYTHON))), ()), _IN_PYTHON
    given: object = source
    if not isinstance(given, str | Path):
        message = f"a path, a shipped scenario's name or a mapping is needed, not {type(given).__name__}"
        raise ScenarioError([Problem(mark=Mark(file=_IN_PYTHON), path="", message=message)])
    path = _find(source, Mark(file=str(source)), Path())
    return with_base(_read(path), ()), path.stem


def scenario_names() -> tuple[str, ...]:
    """The shipped scenarios."""
    return tuple(sorted(path.stem for path in _shipped_folder().glob("*.yaml")))


def _shipped_folder() -> Path:
    return Path(str(files(scenarios)))


def _find(source: str | Path, asked_at: Mark, folder: Path) -> Path:
    """The file that ``source`` means: a path from ``folder``, else a shipped name."""
    path = folder / source
    try:
        require_file(path)
        return path
    except FileError as error:
        why = error
    if str(source) in scenario_names():
        return _shipped_folder() / f"{source}.yaml"
    longer = f"{path}.yaml"
    if os.path.isfile(longer):  # noqa: PTH113  (Path.is_file raises for names that are too long)
        message = f"there is no file {clipped(str(path))!r}, but one called {clipped(longer)!r}"
    elif path.suffix in _SUFFIXES or len(Path(source).parts) > 1 or os.path.lexists(path):
        name = clipped(str(path))
        message = f"{name!r} {why.reason}" if os.path.lexists(path) else f"there is no file {name!r}"
    else:
        message = str(unknown_name("shipped scenario", clipped(str(source)), scenario_names()))
    raise ScenarioError([Problem(mark=asked_at, path="", message=message, value=str(source))])


def _read(path: Path) -> TreeNode:
    try:
        text = read_text(path, limit=LIMITS.bytes)
    except FileError as error:
        mark = Mark(file=str(path), line=error.line, column=error.column)
        raise ScenarioError([Problem(mark=mark, path="", message=error.reason)]) from None
    tree = read_tree(text, str(path))
    if "measured" in tree.entries and "scenario" in tree.entries:
        message = "this is a run and what it measured, for validate and calibrate steps --own; a scenario is "
        message += f"the file that it names, {value_text(tree.entries['scenario'].plain())}"
        raise ScenarioError([Problem(mark=Mark(file=str(path)), path="", message=message)])
    if path.suffix not in SHOWN_SUFFIXES and not any(key in tree.entries for key in _SIGNS):
        # Its keys would be told as unknown fields, and they may be lines of /etc/shadow.
        message = f"this is not a scenario: it has none of {', '.join(_SIGNS)}"
        raise ScenarioError([Problem(mark=Mark(file=str(path)), path="", message=message)])
    return canonical_tree(tree)


def canonical_tree(tree: TreeNode) -> TreeNode:
    """The tree with canonical names of fields. ScenarioError where a field is given twice."""
    renamed, problems = canonical(tree)
    if problems:
        raise ScenarioError(problems)
    return renamed


def with_base(tree: TreeNode, seen: tuple[Path, ...]) -> TreeNode:
    """``tree`` laid over what it ``extends``."""
    wish = tree.entries.get("extends")
    if wish is None or wish.value is None:
        return tree
    if wish.text is None:
        message = "a file or a shipped scenario's name is needed, as in extends: base.yaml"
        raise ScenarioError([Problem(mark=wish.mark, path="extends", message=message, value=wish.plain())])
    folder = Path(wish.mark.file).parent if wish.mark.line else Path()
    path = _find(wish.text, wish.mark, folder)
    if path.resolve() in seen:
        message = f"{path} extends itself, directly or through others"
        raise ScenarioError([Problem(mark=wish.mark, path="extends", message=message, value=wish.text)])
    if len(seen) >= _DEEPEST_CHAIN:
        message = f"more than {_DEEPEST_CHAIN} documents extend one another"
        raise ScenarioError([Problem(mark=wish.mark, path="extends", message=message, value=wish.text)])
    read = _read(path)
    if not isinstance(read.value, dict):
        message = f"{clipped(str(path))!r} is not a scenario: a scenario is a block of fields"
        raise ScenarioError([Problem(mark=wish.mark, path="extends", message=message, value=wish.text)])
    base = with_base(read, (*seen, path.resolve()))
    inherited = {key: entry for key, entry in base.entries.items() if key not in _OF_ONE_DOCUMENT}
    kept = without_scaling_of_fp8(base.with_entries(inherited), [tree])
    return merged(kept, with_names_as_bases(kept, tree))


def with_overrides(tree: TreeNode, overrides: Changes) -> TreeNode:
    """``tree`` with each change of ``overrides`` laid over it; the last one wins. ScenarioError for one
    without a field."""
    if isinstance(overrides, Mapping):
        wanted = [_changed_field(str(key), value) for key, value in overrides.items()]
    else:
        wanted = [_override_tree(line) for line in _lines(overrides)]
    changes = [canonical_tree(change) for change in wanted]
    for change in changes:
        if extends := change.entries.get("extends"):
            message = "only a file says what it extends; write one that does, and change that"
            raise ScenarioError([Problem(mark=extends.mark, path="extends", message=message)])
    if any(block in change.entries for change in changes for block in _THE_JOB):
        dropped = ("title", "published")
        tree = tree.with_entries({key: entry for key, entry in tree.entries.items() if key not in dropped})
    document = tree
    tree = without_scaling_of_fp8(tree, changes)
    for change in changes:
        tree = merged(tree, with_names_as_bases(tree, change))
    # What is missing is missing in the document: no change is to blame.
    return replace(tree, mark=document.mark, key_mark=document.key_mark)


def _lines(overrides: object) -> list[str]:
    """The lines that changes are, one or several. ScenarioError where they are something else."""
    if isinstance(overrides, str):
        return [overrides]
    lines: list[str] = []
    for line in overrides if isinstance(overrides, Iterable) else [overrides]:
        if not isinstance(line, str):
            message = (
                'changes are {"field": value}, as in {"parallelism.tp": 4}, or lines field=value, '
                f"not {value_text(line)}"
            )
            raise ScenarioError([Problem(mark=Mark(file=CHANGE), path="", message=message, value=line)])
        lines.append(line)
    return lines


def _override_tree(override: str) -> TreeNode:
    """``a.b=c`` as the document ``{a: {b: c}}``."""
    field, equals, text = override.partition("=")
    mark = Mark(file=COMMAND_LINE, column=1, source_line=override)
    keys = _keys(field) if equals else None
    if keys is None:
        message = "write a change as field=value, as in parallelism.tp=4"
        raise ScenarioError([Problem(mark=mark, path="", message=message, value=override)])
    if len(keys) > _DEEPEST_FIELD:
        message = f"{len(keys):,} names in a row; a field has at most {_DEEPEST_FIELD}"
        raise ScenarioError([Problem(mark=mark, path="", message=message, value=override)])
    # Blanks in place of the field keep the columns of the value right.
    node = read_tree(" " * (len(field) + 1) + text, COMMAND_LINE, shown=override)
    return _nested(keys, replace(node, key_mark=mark), mark)


def _changed_field(field: str, value: Any) -> TreeNode:
    """``{"a.b": c}`` as the document ``{a: {b: c}}``."""
    mark, keys = Mark(file=CHANGE), _keys(field)
    if keys is None:
        message = 'write a change as {"field": value}, as in {"parallelism.tp": 4}'
        raise ScenarioError([Problem(mark=mark, path="", message=message, value=field)])
    return _nested(keys, from_plain(value, mark), mark)


def _keys(field: str) -> list[str] | None:
    """The parts of a dotted field; None where it names none."""
    keys = [key.strip() for key in field.split(".")]
    return keys if all(keys) and len(keys) <= _DEEPEST else None


def _nested(keys: list[str], node: TreeNode, mark: Mark) -> TreeNode:
    for key in reversed(keys):
        node = TreeNode(value={key: node}, mark=mark, key_mark=mark)
    return node
