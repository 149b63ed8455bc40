"""``stepsim cluster``: what the machine of a scenario is made of, and a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonOption, ScenarioArgument
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, wrote


def cluster(
    scenario: ScenarioArgument,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change one field, as in cluster.fabric=torus. Repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
    svg: Annotated[
        Path | None,
        typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Write the topology as a picture."),
    ] = None,
) -> None:
    """Show hosts, switches, links and bandwidths of a scenario's cluster."""
    output_file("--picture", svg, PICTURES, [scenario])

    from ..sim.report.topology.facts import cluster_document, print_cluster
    from ..sim.report.topology.picture import topology_svg
    from ..sim.scenario.load import load_scenario
    from ..sim.scenario.machine import cluster_of, placement_of

    loaded = load_scenario(scenario, overrides or ())
    built, placement = cluster_of(loaded.cluster), placement_of(loaded.cluster)
    if svg:
        save_picture(svg, topology_svg(built, title=loaded.title))
    if as_json:
        echo_json(cluster_document(built, placement))
    else:
        print_cluster(built, placement, console())
    if svg:
        wrote("picture", svg)
