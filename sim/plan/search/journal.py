"""An append-only file of what was replayed, so that interrupted work resumes and nothing is replayed twice.

A line for each layout: its key and its result as JSON. The key is a hash of the scenario as resolved, of the
files that it names, of the profile of its GPU and of the program's own source, so that no result outlives
what it was made of. A last line that was cut off is dropped.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ....hardware.files import FileError, append_text, load_json, read_bytes, read_text
from ....hardware.shown import value_text
from ...scenario.machine import gpu_of
from .judged import JudgedLayout

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ...scenario.models import Scenario

MOST_BYTES = 1 << 30

HEADER = {"stepsim": "journal of plans", "format": 2}


@dataclass
class Journal:
    """What was judged, by key: in the file ``path``, or None: in this process alone. ``found`` counts what
    was there at the beginning.

    Raises:
        FileError: a file that cannot be read, or that is no journal.
    """

    path: Path | None = None
    known: dict[str, JudgedLayout] = field(default_factory=dict, repr=False)
    found: int = 0
    _written: set[str] = field(default_factory=set, repr=False)
    _writing: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        head = _line(HEADER)
        text = read_text(self.path, limit=MOST_BYTES) if self.path.exists() else ""
        if head.startswith(text):  # a new one, or one whose first line was cut off
            append_text(self.path, head[len(text) :], edits=True)
            return
        first, *lines = text.split("\n")
        _check_header(load_json(first, self.path), self.path)
        for line in lines:
            self._take(line, self.path)
        if lines[-1]:
            append_text(self.path, "\n", edits=True)  # what follows is not to join what was cut off
        self.found = len(self.known)

    def _take(self, line: str, path: Path) -> None:
        try:
            row = load_json(line, path)
        except FileError:
            return  # cut off when an earlier search was killed
        self.known[row["key"]] = JudgedLayout.of_row(row["judged"])

    def add(self, key: str, judged: JudgedLayout) -> None:
        """Keep a result; it is on disk when this returns."""
        if key in self.known:
            return
        self.known[key] = judged
        self.write(key, judged)

    def write(self, key: str, judged: JudgedLayout) -> None:
        """Keep a result on disk alone, for whoever comes next; any thread may. May raise FileError."""
        if self.path is None:
            return
        with self._writing:
            if key not in self._written:
                append_text(self.path, _line({"key": key, "judged": judged.to_row()}), edits=True)
                self._written.add(key)


def _check_header(head: Any, path: Path) -> None:
    """FileError where the first line of ``path`` is none of a journal, or of another version's."""
    if head == HEADER:
        return
    if isinstance(head, dict) and head.get("stepsim") == HEADER["stepsim"]:
        why = f"is a journal of another version of stepsim (format {value_text(head.get('format'))}, here"
        raise FileError(path, f"{why} {HEADER['format']}): choose another file", line=1, column=1)
    raise FileError(path, "is no journal of stepsim plan", line=1, column=1)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def key_of(scenario: Scenario) -> str:
    """What the prediction of a scenario depends on, as a hash."""
    document = scenario.to_document()
    for name in ("name", "title", "published"):
        document.pop(name, None)
    named = {path: _digest_of(path) for path in _files_of(scenario)}
    profile = _profile_digest(gpu_of(scenario.cluster), scenario.calibration)
    parts = [document, named, profile, program_digest()]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", errors="backslashreplace")).hexdigest()[:32]


def answer_key(base: Scenario) -> str:
    """What a plan of ``base`` depends on: as ``key_of``, and the planner's own source, by which workers know
    layouts by their numbers."""
    return f"{key_of(base)} {program_digest(('report',))}"


def _files_of(scenario: Scenario) -> list[str]:
    """Files besides profiles that a prediction reads."""
    routing = scenario.training.routing
    named = [
        scenario.cluster.fabric.file,
        scenario.schedule if scenario.schedule.endswith(".csv") else None,
        None if isinstance(routing, str) else routing.file,
    ]
    return [path for path in named if path]


def _digest_of(path: str) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()


@cache
def _profile_digest(gpu: Gpu, entries: tuple[str, ...]) -> str:
    from ....hardware.calibrated.overlay import calibrated_profile

    return hashlib.sha256(f"{calibrated_profile(gpu, entries)!r} {gpu!r}".encode()).hexdigest()


@cache
def program_digest(left_out: tuple[str, ...] = ("report", "plan")) -> str:
    """A digest of the version and of every file of the package that a prediction may read: of all folders but
    those of the names ``left_out``."""
    from .... import __version__

    root = Path(__file__).parents[3]
    whole = hashlib.sha256(__version__.encode())
    for folder in ("hardware", "kernels", "schedules", "sim"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".yaml") and not set(left_out) & set(path.parts):
                whole.update(str(path.relative_to(root)).encode())
                whole.update(path.read_bytes())
    return whole.hexdigest()
