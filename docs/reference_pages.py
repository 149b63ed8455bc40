"""Makes docs/{commands,scenario,python}.md and scenarios/scenario.schema.json from the program itself.

python docs/reference_pages.py            writes them anew (make docs)
python docs/reference_pages.py --check    changes nothing; exit code 1 where one is out of date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def commands_page() -> str:
    """Every command with its usage, meaning, arguments, options and examples."""
    import typer

    from stepsim.cli.main import app

    lines = ["# Commands", "", "What `stepsim COMMAND --help` says, on one page. Made by `make docs`.", ""]
    group = typer.main.get_command(app)
    lines += [str(group.epilog), ""]
    for words, command in _commands(group):
        lines += [f"## stepsim {words}", "", *_paragraphs(command.help or ""), ""]
        lines += _parameters(command)
        if examples := (command.epilog or "").partition("Examples:\n")[2]:
            lines += ["```", *(line.strip() for line in examples.splitlines()), "```", ""]
    return "\n".join(lines)


def _commands(group: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        if words.endswith("schedule ") and name not in ("compare", "gallery"):
            continue  # one for each schedule, all alike
        if hasattr(one, "commands"):
            yield from _commands(one, f"{words}{name} ")
        else:
            yield f"{words}{name}", one


def _paragraphs(text: str) -> list[str]:
    return [line.replace("<", "&lt;") for line in inspect.cleandoc(text).replace("\b\n", "").splitlines()]


def _parameters(command: Any) -> list[str]:
    rows = []
    for one in command.params:
        if one.name == "help":
            continue
        record = getattr(one, "help", None) or ""
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        if one.param_type_name == "argument":
            names = f"`{one.metavar or (one.name or '').upper()}`"
        elif not one.is_flag and one.metavar:
            names += f" `{one.metavar}`"
        rows.append(f"| {names.replace('|', chr(92) + '|')} | {record.replace('|', chr(92) + '|')} |")
    return ["| argument or option | meaning |", "| --- | --- |", *rows, ""] if rows else []


def python_page() -> str:
    """Every public name of the package with its signature and docstring."""
    import stepsim

    lines = ["# Python", "", "What `import stepsim` offers. Made by `make docs` from the docstrings.", ""]
    lines += ["```text", *inspect.cleandoc(stepsim.__doc__ or "").splitlines(), "```", ""]
    for name in stepsim.__all__:
        if name.startswith("_"):
            continue
        thing = getattr(stepsim, name)
        lines += [f"## stepsim.{name}", ""]
        if inspect.isfunction(thing):
            lines += ["```python", f"{name}{inspect.signature(thing)}", "```", ""]
        lines += ["```text", *inspect.cleandoc(thing.__doc__ or "").splitlines(), "```", ""]
        lines += _members(name, thing)
    return "\n".join(lines)


def _members(name: str, thing: Any) -> list[str]:
    """Public methods and properties of a class that have a docstring of their own."""
    if not inspect.isclass(thing):
        return []
    rows = []
    for member, value in vars(thing).items():
        text = inspect.getdoc(value) if not member.startswith("_") else None
        if text and (inspect.isfunction(value) or isinstance(value, property)):
            call = "()" if inspect.isfunction(value) else ""
            rows.append(f"| `{name}.{member}{call}` | {' '.join(text.split(chr(10) * 2)[0].split())} |")
    escaped = [row.replace("||", "\\|\\|") for row in rows]
    return ["| member | meaning |", "| --- | --- |", *escaped, ""] if rows else []


def fields_page() -> str:
    """Every field of a scenario, as `stepsim schema --markdown` prints them."""
    from stepsim.sim.scenario.page import scenario_page

    return scenario_page()


def schema_file() -> str:
    """What `stepsim schema` prints, which lies beside the shipped scenarios for editors."""
    import orjson

    from stepsim.sim.scenario.editor_schema import editor_schema

    return orjson.dumps(editor_schema(), option=orjson.OPT_INDENT_2).decode()


PAGES = {
    "docs/commands.md": commands_page,
    "docs/scenario.md": fields_page,
    "docs/python.md": python_page,
    "scenarios/scenario.schema.json": schema_file,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check only tell which are out of date."""
    stale = 0
    for name, make in PAGES.items():
        path, text = ROOT / name, make().rstrip("\n") + "\n"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'out of date' if '--check' in arguments else 'written'}: {name}")
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
