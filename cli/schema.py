"""``stepsim schema``: the JSON Schema of scenario files and of profile files, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import echo_json


def schema(
    profile: Annotated[
        bool, typer.Option("--profile", help="Of profile files (calibration) in place of scenarios.")
    ] = False,
) -> None:
    """Print the JSON Schema of scenario files."""
    if profile:
        from ..hardware.calibrated.schema import json_schema as profile_schema

        echo_json(profile_schema())
        return

    from ..sim.scenario.schema import json_schema

    echo_json(json_schema())
