"""Where commands write: JSON and tables to stdout, views to files, progress to stderr.

Knows no view; it guards files (no input is overwritten, folders are made, mistakes show before the
work starts) and keeps stdout clean for pipes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_STEERING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What orjson leaves as it is and a terminal may obey; in JSON these stand inside texts only."""

PICTURES = (".svg", ".png")
"""How names of pictures end; before it ``.dark`` asks for dark ground, as in ``step.dark.png``."""

PICTURE_NAME = "FILE.svg|FILE.png"

PIPED_WIDTH = 120  # columns of a table that is piped or written to a file


def echo_json(document: object) -> None:
    """Print ``document`` as JSON on stdout, keys in their own order."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(document, option=options).decode()
    except TypeError:  # half a surrogate pair, as names of files that are not UTF-8 have: json escapes it
        import json

        text = json.dumps(document, indent=2, default=float)
    typer.echo(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def console() -> Console:
    """A console on stdout that does not fold tables at 80 columns where nobody looks."""
    from rich.console import Console as RichConsole
    from rich.segment import Segment

    from ..hardware.shown import printable

    class Console(RichConsole):
        """Texts of users steer nothing: brackets are brackets, and control characters are escapes."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else Segment(printable(part.text), part.style)

        def on_broken_pipe(self) -> None:
            # rich would end the process with 1, which is "the answer is no".
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def output_file(
    option: str,
    path: Path | None,
    suffixes: tuple[str, ...],
    taken: Iterable[str | Path],
    *,
    appended: bool = False,
) -> None:
    """Check ``--option path`` and make its folder.

    ValueError when it ends in none of ``suffixes``, is a folder, or is one of the files already ``taken`` by
    the command's inputs and other outputs. From here on the command cannot read that file, by whatever name,
    unless rows are ``appended`` to it.
    """
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ValueError(f"{option} {path}: the file's name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder")
    if any(path.resolve() == Path(one).resolve() for one in taken):
        raise ValueError(f"{option} {path}: the command already uses this file; choose another")
    from ..hardware.files import make_folder_of, note_output

    make_folder_of(path)
    if not appended:
        note_output(path, option)


def is_folder(path: Path) -> bool:
    """Whether a user who writes ``path`` means a folder: there is one, or the name has no ending."""
    return path.is_dir() or not path.suffix


def output_folder(option: str, path: Path, taken: Iterable[str | Path]) -> None:
    """Make the folder ``--option path``; ValueError when it is a file, or holds what the command reads."""
    if path.is_file():
        raise ValueError(f"{option} {path}: is a file, and a folder is meant by a name without an ending")
    if any(path.resolve() in Path(one).resolve().parents for one in taken):
        raise ValueError(f"{option} {path}: the command reads a file in this folder; choose another")
    from ..hardware.files import make_folder_of

    make_folder_of(path / "file")


def save_text(path: Path, text: str, *, edits: bool = False) -> None:
    """Write ``text`` whole or not at all; ``edits``: it is made of what the file held. FileError if not."""
    from ..hardware.files import write_text

    write_text(path, text, edits=edits)


def save_picture(path: Path, svg: str) -> None:
    """Write a picture as its name asks for: SVG or PNG, on white or dark ground. FileError if not."""
    from ..hardware.files import write_bytes
    from ..sim.report.drawing.raster import dark, png

    drawn = dark(svg) if Path(path.stem).suffix == ".dark" else svg
    write_bytes(path, png(drawn) if path.suffix == ".png" else drawn.encode())


def there(field: str, files: Iterable[Path]) -> None:
    """ValueError naming the field for an input that is not a file."""
    from ..hardware.files import FileError, require_file

    for path in files:
        try:
            require_file(path)
        except FileError as error:
            raise ValueError(f"{field} {error}") from None


def say(text: str, *, err: bool = False) -> None:
    """Print a line that may hold names of users: control characters are shown, not obeyed."""
    from ..hardware.shown import printable

    typer.echo(printable(text), err=err)


def wrote(what: str, path: Path) -> None:
    """Tell that a view lies in ``path``, on stderr so that stdout stays clean for pipes."""
    say(f"{what}: {path}", err=True)


def status_line() -> Callable[[str], None] | None:
    """A function that shows what is going on, on one line of stderr; None when stderr is not a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(text: str) -> None:
        from ..hardware.shown import printable_line

        typer.echo(f"\r\033[K{printable_line(text)}", nl=False, err=True)

    return show


def clear_status() -> None:
    """Remove the line of ``status_line`` before results are printed."""
    if sys.stderr.isatty():
        typer.echo("\r\033[K", nl=False, err=True)
