"""Commands are built once a process: typer builds all anew at every call, six times what most calls take."""

from __future__ import annotations

from functools import cache

import typer.main
import typer.testing


def build_commands_once() -> None:
    """Let apps keep what typer makes of them, for calls in this process and in its forks."""
    if not hasattr(typer.main.get_command, "cache_info"):
        kept = cache(typer.main.get_command)
        typer.main.get_command = kept
        typer.testing._get_command = kept
