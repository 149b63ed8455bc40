"""Reads logs of NVIDIA's nccl-tests: which GPUs took part, and how long each size took.

Knows every layout that the tool has printed since 2.0: with or without root, the ``error`` column
in place of ``#wrong``, N/A where nothing was checked, columns added by newer versions, and comment
lines whose ``#`` was lost. A header ``## key: value`` may state what the tool does not print.
Does not know what a time should be.

Sources: NVIDIA/nccl-tests src/common.cu and src/util.cu (v2.9.0 to v2.19.6), doc/PERFORMANCE.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...hardware.files import read_bytes
from .foreign.kinds import no_text
from .foreign.values import LARGEST_BYTES, LARGEST_SECONDS, shown, written_number, written_whole
from .nccl_bus import BUS_FACTORS, kind_of, named_kind, ranks_by_bus_factor
from .nccl_lines import whole_lines, without_prefix

_ROW = re.compile(r"\d+\s+\d+\s+[a-z][a-z0-9_]*\s+\S")
_COLUMNS = re.compile(r"size\s+count\s+type\b")
_RANK = re.compile(
    r"Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]+\]\s+(.*\S)"
)
_STATED = re.compile(r"## ([a-z_0-9]+): (.*\S)")
_VERSION = re.compile(r"NCCL version (\S+)|nccl-library=(\d+)")
_NAMED_VERSION = re.compile(r"(?i)\bnccl[ -]v?(\d+\.\d+\.\d+)")
_LARGEST_LOG = 256 * 2**20  # bytes; NCCL_DEBUG=TRACE of thousands of ranks
_MOST_RANKS = 10**7
_LARGEST_HOST = 8  # GPUs; ranks up to this many that name no hosts are taken for those of one
_HALF = ("time", "algbw", "busbw", "wrong")


@dataclass(frozen=True, kw_only=True)
class LogRow:
    """One size: ``bytes`` as nccl-tests counts them, and both halves of the line.

    ``out_of_place_s`` and ``in_place_s`` are seconds, None where the half is absent;
    ``bus_bytes_per_s`` is the out-of-place bus bandwidth, 0 where the tool rounds to 0.
    """

    bytes: int
    out_of_place_s: float | None
    in_place_s: float | None
    bus_bytes_per_s: float

    @property
    def seconds(self) -> float:
        """The quicker half: one cold iteration can triple the other."""
        return min(s for s in (self.out_of_place_s, self.in_place_s) if s is not None)


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What one log says. ``log`` is the stem of its ``file``. ``gpu``, ``nccl``, ``kind`` and the counts are
    as printed or stated.

    ``stated`` holds the header lines ``## key: value``. ``skipped`` counts rows of no bytes, which
    the tool prints for sizes smaller than the ranks can share.
    """

    log: str
    file: str
    kind: str
    ranks: int
    nodes: int
    gpus_per_node: int
    gpu: str | None
    nccl: str | None
    rows: tuple[LogRow, ...]
    skipped: int
    stated: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row before it is known which collective it is of."""

    number: int
    fields: Mapping[str, str]
    halves: tuple[Mapping[str, str], ...]


def read_log(path: Path, content: bytes | None = None) -> Measurements:
    """The measurements of a log file, or of ``content`` of that name.

    Raises:
        ValueError: naming file and line, where a row is cut short or its columns contradict each
            other; naming the file, where it has no row, does not tell its collective or its ranks, or is no
            text.
    """
    content = read_bytes(path, limit=_LARGEST_LOG) if content is None else content
    if other := no_text(path, content):
        raise ValueError(f"{path}: no log of nccl-tests: it is {other}")
    return parse_log(content.decode("utf-8", errors="replace").splitlines(), str(path))


def parse_log(lines: Iterable[str], name: str) -> Measurements:
    """The measurements in ``lines``; ``name`` stands for the file in errors and gives ``log``."""
    stated: dict[str, str] = {}
    hosts: dict[int, tuple[str, str]] = {}
    rows: list[_Line] = []
    columns: tuple[str, ...] | None = None
    started = nccl = None
    for number, line in whole_lines(lines):
        bare = line.lstrip("# ")
        if header := _STATED.match(line):
            stated[header[1]] = header[2]
        elif _COLUMNS.match(bare):
            columns = tuple(bare.replace("#", " ").split())
        elif rank := _RANK.search(bare):
            hosts[written_whole(f"{name}:{number}: Rank", rank[1], high=_MOST_RANKS)] = rank[2], rank[3]
        elif _ROW.match(line):
            rows.append(_split(line, columns, f"{name}:{number}", number))
        elif version := _VERSION.search(bare):
            nccl = nccl or version[1] or version[2]
        if begun := re.search(r"Collective test starting: (\w+)", bare):
            started = begun[1]
    if not rows:
        raise ValueError(f"{name}: no row of nccl-tests results in it (size, count, type, time, algbw, ...)")
    nccl = nccl or stated.get("nccl") or _named_version(stated.get("source", ""))
    return _measurements(name, rows, stated, hosts, nccl, started)


def _named_version(source: str) -> str | None:
    """NCCL's version in a line on where the log is from."""
    named = _NAMED_VERSION.search(source)
    return named[1] if named else None


def _split(line: str, columns: Sequence[str] | None, where: str, number: int) -> _Line:
    """The fields of a row by name, with the header's columns or, without one, by their count."""
    words = line.split()
    names = columns or _guessed_columns(words, where)
    if len(words) != len(names):
        raise ValueError(
            f"{where}: {len(words)} fields where the table has {len(names)} columns: {shown(line)}"
        )
    first = names.index("time") if "time" in names else len(names)
    if first == len(names):
        raise ValueError(f"{where}: the table has no column 'time'")
    starts = [i for i, column in enumerate(names) if column == "time"]
    ends = [*starts[1:], len(names)]
    halves = tuple(dict(zip(names[a:b], words[a:b], strict=True)) for a, b in zip(starts, ends, strict=True))
    return _Line(number=number, fields=dict(zip(names[:first], words[:first], strict=True)), halves=halves)


def _guessed_columns(words: Sequence[str], where: str) -> tuple[str, ...]:
    """Columns of a row whose heading is lost: an operation is not a number; two halves, checked or not."""
    named = ["size", "count", "type"]
    rest = len(words) - 3
    if not re.match(r"[\d-]|N/A", words[3]):
        named.append("redop")
        rest -= 1
    shapes = {6: (0, 3), 7: (1, 3), 8: (0, 4), 9: (1, 4)}
    if rest not in shapes:
        raise ValueError(f"{where}: {len(words)} fields, and no heading above says which is which")
    rooted, half = shapes[rest]
    return (*named, *["root"] * rooted, *_HALF[:half], *_HALF[:half])


def _measurements(
    name: str,
    rows: Sequence[_Line],
    stated: Mapping[str, str],
    hosts: Mapping[int, tuple[str, str]],
    nccl: str | None,
    started: str | None,
) -> Measurements:
    full = [(line, row) for line in rows if (row := _row(line, f"{name}:{line.number}")) is not None]
    if not full:
        raise ValueError(f"{name}: every row has size 0, so that nothing was measured")
    kind = named_kind(stated.get("collective") or started or "")
    if kind is None:
        unchecked = all(h[-1].get("wrong") == "N/A" for h in (line.halves for line, _ in full) if len(h) > 1)
        kind = kind_of(full[-1][0].fields, _bus_ratio(full), unchecked=unchecked)
    if kind is None:
        raise ValueError(f"{name}: does not tell its collective; write '## collective: NAME' at its top")
    ranks = _stated_number(name, stated, "ranks") or (
        max(hosts) + 1 if hosts else ranks_by_bus_factor(kind, _bus_ratio(full))
    )
    if ranks is None:
        raise ValueError(f"{name}: does not tell how many ranks took part; write '## ranks: N' at its top")
    nodes, per_node = _hosts(name, ranks, stated, hosts)
    return Measurements(
        log=Path(name).stem,
        file=name,
        kind=kind,
        ranks=ranks,
        nodes=nodes,
        gpus_per_node=per_node,
        gpu=stated.get("gpu") or next((gpu for _, gpu in hosts.values()), None),
        nccl=nccl,
        rows=tuple(row for _, row in full),
        skipped=len(rows) - len(full),
        stated=dict(stated),
    )


def _hosts(
    name: str, ranks: int, stated: Mapping[str, str], hosts: Mapping[int, tuple[str, str]]
) -> tuple[int, int]:
    """Hosts and GPUs of each, as stated or by the hosts that the ranks name."""
    if ranks < 2:
        raise ValueError(f"{name}: has {ranks} rank, between which nothing moves")
    named = len({host for host, _ in hosts.values()}) if len(hosts) == ranks else None
    nodes = _stated_number(name, stated, "nodes") or named
    per_node = _stated_number(name, stated, "gpus_per_node") or (ranks // nodes if nodes else None)
    if per_node is None:
        if ranks > _LARGEST_HOST:
            raise ValueError(f"{name}: does not tell its hosts; write '## gpus_per_node: N' at its top")
        per_node = ranks
    nodes = nodes or max(1, ranks // per_node)
    if ranks != nodes * per_node and not (nodes == 1 and ranks < per_node):
        raise ValueError(f"{name}: {ranks} ranks are not those of {nodes} nodes with {per_node} GPUs each")
    return nodes, per_node


def _row(line: _Line, where: str) -> LogRow | None:
    """A row as numbers, checked: bytes over time is the bandwidth beside them. None for a row of no bytes."""
    size = written_whole(f"{where}: size", line.fields["size"], high=LARGEST_BYTES)
    if not size:
        return None
    times = [_time(size, half, where) for half in line.halves[:2]]
    if all(time is None for time in times):
        raise ValueError(f"{where}: neither half has a time")
    bus = next((_number(half["busbw"], where) for half in line.halves if "busbw" in half), 0.0)
    return LogRow(
        bytes=size,
        out_of_place_s=times[0],
        in_place_s=times[1] if len(times) > 1 else None,
        bus_bytes_per_s=(bus or 0.0) * 1e9,
    )


def _time(size: int, half: Mapping[str, str], where: str) -> float | None:
    """Seconds of one half; None where it was not run."""
    time = _number(half["time"], where)
    if time is None:
        return None
    if time <= 0:
        raise ValueError(f"{where}: time {half['time']} us of {size} bytes: must be positive")
    algbw = _number(half.get("algbw", "N/A"), where)
    if algbw is not None and abs(size / time / 1e3 - algbw) > 0.006 + 0.02 * algbw:
        raise ValueError(
            f"{where}: {size} bytes in {half['time']} us make {size / time / 1e3:.2f} GB/s, "
            f"not {half['algbw']}"
        )
    return time * 1e-6


def _number(word: str, where: str) -> float | None:
    return None if word == "N/A" else written_number(where, word, low=-math.inf, high=LARGEST_SECONDS * 1e6)


def _bus_ratio(rows: Sequence[tuple[_Line, LogRow]]) -> float | None:
    """Bus over algorithm bandwidth, from the row that prints both with the most digits."""
    best = max((row for _, row in rows if row.out_of_place_s), key=lambda r: r.bus_bytes_per_s, default=None)
    if best is None or not best.out_of_place_s or best.bus_bytes_per_s < 1e9:
        return None
    return best.bus_bytes_per_s / (best.bytes / best.out_of_place_s)


def _stated_number(name: str, stated: Mapping[str, str], key: str) -> int | None:
    if key not in stated:
        return None
    number = re.match(r"\d+", stated[key])
    return written_whole(f"{name}: ## {key}", number[0] if number else stated[key], low=1, high=_MOST_RANKS)


__all__ = ["BUS_FACTORS", "LogRow", "Measurements", "parse_log", "read_log", "without_prefix"]
