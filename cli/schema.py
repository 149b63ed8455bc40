"""``stepsim schema``: the JSON Schema of scenario files, for editors."""

from __future__ import annotations

from .output import echo_json


def schema() -> None:
    """Print the JSON Schema of scenario files."""
    from ..sim.scenario.schema import json_schema

    echo_json(json_schema())
