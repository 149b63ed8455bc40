"""``stepsim sensitivity``: what faster parts of the machine would gain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, ScenarioArgument, SetOption
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, wrote
from .plan_options import (
    FITS,
    FitsOption,
    JobsOption,
    JournalOption,
    RayOption,
    refuse_idle_fits,
    refuse_idle_journal,
)
from .progress import progress


def sensitivity(
    scenario: ScenarioArgument,
    overrides: SetOption = None,
    replan: Annotated[
        bool, typer.Option("--replan/--no-replan", help="The best layout with each faster part, too.")
    ] = True,
    fits: FitsOption = FITS,
    jobs: JobsOption = None,
    ray: RayOption = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar=PICTURE_NAME, help="Draw a bar for each part.")
    ] = None,
) -> None:
    """Show what twice the NIC, NVLink, HBM and peak, half the latency and half the host time would gain."""
    output_file("--picture", picture, PICTURES, [scenario])
    refuse_idle_fits(fits, replan)
    refuse_idle_journal(journal, replan)
    output_file("--journal", journal, (".jsonl",), [scenario], appended=True)

    from ..sim.plan.questions.sensitivity import sensitivity as asked
    from ..sim.plan.search.plan import Means, wishes_of
    from ..sim.report.plan.sensitivity import print_sensitivity, sensitivity_svg

    wishes = wishes_of(top=1, objective="step-time", deadline_s=None, budget=None, fits=fits, audit=0)
    with progress() as status:
        found = asked(
            scenario,
            overrides or (),
            replan=replan,
            wishes=wishes,
            means=Means(jobs=jobs, ray=ray, journal=journal),
            progress=status,
        )
    if picture:
        save_picture(picture, sensitivity_svg(found))
        wrote("picture", picture)
    if as_json:
        echo_json(found.to_dict())
    else:
        print_sensitivity(found, console())
