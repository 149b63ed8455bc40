"""Our SVG pictures as PNG, and in dark: what timelines, networks and charts are made of, and no more.

Draws by matplotlib, with the font that it ships, so that a PNG is the same wherever it is made. Reads
nobody else's SVG: gradients, arcs and nested transforms do not occur in what we write, and are refused.
"""

from __future__ import annotations

import colorsys
import io
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALE = 2
"""Pixels of the file for one of the picture: sharp on a screen of today."""

NARROWED = 0.86
"""Of letters in timelines, placed for Helvetica: DejaVu Sans, which draws here, is wider."""

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_INHERITED = ("fill", "stroke", "stroke-width", "font-size", "font-weight", "text-anchor", "clip-path")
_STEP = re.compile(r"([MLHVCQZhvlz])|(-?\d+(?:\.\d+)?(?:e-?\d+)?)")
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}

Style = Mapping[str, str]


def dark(document: str) -> str:
    """The picture on dark ground: light colours dark and dark ones light, and hues as they were.

    >>> dark('fill="#ffffff"'), dark('fill="#000000"')
    ('fill="#141414"', 'fill="#fafafa"')
    """
    return re.sub(r"#([0-9a-f]{6})\b", lambda found: _turned(found[1]), document)


def _turned(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    turned = colorsys.hls_to_rgb(hue, 0.08 + 0.9 * (1 - light), saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in turned)


def png(document: str) -> bytes:
    """A picture of ours, an SVG document, as PNG with SCALE pixels for each of its own."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    root = ElementTree.fromstring(document)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["text.parse_math"] = False
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0.0, width), ylim=(height, 0.0))
        axes.set_axis_off()
        _Painter(axes=axes, named={one.get("id", ""): one for one in root.iter()}).draw(root, {}, (0.0, 0.0))
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=72 * SCALE, metadata={"Software": None})
    return written.getvalue()


@dataclass
class _Painter:
    """Draws elements in their order; ``named`` has what others refer to."""

    axes: Axes
    named: Mapping[str, ElementTree.Element]
    drawn: int = 0
    clips: dict[str, Any] = field(default_factory=dict)

    def draw(self, element: ElementTree.Element, inherited: Style, at: tuple[float, float]) -> None:
        """An element and what is inside it, ``at`` an offset."""
        kind = element.tag.removeprefix(_NAMESPACE)
        style = _style(element, inherited)
        if kind in ("svg", "g"):
            for inner in element:
                self.draw(inner, style, at)
        elif kind == "use":
            target = self.named[element.get("href", "").removeprefix("#")]
            self.draw(target, style, (float(element.get("x", 0)), float(element.get("y", 0))))
        elif kind == "text":
            self._text(element, style)
        elif kind in ("rect", "line", "path"):
            self._shape(_outline(kind, element, at), style)
        elif kind not in ("title", "defs", "clipPath", "pattern"):
            raise ValueError(f"no picture of ours has a {kind}")

    def _shape(self, steps: tuple[list[tuple[float, float]], list[int]], style: Style) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        points, codes = steps
        fill, stroke = style.get("fill", "#000000"), style.get("stroke", "none")
        hatch = None
        if fill.startswith("url("):
            hatch = self.named[fill[5:-1]][0].get("fill", "")
        alpha = float(style.get("fill-opacity", style.get("opacity", 1)))
        patch = PathPatch(
            Path(points, codes),
            facecolor=(hatch, 0.6) if hatch else "none" if fill == "none" else (fill, alpha),
            edgecolor="none" if stroke == "none" else (stroke, float(style.get("stroke-opacity", 1))),
            linewidth=float(style.get("stroke-width", 1)) if stroke != "none" else 0.0,
            linestyle=_dashes(style),
            capstyle="butt",
            joinstyle="miter",
            antialiased=True,
        )
        self._add(patch, style)

    def _text(self, element: ElementTree.Element, style: Style) -> None:
        stated = "font-size" in element.get("style", "")
        size = float(style.get("font-size", "12").removesuffix("px")) * (1.0 if stated else NARROWED)
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        turn = 0.0
        for name, numbers in re.findall(r"(\w+)\(([^)]*)\)", element.get("transform", "")):
            values = [float(one) for one in re.split(r"[ ,]+", numbers.strip())]
            if name == "rotate":
                turn -= values[0]
                x, y = (values[1], values[2]) if len(values) == 3 and not (x or y) else (x, y)
            elif name == "translate":
                x, y = x + values[0], y + values[1]
        words = self.axes.text(
            x,
            y,
            "".join(element.itertext()),
            size=size,
            color=style.get("fill", "#000000"),
            weight="bold" if style.get("font-weight") in ("bold", "600", "700") else "normal",
            style=style.get("font-style", "normal"),
            ha=_ANCHORS[style.get("text-anchor", "start")],
            va="baseline",
            rotation=turn,
            rotation_mode="anchor",
            family="DejaVu Sans",
        )
        words.set_zorder(self._next())

    def _add(self, patch: Any, style: Style) -> None:
        patch.set_zorder(self._next())
        self.axes.add_patch(patch)
        clip = style.get("clip-path", "")
        if clip.startswith("url("):
            patch.set_clip_path(self._clip(clip[5:-1]))

    def _clip(self, name: str) -> Any:
        from matplotlib.patches import Rectangle

        if name not in self.clips:
            box = self.named[name][0]
            x, y, width, height = (float(box.get(key, 0)) for key in ("x", "y", "width", "height"))
            self.clips[name] = Rectangle((x, y), width, height, transform=self.axes.transData)
        return self.clips[name]

    def _next(self) -> int:
        self.drawn += 1
        return self.drawn


def _style(element: ElementTree.Element, inherited: Style) -> Style:
    """What an element is drawn with: its own attributes and its style over what its groups say."""
    found = {key: value for key, value in inherited.items() if key in _INHERITED}
    found |= element.attrib
    for part in element.get("style", "").split(";"):
        key, _, value = part.partition(":")
        if value:
            found[key.strip()] = value.strip()
    return found


def _dashes(style: Style) -> Any:
    """Dashes in units of the line's width, as matplotlib has them."""
    stated = style.get("stroke-dasharray", "")
    if not stated or stated == "none":
        return "-"
    width = float(style.get("stroke-width", 1)) or 1.0
    return (0, [float(one) / width for one in re.split(r"[ ,]+", stated.strip())])


def _outline(
    kind: str, element: ElementTree.Element, at: tuple[float, float]
) -> tuple[list[tuple[float, float]], list[int]]:
    """Points and matplotlib's codes of a shape."""

    def stated(*keys: str) -> list[float]:
        return [float(element.get(key, 0)) for key in keys]

    if kind == "rect":
        x, y, width, height = stated("x", "y", "width", "height")
        return _walked(f"M {x} {y} h {width} v {height} h {-width} z", at)
    if kind == "line":
        x, y, end_x, end_y = stated("x1", "y1", "x2", "y2")
        return _walked(f"M {x} {y} L {end_x} {end_y}", at)
    return _walked(element.get("d", ""), at)


_MOVE, _LINE, _CURVE3, _CURVE4, _CLOSE = 1, 2, 3, 4, 79
"""matplotlib.path.Path's codes."""

_TAKES = {"M": 2, "L": 2, "l": 2, "H": 1, "h": 1, "V": 1, "v": 1, "C": 6, "Q": 4}


def _walked(path: str, at: tuple[float, float]) -> tuple[list[tuple[float, float]], list[int]]:
    """The points of a path's text. ValueError for a step that no picture of ours has."""
    left = [word or float(value) for word, value in _STEP.findall(path)]
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    x, y = at
    start, letter = at, "M"
    index = 0
    while index < len(left):
        if isinstance(left[index], str):
            letter = str(left[index])
            index += 1
        if letter in "Zz":
            points.append(start)
            codes.append(_CLOSE)
            x, y = start
            continue
        values = [float(one) for one in left[index : index + _TAKES[letter]]]
        index += len(values)
        if letter in "CQ":
            pairs = [(values[n] + at[0], values[n + 1] + at[1]) for n in range(0, len(values), 2)]
            points += pairs
            codes += [_CURVE4 if letter == "C" else _CURVE3] * len(pairs)
            x, y = pairs[-1]
            continue
        x, y = _moved(letter, values, (x, y), at)
        points.append((x, y))
        codes.append(_MOVE if letter == "M" else _LINE)
        if letter == "M":
            start, letter = (x, y), "L"
    return points, codes


def _moved(
    letter: str, values: list[float], here: tuple[float, float], at: tuple[float, float]
) -> tuple[float, float]:
    """The point at which a straight step of a path ends."""
    (x, y), (left, top) = here, at
    if letter in "ML":
        return values[0] + left, values[1] + top
    if letter == "l":
        return x + values[0], y + values[1]
    if letter in "Hh":
        return (values[0] + left if letter == "H" else x + values[0]), y
    return x, (values[0] + top if letter == "V" else y + values[0])
