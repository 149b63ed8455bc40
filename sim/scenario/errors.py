"""What is wrong with a scenario, in words that let its writer mend it.

Knows how a problem reads: where it stands, the line with a caret, the field, what was expected.
Does not know the rules themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...hardware.shown import clipped, window

CHANGE = "change"
"""What stands for the file of a problem in a change that was given as data."""

COMMAND_LINE = "--set"
"""The file of a problem in a change that somebody wrote as a line, such as ``--set a.b=1``."""

SHOWN = 20
"""Problems that a message lists: more than a screen of them helps nobody, and 5,000 are a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a text. ``line`` and ``column`` count from 1; line 0 is a document that was never text."""

    file: str
    line: int = 0
    column: int = 0
    source_line: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake. ``path`` is the dotted field, empty where no field is concerned. ``between``: fields that
    do not go together, each of which might be what it is beside others.
    """

    mark: Mark
    path: str
    message: str
    value: object = None
    between: bool = False

    def __str__(self) -> str:
        parts = (str(self.mark), clipped(self.path), clipped(self.message, 1000))
        head = ": ".join(part for part in parts if part)
        if not self.mark.source_line:
            return head
        line, column = window(self.mark.source_line, self.mark.column)
        indent = "".join("\t" if letter == "\t" else " " for letter in line[: column - 1])
        return f"{head}\n    {line}\n    {indent}^"


class ScenarioError(ValueError):
    """A scenario that cannot be used; ``problems`` holds every mistake found, in the order of the text.

    The message lists the first of them.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted({str(problem): problem for problem in problems}.values(), key=_position))
        listed = "\n".join(map(str, self.problems[:SHOWN]))
        count = len(self.problems)
        more = f"\nand {count - SHOWN:,} more" if count > SHOWN else ""
        super().__init__(listed if count == 1 else f"{count:,} problems in the scenario\n{listed}{more}")

    def __reduce__(self) -> tuple[object, ...]:
        """Workers send their errors back pickled, and an exception would be built of its message alone."""
        return ScenarioError, (self.problems,)


@contextmanager
def changes_named(where: str, given_as: str = CHANGE) -> Iterator[None]:
    """Problems of changes that came as data, or ``given_as`` something else, say ``where`` people wrote them:
    an option, or a file of theirs.

    >>> with changes_named("--vary"):
    ...     raise ScenarioError([Problem(mark=Mark(file=CHANGE), path="parallelism.tp", message="3 is odd")])
    Traceback (most recent call last):
    ...
    stepsim.sim.scenario.errors.ScenarioError: --vary: parallelism.tp: 3 is odd
    """
    try:
        yield
    except ScenarioError as error:
        if not any(problem.mark.file == given_as for problem in error.problems):
            raise
        named = (
            replace(problem, mark=replace(problem.mark, file=where))
            if problem.mark.file == given_as
            else problem
            for problem in error.problems
        )
        raise ScenarioError(named) from None


def _position(problem: Problem) -> tuple[str, int, int, str]:
    return problem.mark.file, problem.mark.line, problem.mark.column, problem.path
