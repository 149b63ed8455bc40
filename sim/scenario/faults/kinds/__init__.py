"""One file a kind of fault, found by its name: the vocabulary that steps and campaigns share."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from .....hardware.catalogue import unknown_name
from .kind import FaultKind


@cache
def kind_names() -> tuple[str, ...]:
    """Every kind, in alphabetical order."""
    here = Path(__file__).parent
    return tuple(sorted(path.stem for path in here.glob("*.py") if path.stem not in ("__init__", "kind")))


@cache
def get_kind(name: str) -> FaultKind:
    """The kind of that name.

    Raises:
        ValueError: no such kind; the message has the nearest one and all of them.
    """
    if name not in kind_names():
        raise unknown_name("kind of fault", name, kind_names())
    kind = import_module(f"{__name__}.{name}").KIND
    assert isinstance(kind, FaultKind)
    return kind
