"""Timelines of steps with faults: rows of one stage differ, in their bubbles too, and have long names."""

from __future__ import annotations

import re

from small_scenarios import scenario
from struck_steps import TWIN

from stepsim.sim.figures import percent
from stepsim.sim.report.timeline.page import LEFT
from stepsim.sim.report.timeline.picture import timeline_svg
from stepsim.sim.report.timeline.tracks import order_of, tracks
from stepsim.sim.simulate import simulate


def test_every_row_has_its_own_bubble_and_a_name_that_fits() -> None:
    result = simulate(scenario(**TWIN), faults=["gpu_throttle gpu/9 slow_factor=3 at=20ms duration=40ms"])
    picture = timeline_svg(result)
    bubbles = [percent(result.bubble_per_stage[r]) for r in order_of(result)]
    assert len(set(bubbles)) > len({one.pp for one in result.ranks})
    column = re.findall(r">([\d.]+\s?%)<", picture)
    assert column[: len(bubbles)] == bubbles
    longest = max(len(row.name) for row in tracks(result))
    names = re.findall(r'x="([\d.]+)"[^>]*>[^<]*rank \d+ \(pp \d\)<', picture)
    assert min(float(x) for x in names) > max(LEFT, 5.5 * longest)
