"""Lines of a terminal as nccl-tests printed them: without what launchers and NCCL itself put among them.

Knows prefixes of mpirun, srun, pdsh, docker and kubectl, and NCCL's own output (``NCCL_DEBUG=INFO``), which
may stand in the middle of a row: the tool prints a row in three pieces, before, between and after its two
halves, and NCCL connects and logs meanwhile. Does not know what a row means.

Source: NVIDIA/nccl-tests src/common.cu (pieces of a row); NVIDIA/nccl src/debug.cc (host:pid:tid [device]).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PREFIX = re.compile(
    r"(?:\[\d+,\d+\]<std(?:out|err)>:"  # mpirun --tag-output
    r"|\[\d+\] (?!NCCL)"  # mpiexec -prepend-rank
    r"|\[[\w./-]*[a-z][\w./-]*\] "  # kubectl logs --prefix: [pod/name/container]
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? +"  # kubectl logs --timestamps
    r"|\d+: ?"  # srun -l
    r"|[A-Za-z][\w.-]*: (?=[\s#\d])"  # pdsh, JobSet
    r"|[\w.-]+ +\| )"  # docker compose
)
_OWN = re.compile(
    r"(?:\[\d+\] |\[\d+,\d+\]<std(?:out|err)>:)?"
    r"[A-Za-z][\w.-]*:\d+:\d+ \[\d+\] (?:\S+ \S+ )?NCCL (?:INFO|WARN|TRACE)\b"
)
_ROW = re.compile(r"\d+\s+\d+\s+[a-z][a-z0-9_]*(?:\s|$)")
_FIGURE = re.compile(r"N/A|[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_LONGEST = 4096
"""Characters of a line that are looked at: the longest row has some 200."""

Numbered = tuple[int, str]


def without_prefix(line: str) -> str:
    """The line as the tool printed it, without what launchers put before it and without indentation.

    >>> without_prefix("[1,0]<stdout>:#   size"), without_prefix("0:    8   2 float")
    ('#   size', '8   2 float')
    """
    line = line[:_LONGEST].strip()
    while (prefix := _PREFIX.match(line)) and prefix[0]:
        line = line[prefix.end() :].strip()
    return line


def whole_lines(lines: Iterable[str]) -> Iterator[Numbered]:
    """Every line with its number, rows that NCCL's output cut into pieces put together again.

    >>> broken = ["8  2 float sum -1node-1:77:78 [0] NCCL INFO Connected", "18.7 0.0 0.0 0"]
    >>> [line for _, line in whole_lines(broken)]
    ['node-1:77:78 [0] NCCL INFO Connected', '8  2 float sum -1 18.7 0.0 0.0 0']
    """
    held: Numbered | None = None  # a row that may go on
    interrupted = False
    for number, raw in enumerate(lines, 1):
        line = without_prefix(raw)
        own = _OWN.search(line)
        piece = line
        if own:
            piece = line[: own.start()].strip()
            piece += "A" if piece.endswith("N/") else ""  # of N/A the A looks like the host's first letter
            yield number, line[own.start() :]
        if held and interrupted and piece and all(map(_FIGURE.fullmatch, piece.split())):
            held = held[0], f"{held[1]} {piece}"
        elif piece or not own:
            if held:
                yield held
            held, interrupted = ((number, piece), False) if _ROW.match(piece) else (None, False)
            if held is None:
                yield number, piece
        interrupted = interrupted or own is not None
    if held:
        yield held
