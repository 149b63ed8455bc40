"""Settings of another framework by name, each with its place, and which of them somebody has read.

What a user gives beside the files (``--given NAME=VALUE``) wins over them. Values that a script leaves open
hold ``UNKNOWN`` marks: taking one asks for the variable by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....hardware.shown import clipped
from .draft import Draft
from .plain_names import plain_name

OPEN, CLOSE = "\ue000", "\ue001"
"""Around the name of a variable whose value nobody knows, inside the text that it would be a part of."""

UNKNOWN = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")

GIVEN = "--given"
LONGEST_INTEGER = 18
"""Digits; no size of a job has more."""

MOST = 10**12
"""Of any size; those of a job have limits of their own in a scenario."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value and where it stands. ``line`` 0: no line of a file."""

    value: Any
    file: str
    name: str
    line: int = 0

    @property
    def origin(self) -> str:
        """``train.sh:12 --num-layers 32`` for a comment."""
        if self.file == GIVEN:
            return f"{GIVEN} {self.name}={_short(self.value)}"
        place = f"{self.file}:{self.line}" if self.line else self.file
        shown = "" if self.value is True else f" {_short(self.value)}"
        return f"{place} {self.name}{shown}"

    def refuse(self, draft: Draft, why: str) -> None:
        """Refuse it in ``draft``, at its line of its own file."""
        there = self.line if self.file != GIVEN else 0
        file = self.file if there else ""
        draft.refuse(self.name, why, line=there, value=self.value, file=file)


def _short(value: Any) -> str:
    return clipped(" ".join(str(value).split()), 60)


@dataclass(kw_only=True)
class Given:
    """What a user gives beside the files; ``used`` are those that somebody has read."""

    values: Mapping[str, str]
    used: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        """The value of that name, marked as used."""
        for key, value in self.values.items():
            if plain_name(key) == plain_name(name):
                self.used.add(key)
                return value
        return None

    def unused(self) -> list[str]:
        """Names that nothing asked for."""
        return [key for key in self.values if key not in self.used]


@dataclass(kw_only=True)
class Settings:
    """The settings of a run, what is given above them, and the draft that questions go to."""

    found: dict[str, Setting]
    given: Given
    draft: Draft
    read: set[str] = field(default_factory=set)

    def setting(self, *names: str) -> Setting | None:
        """The setting under the first of these names that is set; all of them count as read. Of a dotted name
        (``training.seq_len``) the last part alone may be given."""
        self.read.update(map(plain_name, names))
        for name in names:
            value = self.given.get(name)
            if value is None and "." in name:
                value = self.given.get(name.rpartition(".")[2])
            if value is not None:
                return Setting(value=_plain_value(value), file=GIVEN, name=name)
        for name in names:
            found = self.found.get(plain_name(name))
            if found is not None and found.value is not None:
                return found
        return None

    def has(self, *names: str) -> bool:
        """Whether one of these is set."""
        return self.setting(*names) is not None

    def origin(self, *names: str, default: str = "") -> str:
        """Where the value comes from; ``default`` where nobody says it."""
        found = self.setting(*names)
        return found.origin if found else default

    def put(self, path: str, value: Any, *names: str, default: str = "") -> None:
        """Put a field of the scenario, whose value is from the first of these names that is set; ``default``
        says where it is from if none is. None leaves the field out."""
        self.draft.put(path, value, self.origin(*names, default=default))

    def text(self, *names: str, default: str | None = None) -> str | None:
        """The value of the first of ``names`` that is set, as text; ``default`` where none is. A value that
        is a shell variable which nobody has set becomes a question of the draft, and counts as not set."""
        found = self.setting(*names)
        if found is None or self.asks(found):
            return default
        return str(found.value).strip()

    def integer(self, *names: str, default: int | None = None, least: int = 0) -> int | None:
        """The value as a whole number of ``least`` or more; anything else is refused."""
        found = self.setting(*names)
        if found is None or self.asks(found):
            return default
        value: Any = _number(found.value) if isinstance(found.value, str) else found.value
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < MOST:
            self._wrong(found, f"a whole number of {least} or more is needed")
            return default
        return value

    def number(self, *names: str, default: float | None = None) -> float | None:
        """The value as a number; anything else is refused."""
        found = self.setting(*names)
        if found is None or self.asks(found):
            return default
        value = _number(found.value) if isinstance(found.value, str) else found.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._wrong(found, "a number is needed")
            return default
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Whether a switch is on. A bare flag is; ``true`` and ``1`` are."""
        found = self.setting(*names)
        if found is None or self.asks(found):
            return default
        value = found.value
        if isinstance(value, str):
            value = {"true": True, "1": True, "yes": True, "on": True, "": True}.get(
                value.lower(), {"false": False, "0": False, "no": False, "off": False}.get(value.lower())
            )
        if value in (0, 1):
            return bool(value)
        self._wrong(found, "true or false is needed")
        return default

    def choice(self, *names: str, among: Mapping[str, Any], default: Any = None) -> Any:
        """What the value means by a table; a value that is not in it is refused."""
        found = self.setting(*names)
        if found is None or self.asks(found):
            return default
        key = str(found.value).strip().lower()
        if key not in among:
            self._wrong(found, f"it must be one of {', '.join(among)}")
            return default
        return among[key]

    def refuse(self, name: str, why: str) -> None:
        """Refuse the setting of that name, at its place."""
        found = self.setting(name)
        if found is None:
            self.draft.refuse(name, why)
        else:
            found.refuse(self.draft, why)

    def refuse_if(self, name: str, why: str, *, harmless: Iterable[Any] = (None, False, "", 0)) -> None:
        """Refuse a setting unless it has a value that changes nothing."""
        found = self.setting(name)
        if found is None:
            return
        value = found.value
        number = _number(value) if isinstance(value, str) else None
        value = value if number is None else number
        # 1 is True to Python, and a switch that is on is not the harmless number 1.
        if any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in harmless):
            return
        if not self.asks(found):
            self.refuse(name, why)

    def unread(self) -> list[tuple[str, Setting]]:
        """Settings that nobody asked for, by plain name."""
        return [(name, one) for name, one in self.found.items() if name not in self.read]

    def asks(self, found: Setting) -> bool:
        """Whether the value is open, and has been asked for."""
        words = found.value if isinstance(found.value, list) else [found.value]
        names = [name for word in words if isinstance(word, str) for name in UNKNOWN.findall(word)]
        for name in dict.fromkeys(names):
            self.draft.ask(
                name, f"{found.name} takes its value from {name}, which the file does not set", "1"
            )
        return bool(names)

    def _wrong(self, found: Setting, needed: str) -> None:
        found.refuse(self.draft, f"{clipped(repr(found.value), 80)}: {needed}")


def _number(text: str) -> int | float | None:
    """A number as people write it in these files: ``1e9``, ``126_953_125``, ``0.9``."""
    plain = text.strip().replace("_", "")
    if len(plain) > 2 * LONGEST_INTEGER:
        return None
    if re.fullmatch(r"[-+]?[0-9]+", plain):
        return int(plain)
    if re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?", plain):
        return float(plain)
    return None


def _plain_value(text: str) -> Any:
    """A given value as a file would hold it."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = _number(text)
    return text if number is None else number
