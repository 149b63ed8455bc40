"""``stepsim import``: another framework's files as a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import output_file, save_text, say, wrote
from .sources import FrameworkOption, GivenOption, VersionOption, WithOption


def import_run(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A launch script, a configuration, and what belongs to it: ds_config.json, config.json.",
        ),
    ],
    given: GivenOption = None,
    more: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE.yaml", help="Write the scenario there.")
    ] = None,
) -> None:
    """Read another framework's files and print the scenario that they are, with where each line came from.

    Scripts are read, and never executed. What the files do not hold is asked for, all at once; what the
    simulator cannot express is refused.
    """
    files = [*files, *(more or ())]
    output_file("--out", out, (".yaml", ".yml"), files)

    from ..sim.scenario.importers.entry import commented_yaml, import_files
    from ..sim.scenario.load import scenario_from_document

    imported = import_files(files, given or (), framework=framework, version=version)
    scenario_from_document(imported.document, files[0].stem)
    text = commented_yaml(imported, ", ".join(file.name for file in files))
    if out is None:
        typer.echo(text, nl=False)
        return
    save_text(out, text)
    for note in imported.notes:
        say(note, err=True)
    wrote("scenario", out)
