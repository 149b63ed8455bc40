"""``stepsim export``: a scenario as another framework's flags or file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import output_file, save_text, wrote
from .sources import (
    SOURCE_HELP,
    FrameworkOption,
    GivenOption,
    SourceFacts,
    VersionOption,
    WithOption,
    load_any,
)
from .views import SetOption


def export_scenario(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help=SOURCE_HELP)],
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

    What is written reads back as the same run; what the framework cannot say is refused by field.
    """
    output_file("--out", out, (".sh", ".toml", ".yaml", ".yml"), [scenario])

    from ..sim.scenario.importers.export import export

    beside = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    text = export(load_any(scenario, overrides or (), beside), to, to_version)
    if out is None:
        typer.echo(text, nl=False)
        return
    save_text(out, text)
    wrote("file", out)
