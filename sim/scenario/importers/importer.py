"""What an importer and an exporter are, and what they get: files, given facts, a version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..models import Scenario
from .draft import Imported
from .settings import Given
from .sources import SourceFile


@dataclass(frozen=True, kw_only=True)
class ImportJob:
    """What one import starts from: the files of a run, what is given beside them, the framework's version."""

    files: tuple[SourceFile, ...]
    given: Given
    version: str | None = None

    @property
    def name(self) -> str:
        """The first file, for messages."""
        return self.files[0].name

    @property
    def script(self) -> SourceFile | None:
        """The first file that starts a run; None among configurations alone."""
        return next((one for one in self.files if one.is_command), None)

    def first(self, recognises: Callable[[SourceFile], bool]) -> SourceFile:
        """The first file that an importer knows, or the first of all."""
        return next((one for one in self.files if recognises(one)), self.files[0])


@dataclass(frozen=True, kw_only=True)
class Importer:
    """One framework. ``recognises`` says whether a file is this framework's by what stands in it.

    ``versioned`` says whether the version of the framework decides how its files are read.
    ``order`` settles who is asked first where several could take a file: what is more special is lower.
    """

    name: str
    title: str
    source: str
    recognises: Callable[[SourceFile], bool]
    read: Callable[[ImportJob], Imported]
    versioned: bool = False
    order: int = 50


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """One framework's file out of a scenario.

    ``write`` gives the text of a file with that ``suffix``, for a version of the framework. It says what it
    can; what is not in it is found by reading it back (export.py). ``versioned`` says whether ``write`` heeds
    the version; one that does not gets none. ``version_for`` is the version that the software of a scenario
    is of.
    """

    name: str
    title: str
    suffix: str
    write: Callable[[Scenario, str | None], str]
    versioned: bool = False
    version_for: Callable[[Scenario], str | None] = lambda scenario: None
