"""A profile file read and checked: every mistake with its file, line, field, value and what was expected.

Knows YAML with line numbers. Does not know what the fields mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..explain import dotted, mistakes
from ..files import compose_yaml, plain, read_text
from ..shown import clipped, listed

if TYPE_CHECKING:
    from .models import ProfileFile

SUFFIXES = (".yaml", ".yml")

_MEASUREMENTS = (".csv", ".log", ".txt", ".gz", ".sqlite", ".parquet")
"""How files end of which profiles are made."""


def read_profile_file(path: Path) -> ProfileFile:
    """The profile in ``path``.

    Raises:
        ValueError: not YAML, an unknown field, a value out of range or without its unit, an unknown
            GPU, no such file; all mistakes in its fields at once, a line each.
    """
    if path.suffix in _MEASUREMENTS:
        raise ValueError(
            f"{path}: is not a profile; stepsim calibrate fit makes one of tables, logs and traces"
        )
    root = compose_yaml(read_text(path), path)
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{path}: a profile is a block of fields that begins with profile: 1")
    return _checked(plain(root, path), root, path)


def _checked(document: dict[Any, Any], root: Any, path: Path) -> ProfileFile:
    from pydantic import ValidationError

    from .models import ProfileFile

    try:
        return ProfileFile.model_validate(document)
    except ValidationError as failure:
        found = [
            ": ".join(filter(None, [f"{path}:{_line(root, field)}", clipped(dotted(field)), said]))
            for field, said in mistakes(failure, ProfileFile)
        ]
        raise ValueError(listed(found)) from None


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
