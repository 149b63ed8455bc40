"""Constants of the two halves of the families, kept in a file, and steps predicted with them.

``stepsim calibrate steps --save`` writes the file, ``stepsim validate --held-out`` reads it: a row is then
predicted with the constants of the half that its family is not in. GPUs and presets that the file does not
name are as shipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hardware.files import load_json, read_bytes, write_text
from .constants import Constants, GpuConstants, PresetConstants
from .trial import Trial, tried

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..scenario.models import Scenario

HALVES = (0, 1)


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
    """Raises ValueError naming the file where it is none of ``write_halves``."""
    try:
        document = load_json(read_bytes(path), path)
        constants = tuple(map(_constants, _two(document["constants"])))
        counts = {name: int(document[name]) for name in ("fitted", "cases", "families")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not a file of stepsim calibrate steps --save: {type(error).__name__}: {error}"
        ) from None
    return Halves(constants=constants, **counts)


def _two(found: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    if len(found) != len(HALVES):
        raise ValueError(f"constants: there are {len(HALVES)} halves, not {len(found)}")
    return found


def _constants(document: Mapping[str, Any]) -> Constants:
    return Constants(
        gpus={name: GpuConstants(**values) for name, values in document["gpus"].items()},
        presets={name: PresetConstants(**values) for name, values in document["presets"].items()},
    )
