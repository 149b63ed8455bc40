"""Options of ``stepsim plan``, some of which ``sweep`` and ``sensitivity`` have too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..hardware.limits import LARGEST
from .output import PICTURE_NAME

TOP, AUDIT, OBJECTIVE, FITS, AXES = (
    5,
    20,
    "step-time",
    0.9,
    "layout",
)  # what a plan is like where nothing is said

FixOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        metavar="FIELD[=VALUE]",
        help="Keep a field, as in parallelism.tp=4; without a value the scenario's own, or a whole block's. "
        "Repeatable.",
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="FIELD=A,B,...",
        help="Try these values of any field, as in cluster.gpus=64,128. Repeatable.",
    ),
]
AxesOption = Annotated[
    str,
    typer.Option(
        "--axes",
        metavar="WHICH",
        help="layout, or all: with overlap switches, rank orders, shard sizes and some layers recomputed, "
        "where the framework has them as options.",
    ),
]
FitsOption = Annotated[
    float,
    typer.Option(
        "--fits", metavar="P", help="Propose layouts that fit with this probability or a larger one."
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, max=1024, help="Processes; default: one for each core."),
]
RayOption = Annotated[
    bool,
    typer.Option("--ray", help="Replay on a Ray cluster: that of RAY_ADDRESS, else one on this machine."),
]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE.jsonl", help="Keep every replay in this file, and go on from what it has."
    ),
]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change the scenario first, as in cluster.gpus=64. Repeatable.",
    ),
]
TopOption = Annotated[
    int, typer.Option("--top", "-k", metavar="K", min=1, max=100, help="How many layouts to propose.")
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        "--objective", metavar="WHAT", help="step-time, tokens-per-dollar, days or goodput (with faults)."
    ),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help="The token budget is to be done in it, as in 30d."),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="MONEY",
        min=0,
        help="The token budget is to cost no more, in the price's currency.",
    ),
]
FindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--find",
        metavar="WHAT",
        help="In place of a table: the fewest gpus, the longest seq_length, the largest micro_batch.",
    ),
]
AuditOption = Annotated[
    int,
    typer.Option(
        "--audit",
        metavar="N",
        min=0,
        max=LARGEST,
        help="Layouts ruled out that are replayed all the same.",
    ),
]
ReplaysOption = Annotated[
    int | None,
    typer.Option(
        "--replays",
        metavar="N",
        min=1,
        max=LARGEST,
        help="Most that the proof may take; then the best so far, and how much better another may be.",
    ),
]
EmitOption = Annotated[
    str | None,
    typer.Option(
        "--emit",
        metavar="FRAMEWORK",
        help="Write the best layout as the flags or the file of megatron-lm, torchtitan, nanotron, "
        "deepspeed or megatron-bridge; layouts that it cannot say are passed over.",
    ),
]
ToVersionOption = Annotated[
    str | None,
    typer.Option(
        "--to-version",
        metavar="VERSION",
        help="Of that framework; default: that of its own file that was read, else the newest known.",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="With --emit: write it there.")
]
ReplaysCsvOption = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write all that was replayed.")
]
ParquetOption = Annotated[
    Path | None, typer.Option("--parquet", metavar="FILE.parquet", help="The same as Parquet.")
]
FrontPictureOption = Annotated[
    Path | None,
    typer.Option("--picture", metavar=PICTURE_NAME, help="Draw the front and what was replayed."),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", metavar="DIR", help="Write a scenario file for each choice.")
]


def refuse_idle_fits(fits: float, replan: bool) -> None:
    """ValueError for a probability that nothing is held to: a layout that stands as it is is proposed by
    nobody."""
    if fits != FITS and not replan:
        raise ValueError(
            "--fits is what a plan proposes by; give it with --replan, or leave it out: each point tells its "
            "own fit_probability (--json, --csv)"
        )


def refuse_idle_journal(journal: Path | None, replan: bool) -> None:
    """ValueError for a journal of no plan: it keeps the replays of searches, and there is none."""
    if journal is not None and not replan:
        raise ValueError("--journal keeps replays of plans; give it with --replan, or leave it out")
