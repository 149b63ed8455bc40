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
"""The ratio beyond which a file is refused once it has given 64 MiB: gzip packs traces and programs 10 to 60
times, and a file that it packs 250 times holds next to nothing. The refusal takes less than a second."""

_PIECE = 2**20
_GZIP = 31  # zlib's word for a gzip header around a window of 32 KiB


def unpacked(content: bytes, file: str | Path, *, limit: int = UNPACKED_BYTES) -> bytes:
    """What the gzip file ``content`` holds, all its members.

    Raises:
        FileError: it is no gzip file, is cut off or damaged, or holds more than ``limit`` bytes.
    """
    import zlib

    if not content:
        raise FileError(file, "not a gzip file: it is empty")
    parts: list[bytes] = []
    total = taken = 0
    member, rest = zlib.decompressobj(wbits=_GZIP), b""
    while True:
        if not rest:
            rest = content[taken : taken + _PIECE]
            taken += len(rest)
        if member.eof:
            rest = rest.lstrip(b"\0")  # members may follow one another, and tools pad with zeros
            if rest:
                member = zlib.decompressobj(wbits=_GZIP)
            elif taken < len(content):
                continue
            else:
                return b"".join(parts)
        try:
            piece = member.decompress(rest, _PIECE)
        except zlib.error as error:
            raise FileError(file, f"not a gzip file, or a damaged one: {error}") from None
        if not rest and not piece and not member.eof:
            raise FileError(file, "not a gzip file, or a damaged one: it is cut off")
        total += len(piece)
        _check(file, total, taken, limit)
        parts.append(piece)
        rest = member.unused_data if member.eof else member.unconsumed_tail


def _check(file: str | Path, total: int, taken: int, limit: int) -> None:
    if total > limit:
        raise FileError(file, f"holds more than {size_text(limit)} when unpacked, the most that is read")
    if total > _SOME and total > _DENSE * taken:
        raise FileError(
            file, f"holds more than {_DENSE} times its size when unpacked; no trace or program does"
        )
