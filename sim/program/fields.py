"""Typed access to the fields of a JSON object, with messages that say where it stands and what belongs there.

Knows JSON's types; knows no program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...hardware.catalogue import unknown_name


class Malformed(ValueError):
    """A field that is missing, of the wrong type, or refers to nothing."""


_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Entry:
    """A JSON object, and where it stands in its file (``class 2, op 17``)."""

    where: str
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, where: str, value: object, known: Iterable[str]) -> Entry:
        """Raises Malformed when ``value`` is not an object or has a field that is not ``known``."""
        if not isinstance(value, dict):
            raise Malformed(f"{where}: expected an object, got {_shown(value)}")
        known = tuple(known)
        for name in value:
            if name not in known:
                raise Malformed(f"{where}: {unknown_name('field', name, known)}")
        return cls(where, value)

    def text(self, name: str, default: str = _REQUIRED) -> str:
        value = self._get(name, default, "text")
        if not isinstance(value, str) or (not value and value is not default):
            raise self.wrong(name, "text that is not empty", value)
        return value

    def number(self, name: str, default: float = _REQUIRED) -> float:
        value = self._get(name, default, "a number")
        if type(value) not in (int, float):
            raise self.wrong(name, "a number", value)
        return float(value)

    def whole(self, name: str, default: int = _REQUIRED, *, least: int = 0) -> int:
        value = self._get(name, default, "a whole number")
        if type(value) is not int or value < least:
            raise self.wrong(name, f"a whole number of at least {least}", value)
        return value

    def flag(self, name: str) -> bool:
        """The field ``name``, true or false; False where it is absent."""
        value = self._get(name, False, "true or false")
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def items(self, name: str, default: list[Any] = _REQUIRED) -> list[Any]:
        value = self._get(name, default, "a list")
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def table(self, name: str) -> dict[str, Any]:
        """The field ``name``, an object; empty where it is absent."""
        value = self._get(name, {}, "an object")
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        return value

    def numbers(self, name: str, default: list[int] = _REQUIRED) -> tuple[int, ...]:
        """The field ``name``, a list of whole numbers of either sign."""
        value = self.items(name, default)
        if any(type(number) is not int for number in value):
            raise self.wrong(name, "a list of whole numbers", value)
        return tuple(value)

    def wrong(self, name: str, expected: str, got: object) -> Malformed:
        """The error for a field of this entry."""
        return Malformed(f"{self.where}: {name}: expected {expected}, got {_shown(got)}")

    def _get(self, name: str, default: object, expected: str) -> Any:
        value = self.fields.get(name, default)
        if value is _REQUIRED:
            raise Malformed(f"{self.where}: {name} is missing: expected {expected}")
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
