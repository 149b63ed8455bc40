"""A scenario in the making: fields with where each came from, and everything that keeps it from being one.

An importer puts fields, asks for what its files do not hold, refuses what the simulator cannot express and
lists what cannot matter. ``finished`` reports all questions and refusals together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import Mark, Problem, ScenarioError
from ..software.software import GROUP_OF
from .plain_names import plain_name

PACKED = "samples of a pack do not attend to one another; say how long they are: training.document_length"
"""What is noted of sequences that a framework packs of samples, whose lengths stand in the data alone."""

UNPACKED = "without packing sequences are as long as the data's; all are of the longest length here"
"""What is noted of samples that stand each in a sequence of its own, and may be short."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A scenario document, and how it came to be.

    ``origins`` says by the dotted path of each field where its value is from. ``ignored`` are settings that
    change neither step time nor memory; ``notes`` are sentences for whoever reads the scenario.
    """

    framework: str
    version: str
    document: dict[str, Any]
    origins: dict[str, str]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(kw_only=True)
class Draft:
    """What an importer has found so far; ``file`` stands in messages that concern no single line."""

    framework: str
    file: str
    version: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def put(self, path: str, value: Any, origin: str) -> None:
        """Set a field of the scenario; None leaves it out."""
        if value is None:
            return
        block = self.document
        *outer, name = path.split(".")
        for key in outer:
            block = block.setdefault(key, {})
        block[name] = value
        self.origins[path] = origin

    def put_software(self, name: str, value: Any, origin: str) -> None:
        """Set a fact of the software by its name alone, in its group."""
        self.put(f"software.{GROUP_OF[name]}.{name}", value, origin)

    def drop(self, path: str) -> None:
        """Take a field back that may have been put."""
        outer, _, name = path.rpartition(".")
        self.get(outer, {}).pop(name, None)
        self.origins.pop(path, None)

    def get(self, path: str, default: Any = None) -> Any:
        """A field that was put."""
        found: Any = self.document
        for key in path.split("."):
            if not isinstance(found, dict) or key not in found:
                return default
            found = found[key]
        return found

    def ask(self, name: str, why: str, example: str) -> None:
        """A fact that the files do not hold and a user has to give."""
        message = f"{why}; give it, as in --given {name}={example}"
        self.questions.append(Problem(mark=Mark(file=self.file), path=name, message=message))

    def refuse(self, name: str, why: str, *, line: int = 0, value: Any = None, file: str = "") -> None:
        """A setting that the simulator cannot express, or that nobody knows; ``line`` is one of ``file``."""
        mark = Mark(file=file or self.file, line=line, column=1 if line else 0)
        self.problems.append(Problem(mark=mark, path=name, message=why, value=value))

    def note(self, text: str) -> None:
        """A sentence for the reader of the scenario."""
        if text not in self.notes:
            self.notes.append(text)

    def finished(self) -> Imported:
        """The document with its origins.

        Raises:
            ScenarioError: everything that was asked or refused; what is refused is not asked for as well.
        """
        refused = {_last_part(one.path) for one in self.problems}
        open_ = [one for one in self.questions if _last_part(one.path) not in refused]
        if open_ or self.problems:
            raise ScenarioError([*open_, *self.problems])
        return Imported(
            framework=self.framework,
            version=self.version,
            document=self.document,
            origins=self.origins,
            ignored=tuple(sorted(set(self.ignored))),
            notes=tuple(self.notes),
        )


def _last_part(path: str) -> str:
    return plain_name(path).rpartition(".")[2]
