"""The two files that intervals read, as text: hardware/residuals.yaml and sim/measured_steps.yaml.

Knows their layout alone; what is in them comes from step_residuals, kernel_regions and collective_regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import yaml

from ..sim.measured_steps import MeasuredSteps

_RESIDUALS = """\
# How far predictions lie from measurements that no fit of theirs saw: standard deviations of the
# natural logarithm, for what no profile states a residual of its own. A median of absolute errors
# becomes one times 1.4826, a 90th percentile over 1.645, a mean absolute error over 0.798 (normal
# distribution). Names with "beyond" are of one doubling outside the measured range, names with
# "carried" of a fabric or a GPU without any log.
# sim/interval.py puts them together. Entries that name it are written by
#   stepsim calibrate residuals --kernels KERNELS.yaml --log LOG... --write
"""

_STEPS = """\
# What measured steps say of intervals (sim/measured_steps.py says what each entry means). Written by
#   stepsim calibrate residuals CASES.yaml... --held-out docs/step-fit.json --write
# Do not edit.
"""


def residuals_text(document: Mapping[str, Any]) -> str:
    """hardware/residuals.yaml."""
    return _RESIDUALS + _dumped(document)


def steps_text(steps: MeasuredSteps) -> str:
    """sim/measured_steps.yaml; the same bytes for the same numbers."""
    document = {
        "quantile": steps.quantile,
        "weights": dict(steps.weights),
        "terms": {name: asdict(one) for name, one in steps.terms.items()},
        "left_out": dict(steps.left_out),
    }
    families = [asdict(one) for one in steps.families]
    lines = "".join(
        f"  - {yaml.safe_dump(one, default_flow_style=True, width=200, sort_keys=False)}" for one in families
    )
    return f"{_STEPS}{_dumped(document)}families:\n{lines}"


def _dumped(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, width=116, allow_unicode=True)
    return text
