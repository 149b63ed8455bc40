"""Charts: the same bytes everywhere, any name survives, every value lies inside its axes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from drawn import hints, lines, marks, words
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.hardware.shown import printable_line
from stepsim.sim.report.drawing import chart

DRAW = """
import sys
from stepsim.sim.report.drawing import chart
with chart.canvas(400, 300) as figure:
    panel = figure.subplots()
    chart.dots(panel, [1.0, 10.0, 31.0], [3.0, 4.0, 5.5], chart.BLUE)
    chart.logarithmic(panel, "x", (1.0, 100.0), "{:g}".format)
    panel.fill_between([1.0, 100.0], [3.0, 3.5], [3.6, 4.0], step="post", color=chart.PALE)
    chart.head(figure, "title", "note", [(chart.key(chart.BLUE), "name")])
    sys.stdout.write(chart.svg(figure, "title"))
"""
NAMES = ["_hidden", "$x_1^2$", 'a <b> & "c"', "\x00\x1b[31m", "漢字 \u202e", "100 %", "\ud800", "]]>", "{}%s"]


def drawn(folder: Path, seed: str) -> str:
    home = {"PYTHONHASHSEED": seed, "MPLCONFIGDIR": str(folder), "HOME": str(folder)}
    command = [sys.executable, "-c", DRAW]
    done = subprocess.run(
        command, env=os.environ | home, cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_neither_a_fresh_process_nor_the_users_own_settings_change_a_byte(tmp_path: Path) -> None:
    plain, own = tmp_path / "plain", tmp_path / "own"
    plain.mkdir()
    own.mkdir()
    (own / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\nsvg.fonttype: path\n")
    assert drawn(plain, "1") == drawn(own, "2")


def test_no_setting_outlives_a_chart() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with chart.canvas(100, 100) as figure:
        chart.svg(figure, "empty")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_shown_as_it_is(name: str) -> None:
    with chart.canvas(400, 300) as figure:
        panel = figure.subplots()
        chart.hint(chart.dots(panel, [0.0, 1.0], [0.0, 1.0], chart.BLUE), [name, "other"])
        chart.named(panel.xaxis, [name])
        chart.above(panel, [(chart.key(chart.BLUE), name)])
        chart.head(figure, name, name, [(chart.key(chart.BLUE), name)])
        svg = chart.svg(figure, name)
        inline = chart.svg(figure, name, inline=True)
    shown = printable_line(name)
    assert words(svg).count(shown) == 5
    assert hints(svg) == [shown, "other"]
    assert "http" not in inline
    assert "DejaVu" not in svg


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=20),
    st.floats(0.3, 3.0),
)
def test_dots_lie_in_order_inside_the_axes(points: list[tuple[float, float]], wide: float) -> None:
    x, y = [a for a, _ in points], [b for _, b in points]
    with chart.canvas(400 * wide, 300) as figure:
        panel = figure.subplots()
        chart.dots(panel, x, y, chart.AMBER)
        panel.plot(chart.decades(x), chart.decades(y), color=chart.GREEN)
        chart.logarithmic(panel, "x", chart.decades(x), "{:g}".format)
        chart.logarithmic(panel, "y", chart.decades(y), "{:g}".format)
        found = chart.svg(figure, "dots")
    at = marks(found, chart.AMBER)
    ((left, bottom), (right, top)) = lines(found, chart.GREEN)[0]
    assert len(at) == len(points)
    assert 0 < left < right < 400 * wide
    assert 0 < top < bottom < 300
    assert all(left - 0.01 <= a <= right + 0.01 and top - 0.01 <= b <= bottom + 0.01 for a, b in at)
    assert all(p <= q for p, q in _in_order(x, [a for a, _ in at]))
    assert all(p >= q for p, q in _in_order(y, [b for _, b in at]))


def _in_order(values: list[float], pixels: list[float]) -> list[tuple[float, float]]:
    ordered = [pixel for _, pixel in sorted(zip(values, pixels, strict=True), key=lambda pair: pair[0])]
    return list(pairwise(ordered))
