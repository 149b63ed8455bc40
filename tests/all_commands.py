"""Every command and option of stepsim, as typer has them."""

from __future__ import annotations

import click
import typer

from stepsim.cli.main import app

GROUP = typer.main.get_command(app)


def commands(group: object, words: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command that does something, by its words."""
    found: dict[str, click.Command] = {}
    for name, one in getattr(group, "commands", {}).items():
        inner = commands(one, (*words, name))
        found |= inner or {" ".join((*words, name)): one}
    return found
