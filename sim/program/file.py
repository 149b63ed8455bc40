"""Programs as a file: a JSON document, one op a line, that reads well, diffs well and replays to the bit.

``{"format": "stepsim-program", "version": 1, ...}`` with the fields

- ``scenario``: the document of the scenario that was lowered, or null for anyone else's program;
- ``sms`` of a GPU and ``corun_slowdown`` of kernels beside communication (0.1: they take 10 % longer);
- ``ends``: how the next step follows: together (the default), skewed or streaming (program.py);
- ``communicators``: name -> classes that it joins. One that is not here (tp, dp) is a class's own;
- ``links``: sets of link -> bytes per second, of which each class names one by its number;
- ``fabric``: links between switches that can bind, where there are any: ``links``, each with its bytes per
  second; ``collectives`` (class, communicator, pattern) and ``messages`` (from, to), each with the ``links``
  that it crosses and how many bytes of all who share its class go over one for each byte of a NIC;
- ``kernels``: name -> seconds, kind (gemm, attention, memory-bound, fixed), flops, bytes, stays (it
  has dealt its work out to all SMs before it begins);
- ``transfers``: name -> latency_s, bytes, ceiling_bytes_per_s (absent: none), weights (bytes on each
  link per payload byte), sms, pattern (who sends to whom: ring, the default, tree, ...),
  binding (the link that sets the ceiling), hbm (thousandths of its bandwidth that it takes of each member);
- ``blocks``: name -> ops of a short program on one rank's own resources, with kernels on the compute
  stream; it begins when all of the last one has ended, and may share SMs and links with other ops;
- ``classes``: name, pp, count (ranks that it stands for), first_rank, links, ops.

An op has a name, a ``stream`` (default compute), a ``category`` (default: the stream's name), an
``action`` (2F0), ``host_s`` and ``host_sync``; ``after`` counts back from the op: -1 is the one before
it. It does one thing: ``kernel``; ``collective`` with ``communicator``, ``transfer`` and ``calls`` (default
1: how many equal ones in a row the transfer is of); ``messages``, a list of
``{"send": tag, "to": class, "transfer": name}`` and ``{"receive": tag, "from": class, ...}``; or
``blocks``, a list of [block, times]. Seconds, bytes and FLOPs are plain numbers; what is 0, empty or
false may be left out.

Knows bytes and files; writer.py and reader.py know the fields.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hardware.files import TRACES, load_json, read_bytes, unpacked, write_bytes
from ...hardware.shown import clipped, listed
from ..result.step import RankClass
from .bind import bound
from .fields import Malformed
from .program import Programs
from .reader import Reader
from .writer import document_lines

FORMAT = "stepsim-program"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SavedProgram:
    """What a file holds. ``ranks`` says what each class stands for; ``scenario`` is a document or None."""

    programs: Programs
    ranks: tuple[RankClass, ...]
    scenario: Mapping[str, Any] | None = None


def read_program(path: str | Path) -> SavedProgram:
    """The program in ``path`` (``.gz`` at the end of its name: compressed).

    Raises:
        ValueError: the file cannot be read; else naming file, class, op and field, and what is expected
            there; all problems at once.
    """
    try:
        document = _document(Path(path))
        programs, ranks, scenario = Reader().read(document)
    except Malformed as mistake:
        problems = [f"{path}: {clipped(line)}" for line in str(mistake).splitlines()]
        raise ValueError(listed(problems)) from None
    return SavedProgram(programs=programs, ranks=ranks, scenario=scenario)


def write_program(
    programs: Programs,
    path: str | Path,
    *,
    ranks: Sequence[RankClass] = (),
    scenario: Mapping[str, Any] | None = None,
) -> None:
    """Write ``programs``, the same bytes for the same program; ``.gz`` at the end of the name compresses.

    The file appears whole or not at all. Without ``ranks`` every class stands for one rank.
    """
    path = Path(path)
    ranks = ranks or [
        RankClass(name=f"class {r}", pp=r, count=1, first_rank=r) for r in range(len(programs.classes))
    ]
    lines = document_lines(bound(programs), ranks, scenario, {"format": FORMAT, "version": VERSION})
    content = b"\n".join(lines) + b"\n"
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    write_bytes(path, content)


def _document(path: Path) -> object:
    content = read_bytes(path)
    if path.suffix == ".gz":
        content = unpacked(content, path)
    document: object = load_json(content, path, TRACES)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Malformed(f'not a program: expected an object with "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise Malformed(f"version: expected {VERSION}, got {document.get('version')!r}")
    return document
