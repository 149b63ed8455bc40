"""``stepsim list``: the names that a scenario may use."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from .. import api
from .options import JsonOption
from .output import echo_json


class ListedKind(StrEnum):
    """What can be listed, in the order in which all of it is."""

    SCENARIOS = "scenarios"
    MODELS = "models"
    GPUS = "gpus"
    INTERCONNECTS = "interconnects"
    SOFTWARE = "software"
    SCHEDULES = "schedules"
    OPTIMIZERS = "optimizers"
    FAULTS = "faults"
    FAULT_PRESETS = "fault-presets"


def list_names(
    kind: Annotated[ListedKind | None, typer.Argument(help="What to list; everything if left out.")] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="With gpus: all of one GPU. With software: one preset, and what it implies."),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="With software: all presets as docs/software.md has them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List shipped scenarios, models, hardware, software presets, schedules, optimizers and faults."""
    if name is not None and kind is ListedKind.GPUS and not markdown:
        _show_gpu(name, as_json)
        return
    if name is not None or markdown:
        _show_software(kind, name, markdown, as_json)
        return
    names = {str(one): api.list_names(one.value) for one in ([kind] if kind else ListedKind)}
    if as_json:
        echo_json(names | _figures() if kind is ListedKind.GPUS else names)
    elif kind:
        typer.echo("\n".join(_described(kind, names[kind])))
    else:
        typer.echo("\n\n".join("\n  ".join([title, *known]) for title, known in names.items()))


def _figures() -> dict[str, object]:
    """Every GPU with its figures."""
    from ..sim.report.gpus import gpus_document

    return {"figures": gpus_document()}


def _show_gpu(name: str, as_json: bool) -> None:
    """Every figure of one GPU."""
    from ..sim.report.gpus import gpu_document, gpu_text

    if as_json:
        echo_json(gpu_document(name))
    else:
        typer.echo(gpu_text(name))


def _show_software(kind: ListedKind | None, name: str | None, markdown: bool, as_json: bool) -> None:
    """What one preset implies, or the page of all."""
    from ..sim.report.software import software_document, software_page, software_text

    if kind is not ListedKind.SOFTWARE:
        what = repr(name) if name else "--markdown"
        raise ValueError(
            f"list {kind or ''} {what}: only gpus and software have more to say, as in list software NAME"
        )
    if markdown:
        if name or as_json:
            raise ValueError("--markdown prints all presets: give it no name, and no --json")
        typer.echo(software_page())
    elif as_json:
        echo_json(software_document(str(name)))
    else:
        typer.echo(software_text(str(name)))


def _described(kind: ListedKind, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names; schedules, kinds of faults and software with their titles."""
    width = max(map(len, names)) + 2
    match kind:
        case ListedKind.SCHEDULES:
            from ..schedules.pipeline import get

            return tuple(f"{name:<{width}}{get(name).title}" for name in names)
        case ListedKind.FAULTS:
            from ..sim.scenario.faults.kinds import get_kind

            return tuple(f"{name:<{width}}{get_kind(name).title}" for name in names)
        case ListedKind.SOFTWARE:
            from ..sim.scenario.software import get_software

            return tuple(_folded(f"{name:<{width}}", get_software(name).title) for name in names)
        case ListedKind.GPUS:
            return _gpu_table(names)
        case ListedKind.OPTIMIZERS:
            return _optimizer_table(names)
        case _:
            return names


def _gpu_table(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each GPU with its memory, its dense peaks, its links per direction, its price and what was measured."""
    from ..sim.report.gpus import gpu_lines

    return gpu_lines(names)


def _optimizer_table(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each optimizer with the FP32 state and the work of its update for a parameter, and its title."""
    from ..sim.scenario.optimizers import get_optimizer

    rows = []
    for one in map(get_optimizer, names):
        kept = f"{one.state_bytes(4)} B" + (" + rows and columns" if one.factors else "")
        rows.append((one.name, kept, f"{one.flops} FLOPs", one.title))
    first, second, third, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    return tuple(_folded(f"{a:<{first}}  {b:<{second}}  {c:>{third}}  ", d) for a, b, c, d in rows)


def _folded(head: str, title: str) -> str:
    """A title behind its name, in the width of a terminal; a line for each name where a program reads it."""
    from textwrap import fill

    width = terminal_columns()
    if width is None:
        return head + title
    return fill(title, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)


def terminal_columns() -> int | None:
    """Columns of the terminal on stdout, 80 at least; None where that is none."""
    import shutil

    return max(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
