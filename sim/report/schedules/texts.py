"""What people should know about each schedule, in words: read from texts.yaml, which has no figures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

from ....hardware.files.shipped_yaml import load_shipped


@dataclass(frozen=True, kw_only=True)
class Words:
    """One schedule in words. ``bubble`` and ``memory`` are formulas where one is known."""

    what: str
    source: str
    bubble: str
    memory: str
    communication: str
    use: str


def words_of(name: str) -> Words:
    """Raises ValueError when nobody has written about the schedule yet."""
    known = texts()
    if name not in known:
        wanted = ", ".join(field.name for field in fields(Words))
        raise ValueError(f"texts.yaml says nothing about the schedule {name}; give it {wanted}")
    return known[name]


@cache
def texts() -> dict[str, Words]:
    """All texts by the schedule's name."""
    document = load_shipped(files(__package__).joinpath("texts.yaml").read_text(encoding="utf-8"))
    return {name: Words(**entry) for name, entry in document.items()}
