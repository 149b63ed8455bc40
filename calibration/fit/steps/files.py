"""What a fit leaves in files: the texts of its provenance, and edited presets.

Knows the layout of sim/scenario/software/presets.yaml: a preset a block, in it a group a block, a field a
line. Profiles are written by calibration/fit/profile_file.py; cli/calibrate.py calls both.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from ....sim.figures import percent
from ....sim.scenario.software import get_software
from .report import FittedCoverage, StepFit
from .step_constants import StepConstant

COMMENT_COLUMN = 38  # where the comments of presets.yaml stand


def gpu_provenance(coverage: FittedCoverage) -> str:
    """The ``step_time_fit`` of a profile."""
    return f"fitted: {_basis(coverage)} (stepsim calibrate steps)"


def edited_presets(text: str, fit: StepFit) -> str:
    """presets.yaml with the fitted constants in it, every other line as it was.

    A constant is written where it differs from what the preset has, or was written before.
    """
    for preset in fit.presets:
        constants = fit.constants.presets[preset.name]
        for name, choice, value in (
            ("host_s_per_kernel", preset.host, constants.host_s_per_kernel),
            ("step_fixed_s", preset.fixed, constants.step_fixed_s),
        ):
            text = _with_field(text, preset.name, name, value, _comment(choice, preset.coverage))
    return text


def fit_document(fit: StepFit) -> dict[str, Any]:
    """The fit as plain data, for machines."""
    return asdict(fit) | {"fitted_constants": fit.fitted_constants}


def _with_field(text: str, preset: str, name: str, value: float, comment: str) -> str:
    lines = text.splitlines()
    heading = re.compile(rf"{re.escape(preset)}:( &\w+)?")  # other presets may take its fields over
    first = next(i for i, line in enumerate(lines, 1) if heading.fullmatch(line))
    last = next((i for i in range(first, len(lines)) if re.match(r"\S", lines[i])), len(lines))
    at = next((i for i in range(first, last) if lines[i].startswith(f"    {name}:")), None)
    if at is None and value == getattr(get_software(preset).host, name):
        return text
    line = f"    {name}: {_number(value)}".ljust(COMMENT_COLUMN) + f"# {comment}"
    if at is not None:
        lines[at] = line
    else:
        group = next((i for i in range(first, last) if re.match(r"  host:", lines[i])), None)
        added = ["  host:", line] if group is None else [line]
        place = last if group is None else _end_of_group(lines, group)
        lines[place:place] = added
    return "\n".join(lines) + "\n"


def _end_of_group(lines: list[str], heading: int) -> int:
    """The line behind the last one of the group of fields whose heading stands there."""
    rest = range(heading + 1, len(lines))
    return next((i for i in rest if not lines[i].startswith("    ")), len(lines))


def _comment(choice: StepConstant, coverage: FittedCoverage) -> str:
    return f"{'fitted' if choice.earned else 'default, a fit gains nothing'}: {_basis(coverage)}"


def _basis(coverage: FittedCoverage) -> str:
    return f"{coverage.basis}, error {percent(coverage.error)}, held out {percent(coverage.held_out)}"


def _number(value: float) -> str:
    """Two digits, and a point even before an exponent: YAML 1.1 reads 3e-05 as text.

    >>> _number(3e-05), _number(0.0), _number(0.012)
    ('3.0e-05', '0.0', '1.2e-02')
    """
    return f"{value:.1e}" if value else "0.0"
