"""Any files of a real step as traces of ranks: single ones, folders and archives of them.

Knows which reader a file is for, by what is in it, and what to say of a file that none is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...hardware.files import Refusal, is_archive, read_bytes, read_each, read_members
from ..readers.foreign.kinds import no_text
from .from_kineto import read_kineto
from .from_nsys import read_nsys_steps
from .from_operations import read_operation_steps
from .step_record import RankTrace

TRACES = (".json", ".json.gz")
LOGS = (".parquet", ".csv")
REPORTS = (".sqlite", ".db")


def read_traces(paths: Sequence[Path]) -> tuple[tuple[RankTrace, ...], tuple[Refusal, ...]]:
    """The steps of all files, and why others are none. ValueError where not one can be used."""
    found, refused = read_each(_files(paths), _read)
    return tuple(one for traces in found for one in traces), refused


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files given, and those in folders: in them, what is called like a trace."""
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.name.lower().endswith(TRACES))
            if not inside:
                raise ValueError(f"{path}: this folder holds no trace (.json or .json.gz)")
            yield from inside
        else:
            yield path


def _read(path: Path) -> tuple[RankTrace, ...]:
    if is_archive(path):
        return _of_archive(path)
    name = path.name.lower()
    if name.endswith(LOGS):
        return read_operation_steps(path)
    if name.endswith(REPORTS):
        return read_nsys_steps(path)
    return _of_content(path, read_bytes(path))


def _of_archive(path: Path) -> tuple[RankTrace, ...]:
    """The traces in an archive; files beside them, such as a README, are passed over."""
    found, _ = read_members(path, _of_content)
    return tuple(one for traces in found for one in traces)


def _of_content(path: Path, content: bytes) -> tuple[RankTrace, ...]:
    name = path.name.lower()
    packed = name.endswith(".json.gz")
    if not packed and (other := no_text(path, content)):
        raise ValueError(f"{path}: no trace of a profiler: it is {other}")
    if not name.endswith(TRACES):
        raise ValueError(f"{path}: no trace of a profiler, which would be .json or .json.gz")
    return read_kineto(path, content)
