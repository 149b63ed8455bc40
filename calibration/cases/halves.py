"""Constants of the two halves of the families, kept in a file, and steps predicted with them.

``stepsim calibrate steps --save`` writes the file, ``stepsim validate --held-out`` reads it: a row is then
predicted with the constants of the half that its family is not in. GPUs and presets that the file does not
name are as shipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from ...hardware.files import load_json, read_bytes, write_text
from ...hardware.shown import value_text
from .constants import Constants, GpuConstants, PresetConstants
from .strict import AtLeast, WrongField, build
from .trial import Trial, tried

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ...sim.scenario.models import Scenario

HALVES = (0, 1)
_BOUNDS = {
    "clock_fraction": (0.01, 1.0),
    "corun_slowdown": (0.0, 1.0),
    "host_s_per_kernel": (0.0, 1.0),
    "step_fixed_s": (0.0, 3600.0),
}
C = TypeVar("C", GpuConstants, PresetConstants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """``constants`` of each half; ``fitted`` is how many of them step times have shaped on all ``cases``."""

    constants: tuple[Constants, ...]
    fitted: int
    cases: int
    families: int


def half_of(family: str) -> int:
    """Which half a family is in: by its name alone, the same on every machine and in every set of files."""
    return hashlib.sha256(family.encode()).digest()[0] % len(HALVES)


def left_out(halves: Halves, family: str) -> Constants:
    """Constants that no row of ``family`` has shaped."""
    return halves.constants[1 - half_of(family)]


def with_constants(scenario: Scenario, constants: Constants) -> tuple[Scenario, GpuProfile | None]:
    """The scenario and the profile to predict a step with; None where these are the shipped ones."""
    gpu = constants.gpus.get(scenario.cluster.gpu)
    preset = constants.presets.get(scenario.software.name)
    software = scenario.software
    if preset is not None:
        software = software.model_copy(update=asdict(preset))
    changed = scenario.model_copy(update={"software": software})
    if gpu is None:
        return changed, None
    trial = Trial(
        clock_fraction=gpu.clock_fraction,
        corun_slowdown=gpu.corun_slowdown,
        host_s_per_kernel=software.host_s_per_kernel,
    )
    return changed, tried(scenario.cluster.gpu, trial)


def are_shipped(scenario: Scenario, constants: Constants) -> bool:
    """Whether a step is predicted with ``constants`` as it is without them."""
    from ...hardware.profile import load_profile

    changed, profile = with_constants(scenario, constants)
    return changed == scenario and (profile is None or profile == load_profile(scenario.cluster.gpu))


def write_halves(path: Path, halves: Halves) -> None:
    """As JSON, the same bytes for the same halves."""
    write_text(path, json.dumps(asdict(halves), indent=1, sort_keys=True) + "\n")


def read_halves(path: Path) -> Halves:
    """Raises ValueError naming the file, and the field, where it is none of ``write_halves``."""
    document = load_json(read_bytes(path), path)
    try:
        found = build(_File, document)
        if len(found.constants) != len(HALVES):
            raise WrongField("constants", f"there are {len(HALVES)} halves, not {len(found.constants)}")
        constants = tuple(
            Constants(
                gpus=_named(GpuConstants, half.gpus, f"constants[{number}].gpus"),
                presets=_named(PresetConstants, half.presets, f"constants[{number}].presets"),
            )
            for number, half in enumerate(found.constants)
        )
    except WrongField as wrong:
        raise ValueError(f"{path}: not a file of stepsim calibrate steps --save: {wrong}") from None
    return Halves(constants=constants, fitted=found.fitted, cases=found.cases, families=found.families)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    gpus: object
    presets: object


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    constants: tuple[_Half, ...]
    fitted: Annotated[int, AtLeast(0)]
    cases: Annotated[int, AtLeast(0)]
    families: Annotated[int, AtLeast(0)]


def _named(cls: type[C], document: object, where: str) -> dict[str, C]:
    """Constants by name, each within what the fit searches (constants.py)."""
    if not isinstance(document, Mapping):
        raise WrongField(where, f"expected constants by name; got {value_text(document)}")
    named = {str(name): build(cls, values, f"{where}.{name}") for name, values in document.items()}
    for name, values in named.items():
        for field, value in asdict(values).items():
            low, high = _BOUNDS[field]
            if not low <= value <= high:
                raise WrongField(f"{where}.{name}.{field}", f"must be {low:g} to {high:g}, is {value:g}")
    return named
