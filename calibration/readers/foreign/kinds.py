"""What a file is that no reader of text is for: an archive, Parquet, a report that needs an export.

Knows formats by their first bytes, and a few by their names. Sources: the formats' own documents; Chakra's
traces are protobuf and have no mark.
"""

from __future__ import annotations

from pathlib import Path

_MARKS = (
    (b"PAR1", "a table in Parquet: logs of operations are for stepsim explain; write measurements as .csv"),
    (b"\x1f\x8b", "packed with gzip; unpack it (traces may stay packed, as .json.gz)"),
    (b"PK\x03\x04", "a zip archive; call it .zip, or unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (b"\xfd7zXZ\x00", "packed with xz; unpack it"),
    (b"BZh", "packed with bzip2; unpack it"),
    (b"\x28\xb5\x2f\xfd", "packed with Zstandard; unpack it"),
    (b"SQLite format 3\x00", "a database of SQLite; call it .sqlite if it is an export of Nsight Systems"),
    (b"\x89HDF", "a file of HDF5"),
    (b"%PDF", "a PDF document"),
    (b"\x00\x05\x16\x07", "what macOS puts beside a file in an archive"),
)
_NAMES = {
    ".et": "an execution trace of Chakra, for stepsim replay",
    ".tar": "a tar archive; unpack it",
    ".nsys-rep": "a report of Nsight Systems; export it: nsys export --type sqlite",
    ".qdrep": "a report of Nsight Systems; export it: nsys export --type sqlite",
    ".pftrace": "a trace of Perfetto; export it as Chrome's JSON",
}


_DOCUMENTS = (
    ({"nodes", "schema"}, "an execution trace of PyTorch's host, for stepsim replay"),
    ({"step_t_base", "step_t_noblk"}, "the result of a what-if analysis, whose log stepsim stragglers reads"),
    ({"trem", "tadd"}, "the result of a what-if analysis, whose log stepsim stragglers reads"),
    ({"scenario", "step_time_s"}, "what stepsim run --json prints"),
    ({"model_type", "hidden_size"}, "a configuration of a Hugging Face model"),
    ({"dp_size", "pp_size"}, "the layout of a logged job, for stepsim stragglers --layout"),
)
_FAULT = {"node_id", "event_time", "event_type"}
_OTHERS = {
    "Software Failure": "a summary of faults by class; the record itself is for stepsim faults --record",
}


def named_document(document: object) -> str | None:
    """What a document of JSON or YAML is that is nothing measured; None for one that nobody knows.

    >>> named_document([{"node_id": "a", "event_time": 1.0, "event_type": "fault_start"}])
    'a record of faults, for stepsim faults --record'
    """
    if isinstance(document, list):
        first = document[0] if document else None
        if isinstance(first, dict) and first.keys() >= _FAULT:
            return "a record of faults, for stepsim faults --record"
        return None
    if not isinstance(document, dict):
        return None
    known = (what for keys, what in _DOCUMENTS if document.keys() >= keys)
    return next(known, None) or next((what for key, what in _OTHERS.items() if key in document), None)


def no_text(path: Path, content: bytes) -> str | None:
    """What ``content`` of ``path`` is, and what to do with it; None for text.

    >>> no_text(Path("a.parquet"), b"PAR1...")
    'a table in Parquet: logs of operations are for stepsim explain; write measurements as .csv'
    """
    if path.suffix.lower() in _NAMES:
        return _NAMES[path.suffix.lower()]
    for mark, what in _MARKS:
        if content.startswith(mark):
            return what
    return "no text" if b"\0" in content else None
