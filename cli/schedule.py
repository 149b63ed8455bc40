"""``stepsim schedule``: pipeline schedules by themselves, one, all side by side, or as a page of pictures.

``schedule NAME`` has no command's name between: what is no command is a schedule's name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..hardware.limits import LARGEST
from .mistakes import reported
from .options import JsonOption
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, save_text, wrote
from .progress import progress

if TYPE_CHECKING:
    from ..schedules.orders.schedule import Costs
    from ..sim.report.schedules.timed import TimedSchedule

ONE = "NAME"


class ByName(TyperGroup):
    """A group whose unknown commands are names of schedules."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ONE)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Names are looked up when someone asks for them, never for ``stepsim --help``."""
        del ctx
        from ..schedules.pipeline import names

        with formatter.section("Names"):
            formatter.write_text(", ".join(names()))
            formatter.write_text(
                "or a table of your own, FILE.csv; stepsim schedule NAME --help has the options"
            )


schedule = typer.Typer(
    cls=ByName,
    help="Show a pipeline schedule, compare all of them, or write their gallery.",
    no_args_is_help=True,
    rich_markup_mode=None,
    subcommand_metavar="NAME|FILE.csv|compare|gallery [OPTIONS]",
)

Ranks = Annotated[int | None, typer.Option("-p", "--ranks", metavar="P", max=LARGEST, help="Pipeline ranks.")]
Microbatches = Annotated[
    int | None, typer.Option("-m", "--microbatches", metavar="M", max=LARGEST, help="Microbatches of a step.")
]
Group = Annotated[
    int | None,
    typer.Option(
        "--group", metavar="N", max=LARGEST, help="Microbatches per group of interleaved schedules."
    ),
]
Forward = Annotated[int, typer.Option("--tf", metavar="T", min=0, max=LARGEST, help="Time of a forward.")]
InputGrad = Annotated[
    int, typer.Option("--tb", metavar="T", min=0, max=LARGEST, help="Time of an input gradient.")
]
WeightGrad = Annotated[
    int, typer.Option("--tw", metavar="T", min=0, max=LARGEST, help="Time of a weight gradient.")
]
Latency = Annotated[
    int, typer.Option("--tc", metavar="T", min=0, max=LARGEST, help="Time of a message; blocks no rank.")
]
SvgOption = Annotated[
    Path | None, typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Write the picture.")
]


def one(
    ctx: typer.Context,
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    chunks: Annotated[
        int | None,
        typer.Option(
            "-v", "--chunks", metavar="V", help="Chunks per rank.", show_default="the schedule's own"
        ),
    ] = None,
    group: Group = None,
    forward: Forward = 1,
    input_grad: InputGrad = 1,
    weight_grad: WeightGrad = 1,
    latency: Latency = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            "--memory-limit",
            metavar="X",
            help="Chunk activations that a rank may hold, for a search (a forward keeps one until its W).",
        ),
    ] = None,
    svg: SvgOption = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write the orders, a line for each rank.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one schedule: timeline, bubble, peak activations. Times are whole numbers, those of one chunk."""
    name = ctx.info_name or ""
    output_file("--picture", svg, PICTURES, [name])
    output_file("--csv", table, (".csv",), [name])

    from ..sim.report.schedules.document import schedule_document
    from ..sim.scenario.table_files import write_table

    costs = _costs(forward, input_grad, weight_grad, latency)
    if name.lower().endswith(".csv"):
        shaping = {"-p": ranks, "-m": microbatches, "-v": chunks, "--group": group, "--memory-limit": limit}
        shown = _from_file(Path(name), costs, shaping)
    else:
        shown = _registered(name, costs, ranks, microbatches, chunks, group, limit)
    if svg:
        from ..sim.report.schedules.picture import schedule_svg

        save_picture(svg, schedule_svg(shown))
    if table:
        write_table(shown.orders, table)
    if as_json:
        echo_json(schedule_document(shown))
    else:
        from ..sim.report.schedules.tables import print_schedule

        print_schedule(shown, console())
    for what, path in (("picture", svg), ("orders", table)):
        if path:
            wrote(what, path)


def compare(
    ranks: Ranks = None,
    microbatches: Microbatches = None,
    chunks: Annotated[
        int,
        typer.Option(
            "-v",
            "--chunks",
            metavar="V",
            min=1,
            max=LARGEST,
            help="Chunks per rank, where a schedule leaves the choice.",
        ),
    ] = 2,
    group: Group = None,
    forward: Forward = 1,
    input_grad: InputGrad = 1,
    weight_grad: WeightGrad = 1,
    latency: Latency = 0,
    limit: Annotated[
        int | None,
        typer.Option(
            "--memory-limit",
            metavar="X",
            min=1,
            max=LARGEST,
            help="Activations of a whole stage that a rank may hold, for a search.",
        ),
    ] = None,
    svg: SvgOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare all schedules on the same work per rank. Times are those of a whole stage (v chunks)."""
    output_file("--picture", svg, PICTURES, [])

    from ..schedules.pipeline import get, names
    from ..sim.report.schedules.compare import ComparisonShape, entries
    from ..sim.report.schedules.compare_table import comparison_rows, print_comparison

    p, m = _shape("stepsim schedule compare", ranks, microbatches, chunks, schedules=len(names()))
    asked = ComparisonShape(
        ranks=p,
        microbatches=m,
        chunks=chunks,
        group=group,
        costs=_costs(forward, input_grad, weight_grad, latency),
        limit=limit,
    )
    with progress() as status:
        status(f"{len(names())} schedules of {p:,} ranks and {m:,} microbatches")
        found = entries([get(name) for name in names()], asked)
    if svg:
        from ..sim.report.schedules.compare_picture import comparison_svg

        save_picture(svg, comparison_svg(found, asked))
    if as_json:
        echo_json(comparison_rows(found))
    else:
        print_comparison(found, asked, console())
    if svg:
        wrote("picture", svg)


def gallery(
    page: Annotated[Path, typer.Argument(metavar="PAGE.md", help="Pictures go into a folder beside it.")],
) -> None:
    """Write the page of all schedules, with their pictures."""
    output_file("PAGE", page, (".md",), [])

    from ..hardware.files import make_folder_of
    from ..sim.report.schedules.gallery import gallery_files

    files = gallery_files(page.stem)
    for name, content in files.items():
        path = page.parent / name
        make_folder_of(path)
        save_text(path, content)
    wrote(f"page and {len(files) - 1} pictures", page)


schedule.command(ONE)(reported(one))
schedule.command("compare")(reported(compare))
schedule.command("gallery")(reported(gallery))


def _registered(
    name: str,
    costs: Costs,
    ranks: int | None,
    microbatches: int | None,
    chunks: int | None,
    group: int | None,
    limit: int | None,
) -> TimedSchedule:
    from ..schedules.orders.schedule import ActivationUnits, Shape
    from ..schedules.pipeline import get
    from ..sim.report.schedules.timed import timed

    found = get(name)
    v = found.chunks if chunks is None else chunks
    p, m = _shape(f"stepsim schedule {name}", ranks, microbatches, v)
    try:
        shape = Shape(
            ranks=p, microbatches=m, chunks=v, group=group, costs=costs, memory=ActivationUnits(limit=limit)
        )
        found.check(shape)
    except ValueError as refusal:
        raise ValueError(_with_options(str(refusal))) from None
    return timed(found, shape)


_OPTIONS = {"ranks": "-p", "microbatches": "-m", "chunks": "-v", "group": "--group"}


def _with_options(message: str) -> str:
    """A schedule's own message, its fields as the options of this command."""
    message = re.sub(r"\b(ranks|microbatches|chunks|group)=", lambda m: f"{_OPTIONS[m[1]]} ", message)
    return re.sub(r"(?<=needs )(ranks|microbatches|chunks|group)(?= of)", lambda m: _OPTIONS[m[1]], message)


def _from_file(path: Path, costs: Costs, shaping: dict[str, int | None]) -> TimedSchedule:
    """A table of the user's own, which says its shape itself."""
    given = [option for option, value in shaping.items() if value is not None]
    if given:
        raise ValueError(f"{path}: a table says its own shape; leave out {', '.join(given)}")
    from ..sim.report.schedules.timed import timed_table
    from ..sim.scenario.table_files import read_table

    table = read_table(path)
    return timed_table(path.stem, table.orders, replace(table.shape, costs=costs), table.rank_of)


def _costs(forward: int, input_grad: int, weight_grad: int, latency: int) -> Costs:
    from ..schedules.orders.schedule import Costs

    if forward + input_grad + weight_grad == 0:
        raise ValueError("--tf, --tb and --tw are all 0: there is nothing to time; give one of them a time")
    return Costs(forward=forward, input_grad=input_grad, weight_grad=weight_grad, latency=latency)


SCHEDULES_IN_SLOTS = 5
"""So many of all schedules do: zb-v, zb-v-greedy, v-1f1b, v-half, v-min."""


MOST_ACTIONS = 3_000_000
"""Actions of a schedule that this command lists: half a minute and a gigabyte (p 512, m 1024, v 2)."""


SLOTS_PER_ACTION = 5
"""A pipeline of p ranks fills and drains in some p slots of time on each of them. Schedules that lay their
actions out in slots look at every one, in about a fifth of the time that an action takes."""


def _shape(
    command: str, ranks: int | None, microbatches: int | None, chunks: int, schedules: int = 1
) -> tuple[int, int]:
    if ranks is None or microbatches is None:
        raise ValueError(f"{command} needs -p (ranks) and -m (microbatches), as in -p 4 -m 8")
    for option, value in (("-p", ranks), ("-m", microbatches), ("-v", chunks)):
        if value < 1:
            raise ValueError(f"{option} {value}: expected at least 1")
    actions = 3 * ranks * microbatches * chunks * schedules
    slots = 3 * ranks * ranks * chunks * min(schedules, SCHEDULES_IN_SLOTS)
    if actions + slots // SLOTS_PER_ACTION > MOST_ACTIONS:
        raise ValueError(
            f"-p {ranks} -m {microbatches} -v {chunks}: {actions:,} actions on {ranks:,} ranks are too many "
            f"to list (a short pipeline may have {MOST_ACTIONS:,}); take fewer"
        )
    return ranks, microbatches
