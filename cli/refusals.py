"""Files that were given and could not be used: named on stderr, and a table or a JSON list of them.

Whoever gives many files gets the figures of the others, and exit code 0; none that can be used is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import say

if TYPE_CHECKING:
    from ..calibration.validation.grids import Grid
    from ..hardware.files import Refusal


def tell_refused(refused: Sequence[Refusal]) -> None:
    """A line on stderr for each, so that figures on stdout are never taken for those of all files."""
    from ..hardware.files import refusals_text

    if refused:
        say(f"not used:\n{refusals_text(refused)}", err=True)


def refused_document(refused: Sequence[Refusal]) -> list[dict[str, str]]:
    """The value of the key ``refused``, which is there without refusals, too."""
    return [{"file": one.file, "reason": one.reason} for one in refused]


def refused_files(refused: Sequence[Refusal]) -> Grid:
    """A row for each file."""
    from ..calibration.validation.grids import Grid

    rows = tuple((one.file, f"refused: {one.reason}") for one in refused)
    return Grid(title="Files that were not used", columns=("file", "why"), rows=rows, labels=2)
