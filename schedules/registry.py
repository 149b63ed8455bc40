"""Schedules and algorithms found by name: every module of a folder that ends in ``SCHEDULE = ...`` or so.

Knows modules and close names; does not know what they hold.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, Protocol, TypeVar

from .unknown import UnknownEntry


class Named(Protocol):
    """What is found by its ``name``."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """The entries of one kind: what each module of a package has as its ``attribute``.

    ``what`` is how messages call one. ``folders`` are the package's ``__path__``.
    """

    def __init__(
        self, what: str, package: str, folders: list[str], attribute: str, kind: type[Entry]
    ) -> None:
        self.what, self.package, self.folders = what, package, folders
        self._attribute, self._kind = attribute, kind
        self._found = cache(self._search)
        self._in_its_file = cache(self._alone)
        self._modules = cache(lambda folders: tuple(found.name for found in iter_modules(folders)))

    def add(self, folder: str) -> None:
        """Take the modules of another folder, too: they are imported as if they stood in the package."""
        self.folders.append(folder)

    def get(self, name: str) -> Entry:
        """The entry of that name. Raises UnknownEntry with the nearest and all known names."""
        if (alone := self.alone(name)) is not None:
            return alone
        known = self._found(tuple(self.folders))
        if name in known:
            return known[name]
        raise UnknownEntry(self.what, name, known)

    def alone(self, name: str) -> Entry | None:
        """The entry of that name if its module is called like it, found without importing the others."""
        return self._in_its_file(tuple(self.folders), name)

    def names(self) -> tuple[str, ...]:
        """All names, in alphabetical order."""
        return tuple(self._found(tuple(self.folders)))

    def _alone(self, folders: tuple[str, ...], name: str) -> Entry | None:
        plain = name.replace("-", "_")
        if plain not in self._modules(folders):
            return None
        entry = self._in(plain)
        return entry if entry is not None and entry.name == name else None

    def _search(self, folders: tuple[str, ...]) -> dict[str, Entry]:
        entries = map(self._in, self._modules(folders))
        return {one.name: one for one in sorted(filter(None, entries), key=lambda one: one.name)}

    def _in(self, module: str) -> Entry | None:
        found = getattr(import_module(f"{self.package}.{module}"), self._attribute, None)
        return found if isinstance(found, self._kind) else None
