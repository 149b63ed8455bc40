"""Constants of the two halves of the families, and of all sources but one, kept in a file, and steps
predicted with them.

``stepsim calibrate steps --save`` writes the file, ``stepsim validate --held-out`` reads it: a row is then
predicted with the constants of the half that its family is not in, and with those that never saw its source.
GPUs and presets that the file does not name are as shipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from ...hardware.explain import lines
from ...hardware.fields import CountOrZero
from ...hardware.files import load_json, read_bytes, write_text
from .constants import Constants
from .trial import Trial, tried

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ...sim.scenario.models import Scenario

HALVES = (0, 1)

_MOST_MISTAKES = 10
"""Mistakes of a file that are reported at most: the same one stands in each of its sets of constants."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """``constants`` of each half, and without each of the ``sources``, by name; ``fitted`` is how many of
    them step times have shaped on all ``cases``."""

    constants: Annotated[tuple[Constants, ...], Field(min_length=len(HALVES), max_length=len(HALVES))]
    sources: Mapping[str, Constants]
    fitted: CountOrZero
    cases: CountOrZero
    families: CountOrZero


def half_of(family: str) -> int:
    """Which half a family is in: by its name alone, the same on every machine and in every set of files."""
    return hashlib.sha256(family.encode()).digest()[0] % len(HALVES)


def left_out(halves: Halves, family: str) -> Constants:
    """Constants that no row of ``family`` has shaped."""
    return halves.constants[1 - half_of(family)]


def with_constants(scenario: Scenario, constants: Constants) -> tuple[Scenario, GpuProfile | None]:
    """The scenario and the profile to predict a step with; None where these are the shipped ones."""
    gpu = constants.gpus.get(scenario.cluster.gpu_name)
    preset = constants.presets.get(scenario.software.name)
    software = scenario.software
    if preset is not None:
        software = software.with_fields(**asdict(preset))
    changed = scenario.model_copy(update={"software": software})
    if gpu is None:
        return changed, None
    trial = Trial(
        clock_fraction=gpu.clock_fraction,
        corun_slowdown=gpu.corun_slowdown,
        host_s_per_kernel=software.host.host_s_per_kernel,
    )
    return changed, tried(scenario.cluster.gpu_name, trial)


def are_shipped(scenario: Scenario, constants: Constants) -> bool:
    """Whether a step is predicted with ``constants`` as it is without them."""
    from ...hardware.calibrated.overlay import load_profile

    changed, profile = with_constants(scenario, constants)
    return changed == scenario and (profile is None or profile == load_profile(scenario.cluster.gpu_name))


def write_halves(path: Path, halves: Halves) -> None:
    """Write ``halves`` as JSON; equal halves give equal bytes."""
    write_text(path, json.dumps(asdict(halves), indent=1, sort_keys=True) + "\n")


def read_halves(path: Path) -> Halves:
    """Raises ValueError naming the file, and the field, where it is none of ``write_halves``."""
    document = load_json(read_bytes(path), path)
    try:
        return TypeAdapter(Halves).validate_python(document)
    except ValidationError as failure:
        where = f"{path}: not a file of stepsim calibrate steps --save"
        found = lines(where, failure, Halves)
        more = [f"and {len(found) - _MOST_MISTAKES} more"] if len(found) > _MOST_MISTAKES else []
        raise ValueError("\n".join(found[:_MOST_MISTAKES] + more)) from None
