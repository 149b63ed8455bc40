"""``stepsim schema``: the JSON Schema of scenario files and of profile files, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import echo_json


def schema(
    profile: Annotated[
        bool, typer.Option("--profile", help="Of profile files (calibration) in place of scenarios.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Every field of scenarios as a page (docs/scenario.md).")
    ] = False,
) -> None:
    """Print the JSON Schema of scenario files."""
    if profile and markdown:
        raise ValueError("--markdown is of scenarios; docs/calibration.md has the fields of profiles")
    if markdown:
        from ..sim.scenario.page import scenario_page

        typer.echo(scenario_page(), nl=False)
        return
    if profile:
        from ..hardware.calibrated.schema import json_schema as profile_schema

        echo_json(profile_schema())
        return

    from ..sim.scenario.editor_schema import editor_schema

    echo_json(editor_schema())
