"""The one way in which a file of the user's is opened: an ordinary file, of a bounded size, whole.

Knows kinds of files and how each refusal reads. Does not know formats.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import FileError, reason_of, size_text
from .scope import note_read, refuse_foreign

TEXT_BYTES = 64 * 2**20
"""Largest text file by default. The largest file of measured runs that we know has 1.1 MB."""

BINARY_BYTES = 2 * 2**30
"""Largest file of any kind by default: traces of a profiler have hundreds of MB, and are read whole."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read_bytes(path: str | Path, *, limit: int = BINARY_BYTES) -> bytes:
    """The content of the ordinary file ``path``, which counts as read by the command from now on.

    Raises:
        FileError: there is no such file, it is a folder, pipe, device or socket (none is waited for), it may
            not be read, it is larger than ``limit`` bytes, or it is one of the command's outputs.
    """
    with noted(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read(limit + 1)
    if size > limit or len(content) > limit:
        raise FileError(path, f"is larger than {size_text(limit)}, the most that is read of such a file")
    return content


@contextmanager
def noted(path: str | Path) -> Iterator[BinaryIO]:
    """The ordinary file ``path``, open to be read. Errors as ``read_bytes``, but of its size."""
    require_file(path)
    try:
        # Between stat and open a pipe may have come; without O_NONBLOCK we would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            _refuse_kind(path, status)
            note_read(path, status)
            yield file
    except OSError as error:
        raise FileError(path, _unreadable(error)) from None


def read_text(path: str | Path, *, limit: int = TEXT_BYTES) -> str:
    """The text of ``path``: UTF-8, a byte order mark at its beginning left out. Errors as ``read_bytes``."""
    return decoded(read_bytes(path, limit=limit), path)


_GZIP = b"\x1f\x8b"
"""How a gzip file begins (RFC 1952)."""


def decoded(content: bytes, file: str | Path) -> str:
    """``content`` as text. FileError naming the first byte that is not UTF-8, or that it is packed."""
    if content.startswith(_GZIP):
        raise FileError(file, "is a gzip file, and text is read here; unpack it first (gunzip)")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise FileError(file, "this file is not UTF-8 text", line=line, column=column) from None


def require_file(path: str | Path) -> None:
    """FileError, as ``read_bytes`` raises it, where ``path`` is not an ordinary file; nothing is opened."""
    refuse_foreign(path)
    try:
        _refuse_kind(path, Path(path).stat())
    except OSError as error:
        raise FileError(path, _unreadable(error)) from None
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(repr(str(path)), f"no file can have this name: {error}") from None


def _refuse_kind(path: str | Path, status: os.stat_result) -> None:
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            files = f"; name the files in it, as in {path}/*.yaml" if is_kind is stat.S_ISDIR else ""
            raise FileError(path, f"is {name}, not a file{files}")


def _unreadable(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no file of this name"
    return f"cannot be read: {reason_of(error)}"
