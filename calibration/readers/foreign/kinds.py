"""What a file is that no reader of text is for: an archive, Parquet, a report that needs an export.

Knows formats by their first bytes, and a few by their names. Sources: the formats' own documents; Chakra's
traces are protobuf and have no mark.
"""

from __future__ import annotations

from pathlib import Path

_MARKS = (
    (b"PAR1", "a table in Parquet; write it as .csv"),
    (b"\x1f\x8b", "packed with gzip; unpack it (traces may stay packed, as .json.gz)"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (b"\xfd7zXZ\x00", "packed with xz; unpack it"),
    (b"BZh", "packed with bzip2; unpack it"),
    (b"\x28\xb5\x2f\xfd", "packed with Zstandard; unpack it"),
    (b"SQLite format 3\x00", "a database of SQLite; call it .sqlite if it is an export of Nsight Systems"),
    (b"\x89HDF", "a file of HDF5"),
    (b"%PDF", "a PDF document"),
)
_NAMES = {
    ".et": "an execution trace of Chakra",
    ".tar": "a tar archive; unpack it",
    ".nsys-rep": "a report of Nsight Systems; export it: nsys export --type sqlite",
    ".qdrep": "a report of Nsight Systems; export it: nsys export --type sqlite",
    ".pftrace": "a trace of Perfetto; export it as Chrome's JSON",
}


def no_text(path: Path, content: bytes) -> str | None:
    """What ``content`` of ``path`` is, and what to do with it; None for text.

    >>> no_text(Path("a.parquet"), b"PAR1...")
    'a table in Parquet; write it as .csv'
    """
    if path.suffix.lower() in _NAMES:
        return _NAMES[path.suffix.lower()]
    for mark, what in _MARKS:
        if content.startswith(mark):
            return what
    return "no text" if b"\0" in content else None
