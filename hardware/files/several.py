"""Many files given at once: what those hold that can be used, and why the others cannot.

One file that is broken, of something else, or of a machine that nobody knows must not stop all others. Knows
neither formats nor how a refusal is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .errors import FileError, OverwriteError, reason_of

T = TypeVar("T")
MOST_NAMED = 20
"""Refusals that one error message names; the others it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A file that was given and not used; ``reason`` says why, with the place in the file if there is one."""

    file: str
    reason: str


def read_each(
    paths: Iterable[str | Path], read: Callable[[Path], T]
) -> tuple[tuple[T, ...], tuple[Refusal, ...]]:
    """What ``read`` makes of every file that it can read, in order, and a refusal of each other one.

    Raises:
        ValueError: not one file can be used; the message names them (the error itself where one was given).
        OverwriteError: an input is one of the command's outputs; no other file makes that good.
    """
    used: list[T] = []
    refused: list[Refusal] = []
    first: Exception | None = None
    for path in map(Path, paths):
        try:
            used.append(read(path))
        except OverwriteError:
            raise
        except (ValueError, OSError) as error:
            first = first or error
            refused.append(refusal(path, error))
    if used or first is None:
        return tuple(used), tuple(refused)
    if len(refused) == 1:
        raise first
    raise ValueError(f"none of the {len(refused)} files can be used:\n{refusals_text(refused)}")


def refusal(path: Path, error: Exception) -> Refusal:
    """The refusal of ``path`` for ``error``, whose message need not repeat the name."""
    if isinstance(error, OSError):
        return Refusal(file=str(path), reason=reason_of(error))
    if isinstance(error, FileError) and not error.line:
        return Refusal(file=str(path), reason=error.reason)
    reason = str(error)
    if reason.startswith(f"{path}:"):
        reason = reason.removeprefix(f"{path}:").strip()
        reason = f"line {reason}" if reason[:1].isdigit() else reason
    return Refusal(file=str(path), reason=reason)


def refusals_text(refused: Sequence[Refusal]) -> str:
    """A line for each refusal, for people; of very many the first ones."""
    lines = [f"{one.file}: {one.reason}" for one in refused[:MOST_NAMED]]
    if more := len(refused) - len(lines):
        lines.append(f"and {more} more")
    return "\n".join(lines)
