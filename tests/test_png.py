"""Pictures as PNG and on dark ground: the same drawing, pixel by pixel where that can be told."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.sim.report.drawing import palette
from stepsim.sim.report.drawing.raster import SCALE, dark, png
from stepsim.sim.report.drawing.svg import document, group, line, paper, rect, text
from stepsim.sim.report.memory.picture import memory_svg
from stepsim.sim.report.timeline.picture import timeline_svg
from stepsim.sim.report.timeline.streams import stream_rows


def pixels(drawn: bytes) -> NDArray[np.float64]:
    """Rows, columns, and red, green, blue from 0 to 1."""
    from matplotlib.image import imread

    assert drawn.startswith(b"\x89PNG")
    return np.asarray(imread(io.BytesIO(drawn)))[:, :, :3]


def colour_at(drawn: bytes, x: float, y: float) -> str:
    red, green, blue = (round(255 * part) for part in pixels(drawn)[int(y * SCALE), int(x * SCALE)])
    return f"#{red:02x}{green:02x}{blue:02x}"


def test_boxes_lie_where_the_svg_has_them() -> None:
    inside = group(
        [rect(10, 20, 30, 40), line(0, 70, 100, 70, stroke="#ff0000", stroke_width=4)], fill="#2b5c8f"
    )
    drawn = png(document("boxes", [paper(100, 80), inside], 100, 80))
    assert pixels(drawn).shape == (80 * SCALE, 100 * SCALE, 3)
    assert colour_at(drawn, 25, 40) == "#2b5c8f"
    assert colour_at(drawn, 50, 70) == "#ff0000"
    for x, y in ((8, 40), (42, 40), (25, 18), (25, 62)):
        assert colour_at(drawn, x, y) == "#ffffff"


def test_what_we_do_not_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="ellipse"):
        png(document("other", ["<ellipse/>"], 10, 10))


def test_words_are_drawn_at_their_end() -> None:
    left = png(document("w", [paper(200, 40), text(100, 25, "stepsim", fill="#000000")], 200, 40))
    right = png(document("w", [paper(200, 40), text(100, 25, "stepsim", text_anchor="end")], 200, 40))
    half = 100 * SCALE
    assert pixels(left)[:, :half].min() > 0.9 > pixels(left)[:, half:].min()
    assert pixels(right)[:, half:].min() > 0.9 > pixels(right)[:, :half].min()


@given(st.integers(0, 0xFFFFFF))
def test_dark_turns_light_and_keeps_hue(colour: int) -> None:
    import colorsys

    def seen(written: str) -> tuple[float, float, float]:
        red, green, blue = (int(written[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return colorsys.rgb_to_hls(red, green, blue)

    before, after = seen(f"#{colour:06x}"), seen(dark(f"#{colour:06x}"))
    assert after[1] == pytest.approx(0.08 + 0.9 * (1 - before[1]), abs=0.01)
    if before[2] > 0.2 and 0.1 < before[1] < 0.9 and 0.1 < after[1] < 0.9:
        assert abs((after[0] - before[0] + 0.5) % 1 - 0.5) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch"),
    [("mistral-7b-h100", None), ("llama3-70b-h100", 8)],  # shards; a pipeline, of few microbatches
)
def test_a_step_as_png(name: str, batch: int | None) -> None:
    result = stepsim.simulate(stepsim.load_scenario(name, {"training.global_batch": batch} if batch else {}))
    for svg in (timeline_svg(result), memory_svg(result)):
        width, height = (float(one) for one in re.findall(r'viewBox="0 0 (\S+) ([\d.]+)"', svg)[0])
        drawn = png(svg)
        assert pixels(drawn).shape[:2] == (pytest.approx(height * SCALE, abs=2), width * SCALE)
        assert png(svg) == drawn
        assert colour_at(png(dark(svg)), 2, 2) == dark("#ffffff")


def test_sharded_parameters_show_what_they_send() -> None:
    result = stepsim.simulate(stepsim.load_scenario("mistral-7b-h100"))
    rows = stream_rows(result)
    assert [row.name for row in rows] == ["DP parameter all-gather", "DP gradient reduce-scatter"]
    for row in rows:
        spans = [one for one in result.iter_spans() if f"DP {one.name.replace('_', '-')}" == row.name]
        inside = sum(box.duration for box in row.work)
        assert 0 < inside <= sum(one.end_s - one.start_s for one in spans) * (1 + 1e-9)
    assert stream_rows(stepsim.simulate(stepsim.load_scenario("llama3-70b-h100"))) == ()


@pytest.mark.slow
def test_memory_shows_held_terms_apart() -> None:
    svg = memory_svg(stepsim.simulate(stepsim.load_scenario("llama3-70b-h100")))
    for name in ("weights", "optimizer", "gradients, held", "communication", "context and workspace"):
        assert f">{name}<" in svg
    assert "GB" in svg
    assert "logits" in svg  # of the last stage


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "png", "dark.svg", "dark.png"])
def test_names_of_files_say_how(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"step.{ending}"
    done = CliRunner().invoke(app, ["run", "gpt-22b-a100", "--timeline", str(path)])
    assert done.exit_code == 0, done.output
    content = path.read_bytes()
    ground = dark("#ffffff") if "dark" in ending else "#ffffff"
    if ending.endswith("png"):
        assert colour_at(content, 2, 2) == ground
    else:
        assert f'fill="{ground}"'.encode() in content
        assert (palette.INK.encode() in content) == ("dark" not in ending)
