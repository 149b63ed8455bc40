"""What is wrong with a file of the user's, in one sentence that begins with its name.

Knows how such a sentence reads. Does not know what files hold.
"""

from __future__ import annotations

import os
from pathlib import Path


class FileError(ValueError):
    """A file that cannot be read, written or understood; ``file`` is its name and ``reason`` what is wrong.

    ``line`` and ``column`` count from 1; they are 0 where no place in the file is to blame.
    """

    def __init__(self, file: str | Path, reason: str, *, line: int = 0, column: int = 0) -> None:
        self.file, self.reason, self.line, self.column = str(file), reason, line, column
        place = f"{file}:{line}:{column}" if line else str(file)
        super().__init__(f"{place}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return _again, (self.file, self.reason, self.line, self.column)


class YamlError(FileError):
    """Text that is not YAML, or more of it than is read."""

    def __reduce__(self) -> tuple[object, ...]:
        return _yaml_again, (self.file, self.reason, self.line, self.column)


class OverwriteError(FileError):
    """A file that the command both reads and writes: a mistake of the whole command, not of one file."""

    def __reduce__(self) -> tuple[object, ...]:
        return _overwrite_again, (self.file, self.reason, self.line, self.column)


def _overwrite_again(file: str, reason: str, line: int, column: int) -> OverwriteError:
    return OverwriteError(file, reason, line=line, column=column)


def _again(file: str, reason: str, line: int, column: int) -> FileError:
    return FileError(file, reason, line=line, column=column)


def _yaml_again(file: str, reason: str, line: int, column: int) -> YamlError:
    return YamlError(file, reason, line=line, column=column)


def reason_of(error: OSError) -> str:
    """What the system says, without the name of a file: messages of ours name the one that was meant."""
    return os.strerror(error.errno) if error.errno else str(error)


def size_text(count: int) -> str:
    """Bytes as people write a limit.

    >>> size_text(4 * 2**20), size_text(2**30), size_text(17)
    ('4 MiB', '1 GiB', '17 bytes')
    """
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:,} bytes"
