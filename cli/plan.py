"""``stepsim plan``: the best layouts of a scenario, proven, and why others lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .exit_codes import INTERRUPTED
from .options import JsonOption
from .output import (
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
from .plan_options import (
    AUDIT,
    AXES,
    FITS,
    OBJECTIVE,
    TOP,
    AuditOption,
    AxesOption,
    BudgetOption,
    ChangesOption,
    DeadlineOption,
    EmitOption,
    FindOption,
    FitsOption,
    FixOption,
    FrontPictureOption,
    JobsOption,
    JournalOption,
    ObjectiveOption,
    OutOption,
    ParquetOption,
    RayOption,
    ReplaysCsvOption,
    ReplaysOption,
    SaveOption,
    TopOption,
    ToVersionOption,
    VaryOption,
)
from .progress import progress
from .sources import (
    FrameworkOption,
    GivenOption,
    LoadedSource,
    SourceArgument,
    SourceFacts,
    VersionOption,
    WithOption,
    load_source,
)

if TYPE_CHECKING:
    from ..sim.plan.search.emission import Emission
    from ..sim.plan.search.layout_plan import LayoutPlan
    from ..sim.plan.search.plan import Means
    from ..sim.plan.search.searching import Wishes
    from ..sim.scenario.models import Scenario

NOTHING_FITS = 1


def plan(
    scenario: SourceArgument,
    overrides: ChangesOption = None,
    fix: FixOption = None,
    vary: VaryOption = None,
    axes: AxesOption = AXES,
    top: TopOption = TOP,
    objective: ObjectiveOption = OBJECTIVE,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    fits: FitsOption = FITS,
    find: FindOption = None,
    audit: AuditOption = AUDIT,
    replays: ReplaysOption = None,
    jobs: JobsOption = None,
    ray: RayOption = False,
    journal: JournalOption = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    emit: EmitOption = None,
    to_version: ToVersionOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    csv: ReplaysCsvOption = None,
    parquet: ParquetOption = None,
    picture: FrontPictureOption = None,
    save: SaveOption = None,
) -> None:
    """Find the best layouts of a scenario, prove that no other is better, and say why others lost.

    Exit code 1 when nothing fits, or nothing meets the deadline and the budget.
    """
    outputs = PlanFiles(csv=csv, parquet=parquet, picture=picture, journal=journal, out=out, save=save)
    outputs.check([scenario, *(files or ())])
    if emit is None and (out or to_version):
        raise ValueError(
            "--out and --to-version are of a framework's file: name it, as in --emit megatron-lm"
        )
    sought = _sought(find or ())
    if sought is not None:
        steered = {"--top": top != TOP, "--audit": audit != AUDIT, "--objective": objective != OBJECTIVE}
        _refuse_of_plans({**outputs.of_plans(), "--emit": emit, "--replays": replays, **steered})

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
        axes=axes,
    )
    means = Means(jobs=jobs, ray=ray, journal=journal)
    asked = fixed(fix or (), base), varied(vary or ())
    if sought is not None:
        _find(sought, base, *asked, wishes, means, as_json)
        return
    with progress() as status, changes_named("--fix, --vary"):
        found = planned(base, *asked, wishes, means, status)
    outputs.write(found)
    if as_json:
        from ..sim.plan.refused import told_left_out

        for line in told_left_out(found.left_out):
            say(line, err=True)
        echo_json(found.to_dict())
    else:
        from ..sim.report.plan.table import print_plan

        print_plan(found, console(), scenario, overrides or (), beside.words(), whole=out is None)
    if found.certificate.interrupted:
        say("interrupted: this is the best so far", err=True)
        raise typer.Exit(INTERRUPTED)
    if not found.found:
        raise typer.Exit(NOTHING_FITS)


@dataclass(frozen=True, kw_only=True)
class PlanFiles:
    """Where to write what of a plan; None: not wanted."""

    csv: Path | None
    parquet: Path | None
    picture: Path | None
    journal: Path | None
    out: Path | None
    save: Path | None

    def check(self, inputs: Sequence[str | Path]) -> None:
        """ValueError, before any work is done, for a file that cannot or should not be written."""
        output_file("--csv", self.csv, (".csv",), inputs)
        output_file("--parquet", self.parquet, (".parquet",), inputs)
        output_file("--picture", self.picture, PICTURES, inputs)
        output_file("--journal", self.journal, (".jsonl",), inputs, appended=True)
        output_file("--out", self.out, (".sh", ".toml", ".yaml", ".yml"), inputs)
        if self.save:
            output_folder("--save", self.save, ())

    def of_plans(self) -> dict[str, Path | None]:
        """The files that hold layouts, by their options."""
        return {
            "--csv": self.csv,
            "--parquet": self.parquet,
            "--picture": self.picture,
            "--save": self.save,
        }

    def write(self, found: LayoutPlan) -> None:
        """Write what is wanted; before tables, whose reader may leave early."""
        from ..sim.report.plan.command import save_choices
        from ..sim.report.plan.rows import write_replays

        for path in (self.csv, self.parquet):
            if path:
                write_replays(found, path)
                wrote("layouts", path)
        if self.picture and found.found:
            from ..sim.report.plan.picture import plan_svg

            save_picture(self.picture, plan_svg(found))
            wrote("picture", self.picture)
        if self.out and found.emitted is not None:
            save_text(self.out, found.emitted)
            wrote("file", self.out)
        if self.save:
            for path in save_choices(found, self.save):
                wrote("scenario", path)


def _sought(asked: Sequence[str]) -> str | None:
    """What --find seeks. ValueError for two, of which one would be taken without a word."""
    if len(asked) > 1:
        named = " ".join(f"--find {one}" for one in asked)
        raise ValueError(f"{named}: one number is sought at a time; leave out all but one")
    return asked[0] if asked else None


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


def _find(
    what: str,
    base: Scenario,
    fix: dict[str, Any],
    vary: dict[str, list[Any]],
    wishes: Wishes,
    means: Means,
    as_json: bool,
) -> None:
    """Find one number (``--find``) in place of a plan."""
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
