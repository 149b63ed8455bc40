"""Every field of a scenario as the page shows it: its path, its help, how it is entered.

Knows how the JSON Schema of the language says that, and reads it off; what a field means stands there alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .documents import FILE_FIELDS

DEEPEST = 3
"""Blocks within blocks that the page opens; deeper ones are entered as JSON."""

_LEFT_OUT = (
    *FILE_FIELDS,
    "name",
    "title",
    "published",
    "model.preset",
    "software.preset",
    "calibration",
    "cluster.measured_network",
)
"""Fields that the page has elsewhere, or not."""

_BOUNDS = {"minimum": "min", "maximum": "max"}
_TYPES = ("integer", "number", "boolean")

Schema = Mapping[str, Any]


def fields() -> list[dict[str, Any]]:
    """``path``, ``block``, ``help``, ``kind`` (integer, number, boolean, choice, text, json) and, where there
    are any, ``choices``, ``example``, ``default``, ``min`` and ``max``; in the order of the language.
    """
    from ..sim.scenario.schema import json_schema

    schema = json_schema()
    return list(_fields(schema, schema["$defs"], "", 0))


def _fields(block: Schema, definitions: Schema, path: str, depth: int) -> Iterator[dict[str, Any]]:
    for name, field in block.get("properties", {}).items():
        at = f"{path}.{name}".removeprefix(".")
        if at in _LEFT_OUT or str(field.get("description", "")).startswith(("another name of", "beside ")):
            continue
        inner = [one for one in _forms(field, definitions) if "properties" in one]
        if inner and depth < DEEPEST and not _own(at):
            if any("properties" not in one for one in _forms(field, definitions)):
                yield _shown(at, name, field, definitions, path)  # a name stands for the whole block
            if len(inner) == 1:
                yield from _fields(inner[0], definitions, at, depth + 1)
        else:
            yield _shown(at, name, field, definitions, path)


def _own(path: str) -> bool:
    """Hardware of one's own: the page names what ships."""
    return path in ("cluster.gpu", "cluster.interconnect", "cluster.node")


def _forms(field: Schema, definitions: Schema) -> list[Schema]:
    """What may stand in a field: each alternative, references followed, null left out."""
    found: list[Schema] = []
    for one in field.get("anyOf") or field.get("oneOf") or [field]:
        if "$ref" in one:
            found.append(definitions[one["$ref"].rsplit("/", 1)[1]])
        elif "anyOf" in one or "oneOf" in one:
            found += _forms(one, definitions)
        elif one.get("type") != "null":
            found.append(one)
    return found


def _shown(path: str, name: str, field: Schema, definitions: Schema, block: str) -> dict[str, Any]:
    forms = [one for one in _forms(field, definitions) if "properties" not in one]
    choices = [
        choice for one in forms for choice in one.get("enum", [one["const"]] if "const" in one else [])
    ]
    kinds = {one.get("type") for one in forms}
    shown: dict[str, Any] = {"path": path, "block": block, "name": name, "kind": _kind(kinds, choices)}
    shown["help"] = field.get("description", "")
    if choices:
        shown["choices"] = choices
    examples = [example for one in (field, *forms) for example in one.get("examples", ())]
    if examples:
        shown["example"] = examples[0]
    default = field.get("default")
    if isinstance(default, str | int | float) and default != "":
        shown["default"] = default
    for one in forms:
        shown |= {_BOUNDS[key]: one[key] for key in _BOUNDS if key in one}
    return shown


def _kind(types: set[Any], choices: list[Any]) -> str:
    if types == {"string"} or not types:
        return "choice" if choices else "text"
    if len(types) == 1 and (found := next(iter(types))) in _TYPES:
        return str(found)
    return "json" if types & {"array", "object"} or None in types else "text"
