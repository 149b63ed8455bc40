"""Archives of files (tar, with gzip, bzip2 or xz or without, and zip), opened by member, within limits.

Knows containers; what is in the members is for others. Nothing is written to a disk, and no member's name is
used as a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from .errors import FileError, size_text
from .packed import UNPACKED_BYTES
from .reading import noted
from .several import Refusal, read_each, refusal

T = TypeVar("T")

SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz", ".zip")
MOST_MEMBERS = 10_000


def is_archive(path: Path) -> bool:
    """Whether ``path`` is called like an archive of several files."""
    return path.name.lower().endswith(SUFFIXES)


def members(path: Path, *, limit: int = UNPACKED_BYTES) -> Iterator[tuple[Path, bytes]]:
    """Every ordinary file in the archive: ``archive.tgz/name`` to name it by, and its content. What macOS
    puts beside files (``._name``) is passed over.

    Raises:
        FileError: no archive, a damaged one, more than ``limit`` bytes in all, or more than 10,000 files.
    """
    import lzma
    import tarfile
    import zipfile
    import zlib

    wrong = (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RuntimeError,
        OSError,
    )
    with noted(path) as file:
        files = _zipped(file) if path.name.lower().endswith(".zip") else _tarred(file)
        left = limit
        try:
            for number, (name, member) in enumerate(files):
                content = member.read(left + 1)
                left -= len(content)
                if left < 0 or number >= MOST_MEMBERS:
                    raise FileError(path, f"holds more than {size_text(limit)} or {MOST_MEMBERS:,} files")
                base = PurePosixPath(name).name
                if not base.startswith("._"):
                    yield path / base, content
        except FileError:
            raise
        except wrong as error:
            raise FileError(path, f"not an archive, or a damaged one: {error}") from None


def read_members(path: Path, read: Callable[[Path, bytes], T]) -> tuple[tuple[T, ...], tuple[Refusal, ...]]:
    """What ``read`` makes of each file in the archive that it can read, and a refusal of each other one.

    Raises:
        FileError: as ``members``, or not one of them can be used; names the first few.
    """
    used: list[T] = []
    refused: list[Refusal] = []
    for member, content in members(path):
        try:
            used.append(read(member, content))
        except ValueError as error:
            refused.append(refusal(member, error))
    if not used:
        first = "; ".join(f"{Path(one.file).name}: {one.reason}" for one in refused[:3])
        raise FileError(path, f"none of its {len(refused)} files can be used: {first or 'it is empty'}")
    return tuple(used), tuple(refused)


def read_opened(
    paths: Iterable[str | Path], read: Callable[[Path, bytes | None], T]
) -> tuple[tuple[T, ...], tuple[Refusal, ...]]:
    """Read files as ``read_each`` does, with archives opened: ``read`` gets a path and, for a member of an
    archive, its content."""
    inside: list[Refusal] = []

    def opened(path: Path) -> tuple[T, ...]:
        if not is_archive(path):
            return (read(path, None),)
        found, refused = read_members(path, read)
        inside.extend(refused)
        return found

    found, refused = read_each(paths, opened)
    return tuple(one for several in found for one in several), (*refused, *inside)


def _tarred(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    import tarfile

    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for one in archive:
            member = archive.extractfile(one) if one.isfile() else None
            if member is not None:
                yield one.name, member


def _zipped(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    import zipfile

    with zipfile.ZipFile(file) as archive:
        for one in archive.infolist():
            if not one.is_dir():
                with archive.open(one) as member:
                    yield one.filename, member
