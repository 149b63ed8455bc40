"""hardware/deviations.yaml as text: its layout. Numbers come from kernel_regions and collective_regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

_DEVIATIONS = """\
# How far predictions lie from measurements that no fit of theirs saw: standard deviations of the
# natural logarithm, for what no profile states a residual of its own. A median of absolute errors
# becomes one times 1.4826, a 90th percentile over 1.645, a mean absolute error over 0.798 (normal
# distribution). Names with "beyond" are of one doubling outside the measured range, names with
# "carried" of a fabric or a GPU without any log.
# sim/evidence/interval.py puts them together. Entries that name it are written by
#   stepsim calibrate residuals --kernels KERNELS.yaml --log LOG... --write
"""


def deviations_text(document: Mapping[str, Any]) -> str:
    """hardware/deviations.yaml."""
    return _DEVIATIONS + _dumped(document)


def _dumped(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, width=116, allow_unicode=True)
    return text
