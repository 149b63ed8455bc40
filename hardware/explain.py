"""pydantic's errors in our words: what stands there, what was expected, the nearest known name.

Knows pydantic's error types, of models and of dataclasses. Does not know which fields there are, nor where
in a file a value stood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from .catalogue import unknown_name
from .shown import clipped, value_text

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

FieldPath = tuple[str | int, ...]

MOST = 20
"""Mistakes of one document that are explained: looking for a near name takes a millisecond, and more are
never shown."""

_LONGEST = 1000
"""Characters of one message: a known name and all others of its kind fit."""

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""pydantic's names for a key that its block does not have: of a model, of a dataclass."""

_NEEDED = {
    "bool_type": "true or false is needed",
    "string_type": "text is needed",
    "float_type": "a number is needed",
    "float_parsing": "a number is needed",
    "finite_number": "a finite number is needed",
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "tuple_type": "a list is needed, as in [1, 2]",
    "list_type": "a list is needed, as in [1, 2]",
    "dict_type": "a block of fields is needed",
    "model_type": "a block of fields is needed",
    "model_attributes_type": "a block of fields is needed",
    "dataclass_type": "a block of fields is needed",
    "invalid_key": "the name of a field is text",
}
_BOUNDS = {
    "greater_than": ("too small", "more than {gt}"),
    "greater_than_equal": ("too small", "{ge} or more"),
    "less_than": ("too large", "less than {lt}"),
    "less_than_equal": ("too large", "{le} or less"),
}
_LENGTHS = {"too_short": "min_length", "too_long": "max_length"}


def _unknown_field(key: str, known: Sequence[str]) -> str:
    return str(unknown_name("field", key, known))


def errors_of(failure: ValidationError) -> list[ErrorDetails]:
    """The errors that pydantic found, without its second one for a list whose items are all wrong: that it is
    too short."""
    return [
        error
        for error in failure.errors(include_url=False)
        if error["type"] != "too_short" or len(error["input"]) < error["ctx"]["min_length"]
    ]


def mistakes(failure: ValidationError, part: type) -> list[tuple[FieldPath, str]]:
    """Each mistake that pydantic found in a ``part``: its field, and what is wrong there."""
    return [
        (field_path(error), clipped(explained(error, part), _LONGEST) if number < MOST else error["msg"])
        for number, error in enumerate(errors_of(failure))
    ]


def lines(where: str, failure: ValidationError, part: type) -> list[str]:
    """Each mistake that pydantic found in a ``part`` as a line: ``where``, the field, what is wrong."""
    found = mistakes(failure, part)
    return [": ".join(filter(None, [where, clipped(dotted(field)), said])) for field, said in found]


def field_path(error: ErrorDetails) -> FieldPath:
    """The path of a field in its block: pydantic's location without branches of unions (ours start with
    ``~``) and keys."""
    place, own = (
        error["loc"],
        len(error["loc"]) - (error["type"] in UNKNOWN),
    )  # an unknown key may look so too
    ours = tuple(part for part in place[:own] if part != "[key]" and not str(part).startswith("~"))
    return (*ours, *place[own:])


def dotted(path: FieldPath) -> str:
    """``("parallelism", "stage_split", 2)`` as ``parallelism.stage_split[2]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def explained(
    error: ErrorDetails, part: type, unknown: Callable[[str, Sequence[str]], str] = _unknown_field
) -> str:
    """One message for one error found in ``part``; ``unknown`` words an unknown key, given the known ones."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = field_path(error)
    if kind == "missing":
        return _missing(part, path)
    if kind in UNKNOWN:
        return unknown(str(path[-1]), sorted(_fields(_block_of(part, path))))
    if kind == "literal_error":
        return _not_among(_last_word(path), value, str(context["expected"]))
    if kind == "value_error":
        message = str(context["error"])
        return f"{message}, not {value_text(value)}" if message.endswith("is needed") else message
    if kind in _BOUNDS:
        verdict, bound = _BOUNDS[kind]
        limits = {key: _plain(limit) for key, limit in context.items()}
        return f"{value_text(_plain(value))} is {verdict}; it must be {bound.format(**limits)}"
    if kind in _LENGTHS:
        count = context[_LENGTHS[kind]]
        bound = {"too_short": "at least ", "too_long": "at most "}[kind]
        return f"{bound}{count} {'entry is' if count == 1 else 'entries are'} needed, not {value_text(value)}"
    if kind in _NEEDED:
        return f"{_NEEDED[kind]}, not {value_text(value)}"
    return f"{error['msg']}, not {value_text(value)}"


def _plain(value: Any) -> Any:
    """A whole number without a point behind it: 10 for 10.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def _missing(part: type, path: FieldPath) -> str:
    models = getattr(part, "model_fields", {})
    info = models.get(str(path[0])) if len(path) == 1 else None
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
    return f"{value_text(value)} is not among the choices {expected}"


def _fields(block: type) -> dict[str, Any]:
    """The annotation of each field of a model or a dataclass, under the name that files write."""
    if is_dataclass(block):
        return get_type_hints(block)
    models: dict[str, Any] = block.model_fields  # type: ignore[attr-defined]  # a model, if no dataclass
    return {info.alias or name: info.annotation for name, info in models.items()}


def _block_of(part: type, path: FieldPath) -> type:
    """The block that holds the last key of ``path``; indexes and names in a mapping are no fields of it."""
    for key in path[:-1]:
        inner = _blocks_in(_fields(part).get(str(key)))
        part = inner[0] if inner else part
    return part


def _blocks_in(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and (is_dataclass(annotation) or hasattr(annotation, "model_fields")):
        return [annotation]
    return [block for argument in getattr(annotation, "__args__", ()) for block in _blocks_in(argument)]
