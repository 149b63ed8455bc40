"""Mistakes in a scenario, explained as ``hardware/explain.py`` does, with hints of its own.

They say in which block a field belongs, and which blocks may stand in place of a word.

Does not know which blocks a scenario has beyond what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from ...hardware import explain
from ...hardware.catalogue import unknown_name
from ...hardware.explain import dotted, field_path
from .aliases import HINTS, home_of
from .errors import Mark, Problem
from .finding import Inconsistent
from .software.software import GROUP_OF, Software

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_BEYOND_WORDS: dict[str | int, str] = {
    "routing": "or a block, {kind: zipf, exponent: 0.5} or {kind: counts, file: counts.json}",
    "recompute": "or a block of kind full, modules or operators, as in {kind: full, layers: 2}",
    "precision": "how fp8 is scaled is software.kernels.fp8_scaling: delayed, current or blockwise",
}
"""Fields whose word is not all there is to say: what else may stand there, or where the rest is said."""


def explained(error: ErrorDetails, part: type, blocks: dict[str, set[str]]) -> str:
    """One message for one pydantic error found in ``part``; ``blocks`` holds the fields of every block."""
    path = explain.field_path(error)
    own = GROUP_OF if part is Software and len(path) == 1 else {}  # a field may stand there without its group
    message = explain.explained(error, part, lambda key, known: unknown_key(key, [*known, *own], blocks))
    block = _BEYOND_WORDS.get(path[-1]) if path else None
    return f"{message}; {block}" if block and error["type"] == "literal_error" else message


def unknown_key(key: str, known: Sequence[str], blocks: dict[str, set[str]]) -> str:
    """The message for a key that its block does not have: where it belongs, or the nearest one there."""
    if key in HINTS:
        return f"there is no such field; {HINTS[key]}"
    home = home_of(key, blocks)
    if home:
        return f"this field belongs elsewhere: {home}"
    return str(unknown_name("field", key, known))


def problems_of(failure: ValidationError, mark: Mark, part: type[BaseModel]) -> list[Problem]:
    """What pydantic found in a scenario that is not a document, and every contradiction between its parts."""
    found = []
    for error in explain.errors_of(failure):
        reason = error.get("ctx", {}).get("error")
        if isinstance(reason, Inconsistent):
            found += [
                Problem(mark=mark, path=dotted(one.path), message=one.message, between=True)
                for one in reason.findings
            ]
        else:
            message = explained(error, part, {})
            found.append(Problem(mark=mark, path=dotted(field_path(error)), message=message))
    return found
