"""Options and arguments that several commands have, each written once; and how wrong ones are refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ..hardware.limits import LARGEST

CORES = os.cpu_count() or 1

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A shipped scenario's name or a YAML file.")
]
MeasuredCasesArgument = Annotated[
    list[Path] | None, typer.Argument(metavar="[CASES.yaml...]", help="Files of measured cases.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Change one field, as in parallelism.tp=4. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")]
MaxEventsOption = Annotated[
    int | None,
    typer.Option(
        "--max-events",
        metavar="N",
        min=1,
        max=LARGEST,
        help="Refuse work that is estimated at more events; default: an hour's worth, and what memory holds.",
    ),
]
ProcessesOption = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, max=1024, help="Processes to use.", show_default="one a core"
    ),
]


def refuse_where(wrong: Mapping[str, object]) -> None:
    """ValueError with the first text of ``wrong`` whose condition, its value, holds."""
    for text, holds in wrong.items():
        if holds:
            raise ValueError(text)
