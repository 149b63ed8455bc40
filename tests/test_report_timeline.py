"""The timeline: every action is a box of the right width at the right place, whatever the schedule."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import fake_result

from stepsim.sim.report.drawing import palette
from stepsim.sim.report.timeline.boxes import Box, gathered
from stepsim.sim.report.timeline.intervals import difference, union
from stepsim.sim.report.timeline.picture import WIDTH, timeline_svg
from stepsim.sim.report.timeline.streams import stream_rows
from stepsim.sim.report.timeline.tracks import tracks
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import Span

SVG = "{http://www.w3.org/2000/svg}"
PIXEL = 0.02  # coordinates are written with two decimals


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """Named action boxes: x, y, width, height by action."""
    found = {}
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None and re.match(r"\d+[FBIW]\d+:", cast(str, title.text)):
            name = cast(str, title.text).split(":")[0]
            assert name not in found, f"{name} is drawn twice"
            x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
            found[name] = x, y, width, height
    return found


def words(svg: str) -> list[str]:
    return [cast(str, text.text) for text in ET.fromstring(svg).iter(f"{SVG}text")]


@settings(max_examples=25)
@given(
    pp=st.integers(1, 6),
    vpp=st.integers(1, 3),
    groups=st.integers(1, 2),
    forward_s=st.floats(0.01, 1.0),
    ratio=st.floats(0.8, 3.0),
)
def test_every_action_is_one_box_in_proportion(
    pp: int, vpp: int, groups: int, forward_s: float, ratio: float
) -> None:
    """One scale for all: x and width follow the start and the length, rows follow the rank."""
    result = fake_result(
        pp=pp,
        vpp=vpp if pp > 1 else 1,
        microbatches=pp * groups,
        forward_s=forward_s,
        backward_s=ratio * forward_s,
    )
    # a window: no zoom, so each action may be drawn only once
    drawn = boxes(timeline_svg(result, window=(0.0, result.step_time_s)))
    assert len(drawn) == len(result.actions)
    first = min(result.actions, key=lambda a: a.start_s)
    left = drawn[f"{first.stage}{first.kind}{first.microbatch}"][0]
    scale = (WIDTH - left - 24) / result.step_time_s
    row_tops: dict[int, float] = {}
    for action in result.actions:
        x, y, width, _ = drawn[f"{action.stage}{action.kind}{action.microbatch}"]
        assert x == pytest.approx(left + action.start_s * scale, abs=PIXEL)
        assert width == pytest.approx((action.end_s - action.start_s) * scale, abs=PIXEL)
        assert row_tops.setdefault(action.rank, y) == y
    assert [row_tops[rank] for rank in range(pp)] == sorted(set(row_tops.values()))


def test_every_stage_has_a_row_its_bubble_and_its_peak() -> None:
    result = fake_result(pp=4)
    said = words(timeline_svg(result))
    for rank in range(4):
        assert said.count(f"pp {rank}") == 1
        assert f"{result.memory[rank].peak_bytes / 1e9:.1f} GB" in said
    assert said.count("37.5 %") == 4  # (p - 1) / m


def test_header_says_what_how_and_how_well() -> None:
    said = " ".join(words(timeline_svg(fake_result(pp=4, vpp=2, microbatches=8))))
    for part in ("llama3.1-405b", "64", "H100-SXM5-80GB", "TP 8", "PP 4", "2 chunks", "DP 2", "interleaved"):
        assert part in said
    assert "step 600.0 ms" in said
    assert "bubble 18.8 %" in said  # (p - 1) / (v m)
    assert "42.0 % (full attention scores)" in said


def test_the_open_end_is_hatched_and_overlap_is_not() -> None:
    """Half of the fake gradient reduction hides under the last backward of pp 0."""
    result = fake_result(pp=2, microbatches=2, tail_s=0.040)
    end_s = result.step_time_s - 0.040
    tail = tracks(result)[0].tail
    assert [(box.kind, box.start, box.end) for box in tail] == [
        ("dp", pytest.approx(end_s), pytest.approx(end_s + 0.020))
    ]
    assert timeline_svg(result).count('fill="url(#hatch-dp)"') == 2 + 1  # both ranks, and the legend


def test_exposed_communication_is_what_no_kernel_covers() -> None:
    """A collective under a kernel for its first half shows the second half only, once."""
    base = fake_result(pp=1, microbatches=1, forward_s=0.1, backward_s=0.2)
    spans = [
        Span(0, "compute", "GEMM", "compute", "0F0", 0.00, 0.05, 0.0, 0.0),
        Span(0, "tp", "all_reduce", "tp", "0F0", 0.02, 0.08, 0.0, 0.0),
        Span(0, "dp", "all_gather", "dp", "0F0", 0.06, 0.09, 0.0, 0.0),
    ]
    (track,) = tracks(replace(base, spans_source=lambda: iter(spans)))
    assert [(box.kind, box.start, box.end) for box in track.exposed] == [
        ("tp", 0.05, 0.08),
        ("dp", 0.08, 0.09),
    ]


def test_a_kernel_of_an_axis_is_drawn_as_work() -> None:
    """Gradients are scaled by a kernel before they are reduced: nothing of it is communication."""
    base = fake_result(pp=1, microbatches=1, forward_s=0.1, backward_s=0.2)
    spans = [
        Span(0, "compute", "scale gradients", "dp", "", 0.00, 0.05, 0.0, 0.0, kind="memory-bound"),
        Span(0, "dp", "reduce_scatter", "dp", "", 0.02, 0.06, 0.0, 0.0),
    ]
    result = replace(base, spans_source=lambda: iter(spans))
    (track,) = tracks(result)
    shown = [(box.start, box.end) for box in (*track.exposed, *track.tail) if box.kind == "dp"]
    assert shown == [(0.05, 0.06)]
    assert {row.name for row in stream_rows(result)} <= {"DP reduce-scatter"}


def test_chunks_have_their_own_shades() -> None:
    result = fake_result(pp=2, vpp=4, microbatches=4)
    svg = timeline_svg(result)
    shades = [palette.fill("F", chunk, 4) for chunk in range(4)]
    assert len(set(shades)) == 4
    assert all(shade in svg for shade in shades)


@pytest.mark.parametrize("chunks", [1, 2, 8])
@pytest.mark.parametrize("kind", ["F", "B", "I", "W"])
def test_numbers_can_be_read_on_every_shade(kind: str, chunks: int) -> None:
    """WCAG's contrast for large text, 3 to 1."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    for chunk in range(chunks):
        ground = palette.fill(kind, chunk, chunks)
        low, high = sorted((luminance(ground), luminance(palette.ink_on(ground))))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_names_of_users_cannot_break_the_document() -> None:
    svg = timeline_svg(fake_result(title='a <b> & "c"', name="<&>"))
    assert 'a <b> & "c"' in words(svg)


@pytest.fixture(scope="module")
def large() -> Result:
    """16 ranks with 2,048 actions each: a box is half a pixel wide."""
    return fake_result(pp=16, vpp=8, microbatches=128)


@pytest.mark.slow
def test_a_large_step_stays_small_and_has_a_zoom(large: Result) -> None:
    svg = timeline_svg(large)
    assert len(svg) < 1_500_000
    assert svg == timeline_svg(large)
    zoomed = boxes(svg)
    assert 500 < len(zoomed) <= 3000  # the zoom names its boxes, the overview does not
    assert all(width > 5 for _, _, width, _ in list(zoomed.values())[100:110])
    assert words(svg).count("pp 15") == 2
    assert any("B" in name for name in zoomed)
    assert any("F" in name for name in zoomed)


def test_boxes_that_can_be_read_need_no_zoom() -> None:
    assert words(timeline_svg(fake_result(pp=4, microbatches=8))).count("pp 3") == 1


def test_a_window_shows_what_lies_in_it() -> None:
    result = fake_result(pp=4)
    window = (0.05, 0.10)
    inside = {
        f"{a.stage}{a.kind}{a.microbatch}" for a in result.actions if a.end_s > 0.05 and a.start_s < 0.10
    }
    drawn = boxes(timeline_svg(result, window=window))
    assert set(drawn) == inside
    assert all(x + width <= WIDTH for x, _, width, _ in drawn.values())


@pytest.mark.parametrize("window", [(0.2, 0.1), (-0.1, 0.1), (99.0, 100.0), (0.1, 0.1)])
def test_windows_outside_the_step_are_refused(window: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"no such window.*0\.36 s"):
        timeline_svg(fake_result(pp=4), window=window)


times = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda t: (float(t[0]), float(t[0] + t[1])))
)


@given(times, times)
def test_intervals_obey_set_algebra(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
    """Against sets of unit cells."""

    def cells(intervals: list[tuple[float, float]]) -> set[int]:
        return {cell for start, end in intervals for cell in range(int(start), int(end))}

    left = difference(union(a), union(b))
    assert cells(union(a)) == cells(a)
    assert cells(left) == cells(a) - cells(b)
    assert left == union(left)


@given(st.lists(st.tuples(st.sampled_from("FB"), st.integers(1, 4)), min_size=1, max_size=200))
def test_columns_keep_the_area(parts: list[tuple[str, int]]) -> None:
    """Thin boxes drawn as shares of a column cover their own time, up to the rounding of a share."""
    made, at = [], 0.0
    for kind, length in parts:
        made.append(Box(kind, 0, at, at + length / 4))
        at += length / 2
    columns = max(1, round(at / 5))
    drawn = gathered(made, (0.0, at), columns)
    rounding = columns * 2 * 0.05 * (at / columns)
    for kind in "FB":
        area = sum(box.duration * (box.high - box.low) for box in drawn if box.kind == kind)
        assert area == pytest.approx(sum(b.duration for b in made if b.kind == kind), abs=rounding)
    assert all(0 <= box.low <= box.high <= 1 for box in drawn)
