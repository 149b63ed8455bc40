"""Outputs appear whole or not at all: a file beside the target is written and then takes its name.

The target keeps its permissions; where it is a symbolic link, the file that it points to is replaced and the
link stays. Another hard link to the old file keeps the old content. Nothing is flushed to the disk by force:
this guards against a full disk, a mistake or an interrupt, not against a power cut.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import FileError, reason_of
from .scope import note_written, refuse_read

UNFINISHED = ".stepsim-unfinished-"
"""How names of temporary files begin. A name of our own is never too long, as target + suffix may be."""


@contextmanager
def written(path: str | Path, *, edits: bool = False) -> Iterator[Path]:
    """A new, empty file beside ``path`` to be written in the block; at its end it becomes ``path``.

    Where the block fails, whatever the reason, ``path`` is as it was and the new file is gone. ``edits`` says
    that ``path`` was read to be written anew; otherwise a file that the command has read is refused.

    Raises:
        FileError: the command has read that file, it is not an ordinary file, or it cannot be written (a full
            disk, a folder that may not be written); it names ``path``, never the temporary file.
    """
    try:
        target = Path(os.path.realpath(path))
        old = _status(target)
        _refuse_target(path, target, old, edits=edits)
        mode = stat.S_IMODE(old.st_mode) if old else None
        unfinished = target.with_name(UNFINISHED + secrets.token_hex(8))
        try:
            os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            yield unfinished
            if mode is not None:
                unfinished.chmod(mode)
            note_written(path, edits=edits)
            unfinished.replace(target)
        finally:
            with suppress(OSError):
                unfinished.unlink()
    except OSError as error:
        raise FileError(path, f"cannot be written: {_why(error)}") from None


def write_bytes(path: str | Path, content: bytes, *, edits: bool = False) -> None:
    """Make ``content`` what ``path`` holds. Errors and ``edits`` as in ``written``."""
    with written(path, edits=edits) as unfinished:
        unfinished.write_bytes(content)


def write_text(path: str | Path, text: str, *, edits: bool = False) -> None:
    """Make ``text`` what ``path`` holds, in UTF-8, line ends as they are. Errors as in ``written``.

    Half a surrogate pair, which a name of a file may hold, has no UTF-8; it is written as its escape.
    """
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"), edits=edits)


def append_text(path: str | Path, text: str, *, edits: bool = False) -> None:
    """Add ``text`` to ``path``, which is made where it is missing: all of it, or the file stays as it was.

    For measurements that take hours and add a row each: what is there is never written anew, so it cannot be
    lost. Errors as in ``written``.
    """
    try:
        _refuse_target(path, Path(path), _status(Path(path)), edits=edits)
        with Path(path).open("ab") as file:
            before = file.seek(0, os.SEEK_END)
            try:
                file.write(text.encode("utf-8", errors="backslashreplace"))
                file.flush()
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise FileError(path, f"cannot be written: {_why(error)}") from None


def make_folder_of(path: str | Path) -> None:
    """Make the folder that ``path`` lies in. FileError naming ``path`` where that cannot be."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        raise FileError(path, f"its folder cannot be made: {why}") from None


def _refuse_target(path: str | Path, target: Path, old: os.stat_result | None, *, edits: bool) -> None:
    if old is None:
        return
    if stat.S_ISDIR(old.st_mode):
        raise FileError(path, "is a folder, so it cannot be written")
    if not stat.S_ISREG(old.st_mode):
        raise FileError(path, "is not an ordinary file, so it cannot be replaced")
    if not edits:
        refuse_read(target)


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        return None


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such folder"
    return reason_of(error)
