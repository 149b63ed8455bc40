"""``stepsim list``: the names that a scenario may use."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .output import echo_json
from .views import JsonOption


class Kind(StrEnum):
    """What can be listed, in the order in which all of it is."""

    SCENARIOS = "scenarios"
    MODELS = "models"
    GPUS = "gpus"
    INTERCONNECTS = "interconnects"
    SOFTWARE = "software"
    SCHEDULES = "schedules"
    FAULTS = "faults"
    FAULT_PRESETS = "fault-presets"


def list_names(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; everything if left out.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List shipped scenarios, models, GPUs, interconnects, software presets, schedules and faults."""
    names = {str(one): _names(one) for one in ([kind] if kind else Kind)}
    if as_json:
        echo_json(names)
    elif kind:
        typer.echo("\n".join(_described(kind, names[kind])))
    else:
        typer.echo("\n\n".join("\n  ".join([title, *known]) for title, known in names.items()))


def _described(kind: Kind, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, schedules and kinds of faults with their titles."""
    width = max(map(len, names)) + 2
    match kind:
        case Kind.SCHEDULES:
            from ..schedules.pipeline import get

            return tuple(f"{name:<{width}}{get(name).title}" for name in names)
        case Kind.FAULTS:
            from ..sim.faults.kinds import get_kind

            return tuple(f"{name:<{width}}{get_kind(name).title}" for name in names)
        case _:
            return names


def _names(kind: Kind) -> tuple[str, ...]:
    match kind:
        case Kind.FAULTS:
            from ..sim.faults.kinds import kind_names

            return kind_names()
        case Kind.FAULT_PRESETS:
            from ..sim.faults.presets import preset_names

            return preset_names()
        case Kind.SCENARIOS:
            from ..sim.scenario.load import scenario_names

            return scenario_names()
        case Kind.MODELS:
            from ..sim.model.catalogue import model_names

            return model_names()
        case Kind.GPUS:
            from ..hardware.gpus import gpu_names

            return gpu_names()
        case Kind.INTERCONNECTS:
            from ..hardware.interconnect import interconnect_names

            return interconnect_names()
        case Kind.SOFTWARE:
            from ..sim.software.presets import software_names

            return software_names()
        case Kind.SCHEDULES:
            from ..schedules.pipeline import names

            return names()
