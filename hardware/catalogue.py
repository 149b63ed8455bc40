"""Records by name, read from YAML files, and the refusal of a name that none of them has.

Knows YAML and close names; does not know what the entries mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from .files.shipped_yaml import load_shipped
from .shown import value_text

_LONGEST = 100
"""Characters of a name that a message repeats, and that are compared with known ones."""

Record = TypeVar("Record")


class Table(Generic[Record]):
    """The records of one kind: entries of a YAML file by name, in its order, and of files that are added.

    ``what`` is how messages call one. ``made(name, **fields)`` makes the record of an entry.
    """

    def __init__(self, what: str, package: str, file_name: str, made: Callable[..., Record]) -> None:
        self.what = what
        self.files: tuple[Path, ...] = (Path(str(files(package))) / file_name,)
        self._read = lru_cache(maxsize=1)(lambda paths: _records(paths, made))

    def add(self, path: str | Path) -> None:
        """Take the entries of another file, too, whose names are all new."""
        self.files = (*self.files, Path(path))

    def records(self) -> dict[str, Record]:
        """All records by name."""
        found: dict[str, Record] = self._read(self.files)
        return found

    def names(self) -> tuple[str, ...]:
        """Every name, in the order of the files."""
        return tuple(self.records())

    def get(self, name: str) -> Record:
        """The record of that name. Raises UnknownName with the nearest name and all of them."""
        known = self.records()
        if name not in known:
            raise unknown_name(self.what, name, known)
        return known[name]


def _records(paths: Iterable[Path], made: Callable[..., Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for path in paths:
        for name, fields in read(path).items():
            if name in found:
                raise ValueError(f"{path}: {name}: another file has an entry of that name")
            found[name] = made(name=name, **fields)
    return found


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a YAML file by name, in the order of the file."""
    entries: dict[str, dict[str, Any]] = load_shipped(path.read_text(encoding="utf-8"))
    return entries


class UnknownName(ValueError):
    """No ``what`` has this ``name``. ``known`` are the names that exist, ``nearest`` is one of them or None;
    ``advice`` is a sentence for users who need something else."""

    def __init__(
        self, what: str, name: str, known: tuple[str, ...], nearest: str | None, advice: str = ""
    ) -> None:
        self.what, self.name, self.known, self.nearest, self.advice = what, name, known, nearest, advice
        hint = f" Did you mean {nearest}?" if nearest else ""
        hint += f" {advice}" if advice else ""
        super().__init__(f"no {what} is called {value_text(name, _LONGEST)}.{hint} Known: {', '.join(known)}")

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return UnknownName, (self.what, self.name, self.known, self.nearest, self.advice)

    def advised(self, advice: str, also: Iterable[str]) -> UnknownName:
        """The error with ``advice``; the nearest name may be one of those that are known ``also``."""
        nearest = unknown_name(self.what, self.name, (*self.known, *also)).nearest if also else self.nearest
        return UnknownName(self.what, self.name, self.known, nearest, advice)


def unknown_name(
    what: str, name: str, known: Iterable[str], shorter: Mapping[str, str] = MappingProxyType({})
) -> UnknownName:
    """The error for a name that is not in the catalogue: the nearest name first, then all of them.

    ``shorter`` are names that people use, in lower case, and what they mean.
    """
    names = tuple(known)
    by_lower_case = {**shorter, **{known_name.lower(): known_name for known_name in names}}
    nearest = get_close_matches(str(name)[:_LONGEST].lower(), by_lower_case, n=1, cutoff=0.4)
    return UnknownName(what, name, names, by_lower_case[nearest[0]] if nearest else None)
