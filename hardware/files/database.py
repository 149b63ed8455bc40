"""SQLite files, opened to be read and for nothing else.

Knows how a path becomes a URI, and bounds the work of a query. Does not know tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import FileError
from .reading import noted

if TYPE_CHECKING:
    import sqlite3

_MAGIC = b"SQLite format 3\0"
STEPS = 2_000_000_000
"""Instructions of SQLite's machine. A report of ten million kernels takes some 300 million; a view that calls
itself has no end, and is stopped after a minute."""

_LONGEST_VALUE = 64 * 2**20


@contextmanager
def open_database(path: str | Path, *, steps: int = STEPS) -> Iterator[sqlite3.Connection]:
    """A connection that can only read; ``?``, ``#`` and ``%`` of the name are characters like others.

    No file is made, neither of this name nor beside it. The path counts as read by the command.

    Raises:
        FileError: no ordinary file, no SQLite database, a query that fails or takes too long.
    """
    import sqlite3

    with noted(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise FileError(path, "is not an SQLite database")
    # immutable: without it a database in write-ahead mode gets two files beside it. Where such a log exists,
    # part of the data may still be in there, and its files exist already.
    log = Path(f"{path}-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?{mode}", uri=True)) as base:
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            base.execute("PRAGMA trusted_schema = OFF")
            turns = iter(range(steps // 1_000_000))
            base.set_progress_handler(lambda: next(turns, None) is None, 1_000_000)
            yield base
    except sqlite3.Error as error:
        if "interrupted" in str(error):
            raise FileError(path, "a query of this database takes too long; is it what it says?") from None
        raise FileError(path, f"this SQLite database cannot be read: {error}") from None
    except UnicodeDecodeError:  # names of columns, and what SQLite quotes when it complains
        raise FileError(path, "this SQLite database cannot be read: it holds text that is no UTF-8") from None
