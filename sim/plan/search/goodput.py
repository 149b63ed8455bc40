"""The share of time that counts, of a layout under the faults of its scenario.

Knows campaigns of weeks; does not know what is searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...scenario.models import Scenario

REPLICATIONS = 32
"""Replications of the weeks of each layout, with the same random draws for all of them, so that differences
between layouts are not noise."""


def goodput_share(scenario: Scenario, step_time_s: float) -> float:
    """Useful time over wall time (ETTR), from 0 to 1, with steps of ``step_time_s``."""
    from ...reliability.ask import ask

    given = scenario.with_({"step_time": f"{step_time_s!r} s"})
    return ask(given, replications=REPLICATIONS).study.ettr.mean
