"""What commands read in place of a scenario: a shipped name, a scenario's file, or files of another
framework.

Knows which it is; how a framework's file becomes a scenario is in sim/scenario/importers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import say

if TYPE_CHECKING:
    from ..sim.scenario.models import Scenario

SOURCE_HELP = "A shipped scenario's name, a YAML file, or another framework's file (docs/importers.md)."

SourceArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help=SOURCE_HELP)]

GivenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--given",
        metavar="NAME=VALUE",
        help="Of another framework's file: a fact that it does not hold, as in gpus=64, or a setting of "
        "it. Repeatable.",
    ),
]
WithOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="FILE", help="A file that belongs to it, as ds_config.json does. Repeatable."
    ),
]
FrameworkOption = Annotated[
    str | None,
    typer.Option("--framework", metavar="NAME", help="Whose file it is, where nothing in it says so."),
]
VersionOption = Annotated[
    str | None,
    typer.Option(
        "--framework-version", metavar="VERSION", help="Of that framework, as its releases are called."
    ),
]


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What was said of a framework's file on the command line."""

    given: Sequence[str] = ()
    files: Sequence[Path] = ()
    framework: str | None = None
    version: str | None = None

    def __bool__(self) -> bool:
        return bool(self.given or self.files or self.framework or self.version)

    def words(self) -> list[str]:
        """These facts as options of a command."""
        options: list[tuple[str, str | None]] = [
            *(("--given", one) for one in self.given),
            *(("--with", str(one)) for one in self.files),
            ("--framework", self.framework),
            ("--framework-version", self.version),
        ]
        return [word for name, value in options if value is not None for word in (name, value)]


@dataclass(frozen=True, kw_only=True)
class LoadedSource:
    """A scenario, and which framework's file of which version it was imported from; None of a scenario."""

    scenario: Scenario
    framework: str | None = None
    version: str | None = None


def load_any(source: str, overrides: Sequence[str], beside: SourceFacts) -> Scenario:
    """The scenario that ``source`` is, or that it is imported to; notes of an import go to stderr."""
    return load_source(source, overrides, beside).scenario


def load_source(source: str, overrides: Sequence[str], beside: SourceFacts) -> LoadedSource:
    """What ``source`` loads, with whose file it was."""
    from ..sim.scenario.documents import whole_document
    from ..sim.scenario.importers.entry import import_files, is_scenario
    from ..sim.scenario.load import load_scenario

    if beside.framework is None and is_scenario(source):
        if beside:
            whole_document(source)  # a file that cannot be read is told as such
            raise ValueError(
                f"--given, --with and --framework-version are of another framework's file, and {source} is "
                f"a scenario;"
                " --set changes it"
            )
        return LoadedSource(scenario=load_scenario(source, overrides))
    imported = import_files(
        [source, *beside.files], beside.given, framework=beside.framework, version=beside.version
    )
    for note in imported.notes:
        say(f"{Path(source).name}: {note}", err=True)
    return LoadedSource(
        scenario=load_scenario(imported.document | {"name": Path(source).stem}, overrides),
        framework=imported.framework,
        version=imported.version or None,
    )
