"""Which files a command has read and which it writes, by identity, so that no input is ever overwritten.

A file is its device and inode: hard links, symbolic links and other spellings of a path are one file. A scope
lasts as long as one command; outside a scope nothing is recorded and everything may be written, because a
program that calls the package may well read a file, change it and write it back. A scope is a context
variable, so that threads and forked children see it too, each its own copy from then on.

Where documents come from people who may not read this machine's files, ``shipped_files_only`` refuses all but
the package's own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from .errors import FileError, OverwriteError

Identity = tuple[int, int]


@dataclass(frozen=True)
class _Scope:
    """Names of the files read and of those to be written; ``paths`` is for outputs that do not exist yet."""

    read: dict[Identity, str] = field(default_factory=dict)
    outputs: dict[Identity, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)


_SCOPE: ContextVar[_Scope | None] = ContextVar("files of a command", default=None)
_SHIPPED_ONLY: ContextVar[bool] = ContextVar("shipped files only", default=False)

_PACKAGE = Path(__file__).resolve().parents[2]
_SHIPPED = ("calibration", "hardware", "scenarios", "sim")
"""Folders of the package that hold data."""


@contextmanager
def one_command() -> Iterator[None]:
    """Within it, a file that was read is not written, and no two outputs go to one file."""
    token = _SCOPE.set(_Scope())
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def shipped_files_only() -> Iterator[None]:
    """Within it, no file is opened or looked for but those of the package."""
    token = _SHIPPED_ONLY.set(True)
    try:
        yield
    finally:
        _SHIPPED_ONLY.reset(token)


def refuse_foreign(path: str | Path) -> None:
    """FileError within ``shipped_files_only`` for a file that does not ship, whether there is one or not."""
    if not _SHIPPED_ONLY.get():
        return
    real = Path(os.path.realpath(path))
    if real.suffix == ".yaml" and any(real.is_relative_to(_PACKAGE / folder) for folder in _SHIPPED):
        return
    raise FileError(path, "no files are read for this document: write here what the file holds")


def note_read(path: str | Path, status: os.stat_result) -> None:
    """Record that ``path`` is an input. FileError where it is one of the outputs that are planned."""
    scope = _SCOPE.get()
    if scope is None:
        return
    identity = status.st_dev, status.st_ino
    if (purpose := scope.outputs.get(identity)) is not None:
        raise OverwriteError(
            path, f"the command reads this file, so {purpose} cannot go there; choose another"
        )
    scope.read.setdefault(identity, str(path))


def note_output(path: str | Path, purpose: str) -> None:
    """Record before the work starts that ``purpose`` (an option as ``--trace``) will be written to ``path``.

    FileError where the command has read that file, or plans another output there.
    """
    scope = _SCOPE.get()
    if scope is None:
        return
    refuse_read(path)
    real, identity = os.path.realpath(path), identity_of(path)
    taken = scope.paths.get(real) or (scope.outputs.get(identity) if identity else None)
    if taken is not None and taken != purpose:
        raise FileError(path, f"{taken} goes to this file, so {purpose} cannot; choose another")
    scope.paths[real] = purpose
    if identity:
        scope.outputs[identity] = purpose


def note_written(path: str | Path, *, edits: bool) -> None:
    """Record that ``path`` is about to be replaced. FileError where the command has already written it."""
    scope = _SCOPE.get()
    if scope is None or edits:
        return
    real = os.path.realpath(path)
    if real in scope.written:
        raise FileError(path, "the command has already written this file; each output needs its own")
    scope.written.add(real)


def refuse_read(path: str | Path) -> None:
    """FileError where the command has read the file that ``path`` is."""
    scope, identity = _SCOPE.get(), identity_of(path)
    if scope is None or identity is None or identity not in scope.read:
        return
    known = scope.read[identity]
    other = "" if known == str(path) else f", as {known}"
    raise FileError(path, f"the command has read this file{other}, and nothing that was read is overwritten")


def identity_of(path: str | Path) -> Identity | None:
    """Device and inode of an ordinary file, links followed; None where there is none."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
