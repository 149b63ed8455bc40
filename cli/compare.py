"""``stepsim compare``: what differs between two scenarios, and where the time went."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from .options import JsonOption, MaxEventsOption
from .output import console, echo_json
from .progress import progress
from .sources import SOURCE_HELP, FrameworkOption, GivenOption, SourceFacts, VersionOption, load_any


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=SOURCE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, or the same with --set-b.")],
    overrides_a: Annotated[
        list[str] | None,
        typer.Option("--set-a", metavar="FIELD=VALUE", help="Change one field of A. Repeatable."),
    ] = None,
    overrides_b: Annotated[
        list[str] | None,
        typer.Option("--set-b", metavar="FIELD=VALUE", help="Change one field of B. Repeatable."),
    ] = None,
    given: GivenOption = None,
    given_a: Annotated[
        list[str] | None, typer.Option("--given-a", metavar="NAME=VALUE", help="As --given, of A alone.")
    ] = None,
    given_b: Annotated[
        list[str] | None, typer.Option("--given-b", metavar="NAME=VALUE", help="As --given, of B alone.")
    ] = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict two scenarios and show what differs and where the time went."""
    from ..sim.report.compare import comparison
    from ..sim.report.compare_table import comparison_document, print_comparison
    from ..sim.scenario.errors import COMMAND_LINE, changes_named
    from ..sim.simulate import simulate

    sides = _sides((a, b), SourceFacts(given=given or (), framework=framework, version=version))
    sides = [
        replace(side, given=[*side.given, *(own or ())])
        for side, own in zip(sides, (given_a, given_b), strict=True)
    ]
    with changes_named("--set-a", COMMAND_LINE):
        left = load_any(a, overrides_a or (), sides[0])
    with changes_named("--set-b", COMMAND_LINE):
        right = load_any(b, overrides_b or (), sides[1])
    with progress() as say:
        first, second = (simulate(one, max_events=max_events, progress=say) for one in (left, right))
    compared = comparison(first, second)
    if as_json:
        echo_json(comparison_document(compared))
    else:
        print_comparison(compared, console())


def _sides(sources: tuple[str, str], said: SourceFacts) -> list[SourceFacts]:
    """What was ``said`` of frameworks' files, for each of two sources: nothing for a scenario beside one."""
    from ..sim.scenario.importers.entry import is_scenario

    if not said or said.framework is not None:
        return [said, said]
    scenarios = [is_scenario(source) for source in sources]
    return [SourceFacts() if own and not all(scenarios) else said for own in scenarios]
