"""Where commands write: JSON and tables to stdout, views to files, progress to stderr.

Knows no view; it guards files (no input is overwritten, folders are made, mistakes show before the
work starts) and keeps stdout clean for pipes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 120  # columns of a table that is piped or written to a file


def echo_json(document: object) -> None:
    """Print ``document`` as JSON on stdout, keys in their own order."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    typer.echo(orjson.dumps(document, option=options).decode())


def console() -> Console:
    """A console on stdout that does not fold tables at 80 columns where nobody looks."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)


def output_file(
    option: str, path: Path | None, suffixes: tuple[str, ...], taken: Iterable[str | Path]
) -> None:
    """Check ``--option path`` and make its folder.

    ValueError when it ends in none of ``suffixes``, is a folder, or is one of the files already ``taken`` by
    the command's inputs and other outputs.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ValueError(f"{option} {path}: the file's name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder")
    if any(path.resolve() == Path(one).resolve() for one in taken):
        raise ValueError(f"{option} {path}: the command already uses this file; choose another")
    path.parent.mkdir(parents=True, exist_ok=True)


def there(field: str, files: Iterable[Path]) -> None:
    """ValueError naming the field for an input that is no file."""
    for path in files:
        if not path.is_file():
            raise ValueError(f"{field} {path}: {'is a folder' if path.is_dir() else 'no such file'}")


def wrote(what: str, path: Path) -> None:
    """Tell that a view lies in ``path``, on stderr so that stdout stays clean for pipes."""
    typer.echo(f"{what}: {path}", err=True)


def status_line() -> Callable[[str], None] | None:
    """A function that shows what is going on, on one line of stderr; None when stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(text: str) -> None:
        typer.echo(f"\r\033[K{text}", nl=False, err=True)

    return show


def clear_status() -> None:
    """Remove the line of ``status_line`` before results are printed."""
    if sys.stderr.isatty():
        typer.echo("\r\033[K", nl=False, err=True)
