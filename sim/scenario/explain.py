"""pydantic's errors in our words: what stands there, what was expected, the nearest known name.

Knows pydantic's error types. Does not know which blocks a scenario has beyond what it is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ...hardware.catalogue import unknown_name
from .aliases import HINTS, home_of
from .errors import FieldPath, Mark, Problem, dotted
from .finding import Inconsistent

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_NEEDED = {
    "bool_type": "true or false is needed",
    "string_type": "text is needed",
    "float_type": "a number is needed",
    "finite_number": "a finite number is needed",
    "int_type": "a whole number is needed",
    "tuple_type": "a list is needed, as in [1, 2]",
    "model_type": "a block of fields is needed",
    "model_attributes_type": "a block of fields is needed",
}
_BOUNDS = {
    "greater_than": ("too small", "more than {gt}"),
    "greater_than_equal": ("too small", "{ge} or more"),
    "less_than": ("too large", "less than {lt}"),
    "less_than_equal": ("too large", "{le} or less"),
}


_BLOCKS_TOO: dict[str | int, str] = {
    "routing": "or a block, {kind: zipf, exponent: 0.5} or {kind: counts, file: counts.json}",
    "recompute": "or a block of kind full, modules or operators, as in {kind: full, layers: 2}",
}
"""Fields that are a word or a block: what the block would be."""


def field_path(error: ErrorDetails) -> FieldPath:
    """Where in the block: pydantic's location without the names of union branches (ours start with ``~``)."""
    return tuple(part for part in error["loc"] if not str(part).startswith("~"))


def explained(error: ErrorDetails, part: type[BaseModel], blocks: dict[str, set[str]]) -> str:
    """One message for one pydantic error found in ``part``; ``blocks`` holds the fields of every block."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = field_path(error)
    if kind == "missing":
        return _missing(part, path)
    if kind == "extra_forbidden":
        return unknown_key(str(path[-1]), sorted(_fields_beside(part, path)), blocks)
    if kind == "literal_error":
        message = _not_among(_last_word(path), value, str(context["expected"]))
        return f"{message}; {_BLOCKS_TOO[path[-1]]}" if path[-1:] and path[-1] in _BLOCKS_TOO else message
    if kind == "value_error":
        message = str(context["error"])
        return f"{message}, not {value!r}" if message.endswith("is needed") else message
    if kind in _BOUNDS:
        verdict, bound = _BOUNDS[kind]
        limits = {key: _plain(limit) for key, limit in context.items()}
        return f"{_plain(value)} is {verdict}; it must be {bound.format(**limits)}"
    if kind in _NEEDED:
        return f"{_NEEDED[kind]}, not {value!r}"
    return f"{error['msg']}, not {value!r}"


def _plain(value: Any) -> Any:
    """A whole number without a point behind it: 10 for 10.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def unknown_key(key: str, known: Sequence[str], blocks: dict[str, set[str]]) -> str:
    """The message for a key that its block does not have: where it belongs, or the nearest one there."""
    if key in HINTS:
        return f"there is no such field; {HINTS[key]}"
    home = home_of(key, blocks)
    if home:
        return f"this field belongs elsewhere: {home}"
    return str(unknown_name("field", key, known))


def _missing(part: type[BaseModel], path: FieldPath) -> str:
    info = part.model_fields.get(str(path[0])) if len(path) == 1 else None
    if info is None or not info.description:
        return "this field is required"
    example = f", such as {info.examples[0]}" if info.examples else ""
    return f"this field is required ({info.description}{example})"


def _last_word(path: FieldPath) -> str:
    """What the field is, in a sentence: ``stage split`` for ``parallelism.stage_split``."""
    words = [str(part).replace("_", " ") for part in path if isinstance(part, str)]
    return words[-1] if words else "choice"


def _not_among(what: str, value: Any, expected: str) -> str:
    names = re.findall(r"'([^']*)'", expected)
    if names and isinstance(value, str):
        return str(unknown_name(what, value, names))
    return f"{value!r} is not among the choices {expected}"


def _fields_beside(part: type[BaseModel], path: FieldPath) -> set[str]:
    """Fields of the block that holds the last key of ``path``."""
    for key in path[:-1]:
        info = part.model_fields.get(str(key))
        inner = _models_in(info.annotation) if info else []
        if not inner:
            break
        part = inner[0]
    return set(part.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]


def problems_of(failure: ValidationError, mark: Mark, part: type[BaseModel]) -> list[Problem]:
    """What pydantic found in a scenario that is no document, and every contradiction between its parts."""
    found = []
    for error in failure.errors(include_url=False):
        reason = error.get("ctx", {}).get("error")
        if isinstance(reason, Inconsistent):
            found += [
                Problem(mark=mark, path=dotted(one.path), message=one.message) for one in reason.findings
            ]
        else:
            message = explained(error, part, {})
            found.append(Problem(mark=mark, path=dotted(field_path(error)), message=message))
    return found
