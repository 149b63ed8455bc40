"""A profile file read and checked: every mistake with its file, line, field, value and what was expected.

Knows YAML with line numbers, and pydantic's errors in plain words. Does not know what the fields mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..catalogue import unknown_name
from ..files import compose_yaml, plain, read_text
from ..gpus import gpu_names
from ..shown import clipped, listed

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from .models import ProfileFile

SUFFIXES = (".yaml", ".yml")
_NEEDED = {
    "missing": "this field is required",
    "string_type": "text is needed",
    "float_parsing": "a number is needed",
    "float_type": "a number is needed",
    "int_parsing": "a whole number is needed",
    "tuple_type": "a list is needed",
    "dict_type": "a block of fields is needed",
    "model_type": "a block of fields is needed",
}
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def read_profile_file(path: Path) -> ProfileFile:
    """The profile in ``path``.

    Raises:
        ValueError: not YAML, an unknown field, a value out of range or without its unit, an unknown
            GPU, no such file; all mistakes of the file at once, a line each.
    """
    root = compose_yaml(read_text(path), path)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{path}: a profile is a block of fields that begins with profile: 1")
    if repeated := _repeated(root, str(path)):
        raise ValueError(listed(repeated))
    document = plain(root, path)
    return _checked(document, root, path)


def _checked(document: dict[Any, Any], root: Any, path: Path) -> ProfileFile:
    from pydantic import ValidationError

    from .models import CPU, ProfileFile

    try:
        profile = ProfileFile.model_validate(document)
    except ValidationError as failure:
        found = [_problem(error, root, path) for error in failure.errors(include_url=False)]
        raise ValueError(listed(found)) from None
    known = (*gpu_names(), CPU)
    if profile.gpu not in known:
        where = f"{path}:{_line(root, ('gpu',))}: gpu"
        raise ValueError(f"{where}: {unknown_name('GPU', profile.gpu, known)}")
    return profile


def _problem(error: ErrorDetails, root: Any, path: Path) -> str:
    place = tuple(part for part in error["loc"] if part != "[key]")
    return f"{path}:{_line(root, place)}: {_dotted(place)}{clipped(_words(error, place))}"


def _words(error: ErrorDetails, place: Sequence[str | int]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return str(unknown_name("field", str(place[-1]), _fields_at(place[:-1])))
    if kind == "literal_error":
        known = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return str(unknown_name("choice", str(value), known))
    if kind == "value_error":
        return str(context["error"])
    if kind in _BOUNDS:
        return f"{value} is out of range; it must be {_BOUNDS[kind].format(**context)}"
    return f"{_NEEDED.get(kind, error['msg'])}" + ("" if kind == "missing" else f", not {value!r}")


def _fields_at(place: Sequence[str | int]) -> tuple[str, ...]:
    """Fields of the block at ``place``, as the models have them."""
    from . import models

    blocks: dict[str, type[BaseModel]] = {
        "memory": models.MemoryBlock,
        "gemm": models.GemmBlock,
        "attention": models.AttentionBlock,
        "collectives": models.CollectiveBlock,
        "rates": models.RateBlock,
        "provenance": models.ProvenanceBlock,
    }
    names = [part for part in place if part in blocks]
    block = blocks[str(names[-1])] if names else models.ProfileFile
    return tuple(block.model_fields)


def _dotted(place: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    return f"{text}: " if text else ""


def _line(root: Any, place: Sequence[str | int]) -> int:
    """The line of the field at ``place``, or of the last block on the way to it that exists."""
    node, line = root, root.start_mark.line
    for part in place:
        if isinstance(node, yaml.MappingNode):
            entry = next(((k, v) for k, v in node.value if str(k.value) == str(part)), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
        else:
            break
    return int(line) + 1


def _repeated(node: Any, file: str) -> list[str]:
    """A message for every key that stands twice in its block: YAML would take the last in silence."""
    if isinstance(node, yaml.SequenceNode):
        return [message for item in node.value for message in _repeated(item, file)]
    if not isinstance(node, yaml.MappingNode):
        return []
    found, seen = [], set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            found.append(f"{file}:{key.start_mark.line + 1}: a key must be text, not a block or a list")
            continue
        if key.value in seen:
            found.append(
                f"{file}:{key.start_mark.line + 1}: {key.value}: this key is given twice; keep one of them"
            )
        seen.add(key.value)
        found += _repeated(value, file)
    return found
