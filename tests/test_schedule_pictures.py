"""Pictures of schedules: a box for every action, at its place, and nothing beyond the axis."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from schedule_shapes import goldens, parse, schedules_and_shapes

from stepsim.schedules.orders.action import Action, ActionKind, Overlap, actions_of
from stepsim.schedules.orders.schedule import Costs, Schedule, Shape, two_way_placement
from stepsim.schedules.pipeline import get, names
from stepsim.sim.report.drawing import palette
from stepsim.sim.report.drawing.svg import text_width
from stepsim.sim.report.schedules.compare import ComparisonShape, entries
from stepsim.sim.report.schedules.compare_picture import comparison_svg, drawn_ranks
from stepsim.sim.report.schedules.lanes import lanes
from stepsim.sim.report.schedules.picture import NOTES, schedule_svg
from stepsim.sim.report.schedules.timed import TimedSchedule, timed, timed_table
from stepsim.sim.report.timeline.legend import GAP
from stepsim.sim.report.timeline.page import LEFT, RIGHT, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
PIXEL = 0.02  # coordinates are written with two decimals

Place = tuple[float, float, float, float]


def titled_boxes(svg: str) -> Iterator[tuple[str, Place]]:
    """Title, and x, y, width and height, of the boxes that have a title: an action, or many drawn as one."""
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
            yield cast(str, title.text), (x, y, width, height)


def named_boxes(svg: str) -> dict[str, Place]:
    """x, y, width and height by action, of the boxes that have a name."""
    found: dict[str, Place] = {}
    for title, place in titled_boxes(svg):
        name = title.split(":")[0]
        assert name not in found, f"{name} is drawn twice"
        found[name] = place
    return found


def path_boxes(svg: str) -> list[Place]:
    """The boxes of all paths."""
    number = r"(-?[\d.]+)"
    pattern = re.compile(rf"M{number} {number}h{number}v{number}h{number}z")
    return [
        cast(Place, tuple(float(part) for part in match[:4]))
        for path in ET.fromstring(svg).iter(f"{SVG}path")
        for match in pattern.findall(path.attrib["d"])
    ]


def outlines(svg: str) -> list[Place]:
    """Of the pairs."""
    paths = [p for p in ET.fromstring(svg).iter(f"{SVG}path") if p.attrib.get("stroke") == palette.INK]
    root = "".join(ET.tostring(path, encoding="unicode") for path in paths)
    return path_boxes(f"<svg>{root}</svg>") if root else []


def words(svg: str) -> list[str]:
    return [cast(str, text.text) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def dualpipe(shared: Path) -> TimedSchedule:
    """The smallest golden of DualPipe with pairs."""
    _, golden = goldens(shared / "data" / "goldens" / "dualpipe", "DualPipe_P4_*.json")[0]
    shape = Shape(ranks=golden["p"], microbatches=golden["m"])
    return timed_table("dualpipe", parse(golden["actions"]), shape, two_way_placement)


@settings(max_examples=40)
@given(schedules_and_shapes(), st.integers(1, 9), st.integers(0, 9), st.integers(1, 9), st.integers(0, 4))
def test_every_action_is_one_box_in_proportion(
    drawn: tuple[Schedule, Shape], f: int, b: int, w: int, c: int
) -> None:
    schedule, shape = drawn
    costs = Costs(forward=f, input_grad=b, weight_grad=w, latency=c)
    done = timed(schedule, replace(shape, costs=costs))
    svg = schedule_svg(done)
    scale = (WIDTH - LEFT - RIGHT - NOTES) / done.makespan
    expected = [one for rank in done.timeline.ranks for one in rank if one.end > one.begin]
    assume("stroke-dasharray" not in svg)  # a zoomed panel would repeat boxes
    found = named_boxes(svg)
    assert len(found) == len(expected)
    tops = set()
    for action, begin, end in expected:
        x, y, width, _ = found[str(action)]
        assert x == pytest.approx(LEFT + begin * scale, abs=PIXEL)
        assert width == pytest.approx((end - begin) * scale, abs=PIXEL)
        tops.add(y)
    assert len(tops) == shape.ranks


FAR_TOO_MANY = ("1f1b", "interleaved-zb", "zb-v", "dualpipe")
"""One chunk a rank, chunks with split backwards, a V, and both ways: boxes merge alike for all of a kind."""


@pytest.mark.parametrize(
    ("name", "p", "m"),
    [(name, *size) for size in ((2, 4), (4, 8)) for name in names()]
    + [pytest.param(name, 16, 128, marks=pytest.mark.slow) for name in FAR_TOO_MANY]
    + [pytest.param("dualpipe", 32, 256, marks=pytest.mark.slow)],
)
def test_nothing_lies_beyond_the_axis(name: str, p: int, m: int) -> None:
    """From a few boxes to far too many to draw: they merge, and the file stays small."""
    (entry,) = entries([get(name)], ComparisonShape(ranks=p, microbatches=m))
    if entry.timed is None:
        pytest.skip(f"{name}: {entry.refused}")
    svg = schedule_svg(entry.done)
    height = float(ET.fromstring(svg).attrib["height"])
    places = [*path_boxes(svg), *(place for _, place in titled_boxes(svg))]
    assert len(places) >= 2 * p
    for x, y, width, tall in places:
        assert x >= LEFT - PIXEL
        assert x + width <= WIDTH - RIGHT + PIXEL
        assert 0 <= y <= y + tall <= height
    assert len(svg) < 3_000_000


def test_the_same_schedule_gives_the_same_bytes() -> None:
    shape = Shape(ranks=4, microbatches=8, chunks=2)
    assert schedule_svg(timed(get("interleaved"), shape)) == schedule_svg(timed(get("interleaved"), shape))


def test_the_header_says_what_and_how_well() -> None:
    costs = Costs(forward=10, input_grad=11, weight_grad=7, latency=2)
    said = " ".join(words(schedule_svg(timed(get("1f1b"), Shape(ranks=4, microbatches=8, costs=costs)))))
    for part in (get("1f1b").title, "p = 4 ranks", "m = 8", "v = 1", "tf 10, tb 11, tw 7", "tc 2"):
        assert part in said
    assert "bubble 34.1 % of it" in said  # 1 - 8 · 28 / 340
    assert "makespan 34 tf" in said
    assert "peak 4 activations" in said


def test_microbatches_are_numbered_where_there_is_room() -> None:
    said = words(schedule_svg(timed(get("1f1b"), Shape(ranks=2, microbatches=4))))
    assert all(said.count(str(k)) >= 4 for k in range(4))


def test_pairs_are_outlined_as_one(shared: Path) -> None:
    """The outline goes around both halves of the pair, which touch."""
    done = dualpipe(shared)
    svg = schedule_svg(done)
    boxes, found = named_boxes(svg), set(outlines(svg))
    pairs = [step for order in done.orders for step in order if isinstance(step, Overlap)]
    assert pairs
    assert len(found) == len(pairs)
    for pair in pairs:
        forward, backward = boxes[str(pair.forward)], boxes[str(pair.backward)]
        assert forward[0] + forward[2] == pytest.approx(backward[0], abs=PIXEL)
        left, right = forward[0], backward[0] + backward[2]
        assert any(
            abs(x - left) < PIXEL and abs(x + width - right) < 2 * PIXEL and y == forward[1]
            for x, y, width, _ in found
        )
    assert "forward and backward run as one" in words(svg)


def test_words_of_a_legend_end_before_the_next_swatch_in_every_font() -> None:
    """DejaVu Sans is the widest that browsers take where none of the fonts that a picture names is there."""
    wide = FontProperties(family="DejaVu Sans")
    asked = ComparisonShape(ranks=4, microbatches=8)
    svg = comparison_svg(entries([get("dualpipev"), get("zb-v")], asked), asked)
    found = [text for text in ET.fromstring(svg).iter(f"{SVG}text") if text.attrib.get("font-size") == "12"]
    assert len(found) > 4
    for text in found:
        drawn = TextPath((0.0, 0.0), str(text.text), size=12, prop=wide).get_extents().width
        assert drawn < text_width(str(text.text), 12) + GAP, text.text


def test_both_ways_have_their_own_shade(shared: Path) -> None:
    done = dualpipe(shared)
    shades = lanes(done.rank_of, done.shape)
    half = done.shape.microbatches // 2
    assert shades.count == 2
    assert shades.words == "from rank 0 and from rank 3"
    for order in done.orders:
        assert all(shades.of(action) == (action.microbatch >= half) for action in actions_of(order))


def test_chunks_are_lanes() -> None:
    shades = lanes(get("interleaved").rank_of, Shape(ranks=3, microbatches=3, chunks=2))
    assert [shades.of(Action(stage, ActionKind.FORWARD, 0)) for stage in range(6)] == [0, 0, 0, 1, 1, 1]


# All of them on one axis -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (32, 256)])
def test_panels_share_one_axis(p: int, m: int) -> None:
    """Boxes end where the slowest schedule does, and no other reaches as far."""
    asked = ComparisonShape(ranks=p, microbatches=m)
    found = entries([get(name) for name in ("1f1b", "interleaved")], asked)
    svg = comparison_svg(found, asked)
    places = path_boxes(svg)
    assert max(x + width for x, _, width, _ in places) == pytest.approx(WIDTH - RIGHT, abs=1)
    assert min(x for x, _, _, _ in places) == pytest.approx(LEFT, abs=PIXEL)
    fast, slow = found
    end = LEFT + (WIDTH - LEFT - RIGHT) * fast.makespan / slow.makespan
    (under,) = (text for text in ET.fromstring(svg).iter(f"{SVG}text") if text.text == slow.title)
    upper = [x + width for x, y, width, _ in places if y < float(under.attrib["y"])]
    assert max(upper) <= end + 8  # a column of merged boxes
    assert len(svg) < 3_000_000


def test_a_comparison_without_any_schedule_is_refused() -> None:
    asked = ComparisonShape(ranks=1, microbatches=2)
    with pytest.raises(ValueError, match="1 ranks"):
        comparison_svg(entries([get("interleaved")], asked), asked)


def test_of_many_ranks_evenly_spaced_ones_are_drawn() -> None:
    for ranks in (1, 2, 16, 17, 64, 1000):
        drawn = drawn_ranks(ranks)
        assert (drawn[0], drawn[-1]) == (0, ranks - 1)
        assert len(drawn) == len(set(drawn)) == min(ranks, 16)
