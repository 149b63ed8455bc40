"""The text of README and docs that repeats what the program says: made again, or checked.

    python docs/remake.py            writes it anew (make docs)
    python docs/remake.py --check    changes nothing; exit code 1 where something is out of date

Two kinds of text are looked after, in README.md and docs/*.md. A block is the output of a command:

    <!-- made by: stepsim run llama3.1-405b-16k; until: Exposed communication; keep: classes stand for -->
    ...
    <!-- end -->

``from`` and ``until`` cut it at the first line that begins so, ``keep`` adds later lines that hold those
words. What ends in ``--markdown`` is taken as it is, all else stands in a fence; times of the clock are left
out. Blocks of commands on measurements (``{shared}``, the folder STEPSIM_SHARED) take a minute, and stay as
they are where the folder is absent. A figure stands in a sentence, and is that of a constant of the code, the
default of a field, a figure of a command's JSON, or a cell of docs/accuracy.md:

    reach <!--= stepsim.sim.network.token_exchange._NETWORK_SHARE :: .0% -->88 %<!--/-->

The format is Python's, after a factor if one is wanted (``:: * 1e6 .1f``). ``accuracy: high trust, median``
is the first number of the first table with that row and that column; ``json: stepsim run X --json, events``
a field of a document.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared"))
BLOCK = re.compile(r"(<!-- made by: (?P<how>[^\n]*?) -->\n).*?(\n<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"(<!--= (?P<what>.*?) -->)(?P<stands>[^<]*)(<!--/-->)")
CLOCK = re.compile(r" in [\d.]+ s \([\d.]+ s in all\)")


def pages() -> list[Path]:
    """Every page that may hold such text."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def remade(text: str, *, quick: bool = False) -> str:
    """A page with its blocks and figures as the program has them now; ``quick`` leaves measurements alone."""

    def block(found: re.Match[str]) -> str:
        stays = "{shared}" in found["how"] and (quick or not SHARED.is_dir())
        return found[0] if stays else found[1] + made(found["how"]) + found[3]

    text = BLOCK.sub(block, text)
    return FIGURE.sub(lambda found: found[1] + figure(found["what"]) + found[4], text)


def made(how: str) -> str:
    """The output of a command, cut as its marker says."""
    command, *rest = how.split("; ")
    cuts = dict(part.split(": ", 1) for part in rest)
    lines = [line.rstrip() for line in CLOCK.sub("", output(command)).strip("\n").split("\n")]
    if command.endswith("--markdown"):
        return "\n".join(lines)
    first = line_that_begins(lines, cuts["from"]) if "from" in cuts else 0
    last = line_that_begins(lines, cuts["until"]) if "until" in cuts else len(lines)
    shown = "\n".join(lines[first:last]).rstrip("\n").split("\n")
    kept = [line for line in lines[last:] if "keep" in cuts and cuts["keep"] in line]
    return "\n".join(["```", *shown, *(["  ...", *kept] if kept else []), "```"])


def line_that_begins(lines: list[str], words: str) -> int:
    """Where such a line is. Raises ValueError where none is: the output has changed."""
    for number, line in enumerate(lines):
        if line.strip().startswith(words):
            return number
    raise ValueError(f"no line of the output begins with {words!r}")


@cache
def output(command: str) -> str:
    """What a command of the program prints, as into a pipe."""
    from typer.testing import CliRunner

    from stepsim.cli.main import app

    program, *arguments = shlex.split(command.format(shared=SHARED) if "{shared}" in command else command)
    if program != "stepsim":
        raise ValueError(f"{command}: only commands of stepsim are run")
    result = CliRunner().invoke(app, arguments)
    if result.exit_code > 1:  # 1 is an answer: no
        raise ValueError(f"{command} ended with {result.exit_code}: {result.output}")
    return result.stdout


def figure(what: str) -> str:
    """A number as the sentence has it; percents with their sign, as in ``88 %``."""
    source, _, how = what.partition(" :: ")
    factor, form = 1.0, how.strip()
    if form.startswith("* "):
        by, _, form = form[2:].partition(" ")
        factor = float(by)
    kind, _, where = source.partition(": ")
    value = {"accuracy": cell, "json": field}.get(kind, lambda _: constant(source))(where)
    return format(value * factor if factor != 1.0 else value, form).replace("%", " %")


def constant(path: str) -> Any:
    """``module.NAME``, ``module.NAME[key]``, or the default of a field, ``module.Class.field``."""
    dotted, _, key = path.rstrip("]").partition("[")
    module, _, name = dotted.rpartition(".")
    if module.rpartition(".")[2][:1].isupper():
        module, _, owner = module.rpartition(".")
        kind = getattr(import_module(module), owner)
        return kind.model_fields[name].default if hasattr(kind, "model_fields") else getattr(kind, name)
    found = getattr(import_module(module), name)
    return found[int(key) if key.isdigit() else key] if key else found


def field(which: str) -> Any:
    """A field of what a command prints with --json, by its dotted path."""
    command, _, path = which.rpartition(", ")
    found = json.loads(output(command))
    for name in path.split("."):
        found = found[name]
    return found


def cell(which: str) -> float:
    """The first number of a cell of docs/accuracy.md, percents as shares of one."""
    row, _, column = which.rpartition(", ")
    headings: list[str] = []
    for line in (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines():
        cells = [part.strip() for part in line.strip("| ").split(" | ")] if line.startswith("|") else []
        if not cells:
            headings = []
        elif not headings:
            headings = cells
        elif cells[0] == row and column in headings[1:]:
            found = re.match(r"[+-]?[\d,.]*\d( %)?", cells[headings.index(column)])
            if found is None:
                raise ValueError(f"docs/accuracy.md, {which}: {cells[headings.index(column)]!r} is no number")
            number = float(found[0].removesuffix(" %").replace(",", ""))
            return number / 100 if found[1] else number
    raise ValueError(f"docs/accuracy.md has no table with the row {row!r} and the column {column!r}")


def main(arguments: list[str]) -> int:
    """Write what is out of date, or with --check only name it."""
    stale = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        anew = remade(text)
        if anew == text:
            continue
        stale += 1
        print(f"{'out of date' if '--check' in arguments else 'written'}: {page.relative_to(ROOT)}")
        if "--check" not in arguments:
            page.write_text(anew, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
