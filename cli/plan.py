"""``stepsim plan``: the best layouts of a scenario, proven, and why others lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..hardware.limits import LARGEST
from .exit_codes import INTERRUPTED
from .output import (
    PICTURE_NAME,
    PICTURES,
    console,
    echo_json,
    output_file,
    output_folder,
    save_picture,
    save_text,
    say,
    wrote,
)
from .progress import progress
from .sources import (
    SOURCE_HELP,
    FrameworkOption,
    GivenOption,
    LoadedSource,
    SourceFacts,
    VersionOption,
    WithOption,
    load_source,
)
from .views import JsonOption

if TYPE_CHECKING:
    from ..sim.plan.search.emission import Emission
    from ..sim.plan.search.layout_plan import LayoutPlan
    from ..sim.plan.search.plan import Means
    from ..sim.plan.search.searching import Wishes
    from ..sim.scenario.models import Scenario

TOP, AUDIT, OBJECTIVE = 5, 20, "step-time"  # what a plan is like where nothing is said

NOTHING_FITS = 1

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


def plan(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help=SOURCE_HELP)],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Change the scenario first, as in cluster.gpus=64. Repeatable.",
        ),
    ] = None,
    fix: FixOption = None,
    vary: VaryOption = None,
    top: Annotated[
        int, typer.Option("--top", "-k", metavar="K", min=1, max=100, help="How many layouts to propose.")
    ] = TOP,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", metavar="WHAT", help="step-time, tokens-per-dollar, days or goodput (with faults)."
        ),
    ] = OBJECTIVE,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="The token budget is to be done in it, as in 30d."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="MONEY",
            min=0,
            help="The token budget is to cost no more, in the price's currency.",
        ),
    ] = None,
    fits: FitsOption = 0.9,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            metavar="WHAT",
            help="In place of a table: the fewest gpus, the longest seq_length, the largest micro_batch.",
        ),
    ] = None,
    audit: Annotated[
        int,
        typer.Option(
            "--audit",
            metavar="N",
            min=0,
            max=LARGEST,
            help="Layouts ruled out that are replayed all the same.",
        ),
    ] = AUDIT,
    replays: Annotated[
        int | None,
        typer.Option(
            "--replays",
            metavar="N",
            min=1,
            max=LARGEST,
            help="Most that the proof may take; then the best so far, and how much better another may be.",
        ),
    ] = None,
    jobs: JobsOption = None,
    ray: RayOption = False,
    journal: JournalOption = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="FRAMEWORK",
            help="Write the best layout as the flags or the file of megatron-lm, torchtitan, nanotron, "
            "deepspeed or megatron-bridge; layouts that it cannot say are passed over.",
        ),
    ] = None,
    to_version: Annotated[
        str | None,
        typer.Option(
            "--to-version",
            metavar="VERSION",
            help="Of that framework; default: that of its own file that was read, else the newest known.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="With --emit: write it there.")
    ] = None,
    as_json: JsonOption = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write all that was replayed.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE.parquet", help="The same as Parquet.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar=PICTURE_NAME, help="Draw the front and what was replayed."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="DIR", help="Write a scenario file for each choice.")
    ] = None,
) -> None:
    """Find the best layouts of a scenario, prove that no other is better, and say why others lost.

    Exit code 1 when nothing fits, or nothing meets the deadline and the budget.
    """
    inputs = [scenario, *(files or ())]
    outputs = {
        "--csv": (csv, (".csv",)),
        "--parquet": (parquet, (".parquet",)),
        "--picture": (picture, PICTURES),
    }
    for option, (path, suffixes) in outputs.items():
        output_file(option, path, suffixes, inputs)
    output_file("--journal", journal, (".jsonl",), inputs, appended=True)
    output_file("--out", out, (".sh", ".toml", ".yaml", ".yml"), inputs)
    if emit is None and (out or to_version):
        raise ValueError(
            "--out and --to-version are of a framework's file: name it, as in --emit megatron-lm"
        )
    if save:
        output_folder("--save", save, ())
    if find is not None:
        files_of_plans = {option: path for option, (path, _) in outputs.items()}
        steered = {"--top": top != TOP, "--audit": audit != AUDIT, "--objective": objective != OBJECTIVE}
        _refuse_of_plans({**files_of_plans, "--save": save, "--emit": emit, "--replays": replays, **steered})

    from ..hardware.quantities import quantity_of
    from ..sim.plan.axis_values import fixed, varied
    from ..sim.plan.search.plan import Means, planned, wishes_of
    from ..sim.scenario.errors import changes_named

    beside = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    loaded = load_source(scenario, overrides or (), beside)
    base = loaded.scenario
    wishes = wishes_of(
        top=top,
        objective=objective,
        deadline_s=None if deadline is None else quantity_of("--deadline", deadline, "seconds"),
        budget=budget,
        fits=fits,
        audit=audit,
        replays=replays,
        emission=_emission(emit, to_version, loaded),
    )
    means = Means(jobs=jobs, ray=ray, journal=journal)
    asked = fixed(fix or (), base), varied(vary or ())
    if find is not None:
        _find(find, base, *asked, wishes, means, as_json)
        return
    with progress() as status, changes_named("--fix, --vary"):
        found = planned(base, *asked, wishes, means, status)
    _write(found, csv, parquet, picture, save, out)
    if as_json:
        echo_json(found.to_dict())
    else:
        from ..sim.report.plan.table import print_plan

        print_plan(found, console(), scenario, overrides or (), beside.words(), whole=out is None)
    if found.certificate.interrupted:
        say("interrupted: this is the best so far", err=True)
        raise typer.Exit(INTERRUPTED)
    if not found.found:
        raise typer.Exit(NOTHING_FITS)


def _refuse_of_plans(given: Mapping[str, object]) -> None:
    """ValueError for an option that says what a plan is like, which one number is not."""
    for option, asked_for in given.items():
        if asked_for not in (None, False):
            raise ValueError(
                f"{option} is of the best layouts, and --find asks for one number; leave one of both out"
            )


def _emission(framework: str | None, version: str | None, read: LoadedSource) -> Emission | None:
    """The words of the answer: of the version that was read, where it was a file of the same framework."""
    if framework is None:
        return None
    from ..sim.plan.search.emission import Emission
    from ..sim.scenario.importers.registry import EXPORTERS

    same = read.version if read.framework == framework and EXPORTERS.get(framework).versioned else None
    return Emission(framework=framework, version=version or same)


def _write(
    found: LayoutPlan,
    csv: Path | None,
    parquet: Path | None,
    picture: Path | None,
    save: Path | None,
    out: Path | None,
) -> None:
    """The files that were asked for; before tables, whose reader may leave early."""
    from ..sim.report.plan.command import save_choices
    from ..sim.report.plan.rows import write_replays

    for path in (csv, parquet):
        if path:
            write_replays(found, path)
            wrote("layouts", path)
    if picture and found.found:
        from ..sim.report.plan.picture import plan_svg

        save_picture(picture, plan_svg(found))
        wrote("picture", picture)
    if out and found.emitted is not None:
        save_text(out, found.emitted)
        wrote("file", out)
    if save:
        for path in save_choices(found, save):
            wrote("scenario", path)


def _find(
    what: str,
    base: Scenario,
    fix: dict[str, Any],
    vary: dict[str, list[Any]],
    wishes: Wishes,
    means: Means,
    as_json: bool,
) -> None:
    """One number in place of a plan."""
    from ..sim.plan.questions.find import find
    from ..sim.report.plan.found import found_document, print_found
    from ..sim.scenario.errors import changes_named

    with progress() as status, changes_named("--fix, --vary"):
        answer = find(what, base, fix, vary, wishes, means=means, progress=status)
    if as_json:
        echo_json(found_document(answer))
    else:
        print_found(answer, console())
    if answer.value is None:
        raise typer.Exit(NOTHING_FITS)
