"""gzip, unpacked piece by piece up to a bound: a file of 6 MB may hold 6 GB of zeros.

Knows the container. Does not know what is in it.
"""

from __future__ import annotations

from pathlib import Path

from .errors import FileError, size_text

UNPACKED_BYTES = 2**30
"""Most that is unpacked by default: traces of a few steps of thousands of kernels have some hundred MB, and a
parsed trace takes about ten times its text in memory."""

_DENSE = 250
_SOME = 2**26
"""gzip packs traces and programs 10 to 60 times. More than 250 times, beyond 64 MiB, is a file of nothing; to
refuse it there takes a fifth of a second, at the bound two."""

_PIECE = 2**20


def unpacked(content: bytes, file: str | Path, *, limit: int = UNPACKED_BYTES) -> bytes:
    """What the gzip file ``content`` holds, all its members.

    Raises:
        FileError: it is no gzip file, is cut off or damaged, or holds more than ``limit`` bytes.
    """
    import zlib

    parts: list[bytes] = []
    total, rest = 0, content
    while rest:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                piece = member.decompress(rest, _PIECE)
            except zlib.error as error:
                raise FileError(file, f"not a gzip file, or a damaged one: {error}") from None
            rest = member.unconsumed_tail
            if not piece and not member.eof and not rest:
                raise FileError(file, "not a gzip file: it ends before its end")
            total += len(piece)
            if total > limit:
                raise FileError(
                    file, f"holds more than {size_text(limit)} when unpacked, the most that is read"
                )
            if total > _SOME and total > _DENSE * len(content):
                raise FileError(
                    file, f"holds more than {_DENSE} times its size when unpacked; no trace or program does"
                )
            parts.append(piece)
        # Members may follow one another, and tools pad with zeros.
        rest = member.unused_data.lstrip(b"\0")
    if not content:
        raise FileError(file, "not a gzip file: it is empty")
    return b"".join(parts)
