"""``stepsim export``: a scenario as another framework's flags or file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import SetOption
from .output import output_file, save_text, say, wrote
from .sources import (
    FrameworkOption,
    GivenOption,
    SourceArgument,
    SourceFacts,
    VersionOption,
    WithOption,
    load_any,
)


def export_scenario(
    scenario: SourceArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FRAMEWORK",
            help="megatron-lm, torchtitan, nanotron, deepspeed or megatron-bridge.",
        ),
    ],
    to_version: Annotated[
        str | None,
        typer.Option("--to-version", metavar="VERSION", help="Of that framework; default: the newest known."),
    ] = None,
    overrides: SetOption = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write it there.")] = None,
) -> None:
    """Write a scenario as another framework's launch script or configuration.

    What is written reads back as the same run; what the framework cannot say is refused by field. A software
    preset of another framework, and where the job lies on its machine, are in no file: a note tells them.
    """
    output_file("--out", out, (".sh", ".toml", ".yaml", ".yml"), [scenario])

    from ..sim.scenario.importers.export import export, left_out

    beside = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    loaded = load_any(scenario, overrides or (), beside)
    text = export(loaded, to, to_version)
    for note in left_out(text, loaded, to, to_version):
        say(note, err=True)
    if out is None:
        typer.echo(text, nl=False)
        return
    save_text(out, text)
    wrote("file", out)
