"""Plain charts by matplotlib: points, lines, bars and maps with axes, as SVG in the colours of the timelines.

Equal input gives equal bytes on every machine: text stays text but is measured with the font that matplotlib
ships, ids come from what they name, and neither a date nor the user's own matplotlibrc enters. A length is a
pixel. Schedules over time and clusters are drawn by timeline/ and topology/. matplotlib is loaded when the
first chart is asked for (docs/decisions/0019-charts-by-matplotlib.md).
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from ....hardware.shown import printable_line
from . import palette
from .svg import FONT, number

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

BLUE, AMBER, GREEN = (palette.RAMPS[kind][0] for kind in "FBW")
GREY, PALE = palette.FLAT["pp"], palette.RAMPS["F"][1]
SERIES = (BLUE, AMBER, GREEN, *palette.FLAT.values())
"""Colours of unordered series, in their order."""

MARGIN = 12.0
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": palette.GRID,
    "axes.grid": True,
    "axes.labelcolor": palette.INK,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "figure.dpi": 72,
    "font.size": 12,
    "grid.color": palette.GRID,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.facecolor": "#ffffff",
    "svg.fonttype": "none",
    "svg.hashsalt": "stepsim",
    "text.color": palette.INK,
    "text.parse_math": False,
    "xtick.color": palette.GRID,
    "xtick.labelcolor": palette.FAINT_INK,
    "xtick.labelsize": 11,
    "ytick.color": palette.GRID,
    "ytick.labelcolor": palette.FAINT_INK,
    "ytick.labelsize": 11,
}
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_HINT = "hint:"
_LINK = "{http://www.w3.org/1999/xlink}href"


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty figure, ``width`` by ``height`` pixels; draw on it and call ``svg`` inside the block."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would say where it keeps its list of fonts
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font lacks: the viewer has others
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        from matplotlib.figure import Figure

        yield Figure(figsize=(width / 72, height / 72), layout="constrained")


def svg(figure: Figure, title: str, *, inline: bool = False) -> str:
    """The figure as a document, or as an element of a page; ``title`` is for whoever hears it read."""
    from matplotlib.text import Text

    for words in figure.findobj(Text):
        assert isinstance(words, Text)
        words.set_text(printable_line(words.get_text()))  # a user's name may hold what XML cannot
    document = io.StringIO()
    figure.savefig(document, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(document.getvalue())
    width, height = (72 * inches for inches in figure.get_size_inches())
    _add_hints(root)
    _make_plain(root)
    root.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "font-family": FONT}
    root.attrib |= {"width": "100%"} if inline else {"width": f"{width:g}", "height": f"{height:g}"}
    if not inline:
        root.set("xmlns", _NAMESPACE.strip("{}"))
    _put_title(root, printable_line(title))
    body = ElementTree.tostring(root, encoding="unicode")
    return body if inline else f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _put_title(element: ElementTree.Element, words: str) -> None:
    title = ElementTree.Element("title")
    title.text = words
    element.insert(0, title)


def _add_hints(root: ElementTree.Element) -> None:
    """Titles on what ``hint`` marked: on a group, or on each marker in it."""
    for group in [found for found in root.iter() if found.get("id", "").startswith(_HINT)]:
        words = json.loads(group.get("id", "").removeprefix(_HINT))
        marks = [group] if len(words) == 1 else [*group.iter(f"{_NAMESPACE}use")]
        for mark, told in zip(marks, words, strict=True):
            _put_title(mark, told)


def _make_plain(root: ElementTree.Element) -> None:
    """Take away metadata, namespaces, the font and ids that nothing names; round to 0.01 pixel."""
    for metadata in root.findall(f"{_NAMESPACE}metadata"):
        root.remove(metadata)
    named = set()
    for found in root.iter():
        found.tag = found.tag.removeprefix(_NAMESPACE)
        if _LINK in found.attrib:
            found.set("href", found.attrib.pop(_LINK))
        named |= set(re.findall(r"#([\w-]+)", " ".join(map(str, found.attrib.values()))))
        for place in {"d", "x", "y", "width", "height", "transform"} & set(found.attrib):
            short = re.sub(r"-?\d+\.\d+", lambda digits: number(float(digits[0])), found.attrib[place])
            found.set(place, " ".join(short.split()))
        marks = found.findall(f"{_NAMESPACE}use")  # what all share is said once
        if len(marks) > 1 and len({mark.get("style") for mark in marks}) == 1:
            found.set("style", marks[0].get("style", ""))
            for mark in marks:
                del mark.attrib["style"]
        if found.get("transform", "").startswith("rotate(-0 "):
            del found.attrib["transform"]
        found.tail = "\n"
        if found.tag == "text":
            found.set("style", re.sub(r"font-family: [^;]*; ", "", found.get("style", "")))
    for found in root.iter():
        if found.text and not found.text.strip():
            found.text = None
        if found.get("id") not in named:
            found.attrib.pop("id", None)


def hint(artist: Artist, words: Sequence[str]) -> None:
    """What the pointer shows: one for the whole, or one for each marker of a line."""
    artist.set_gid(_HINT + json.dumps([*map(printable_line, words)]))


def head(figure: Figure, title: str, note: str = "", series: Sequence[tuple[Artist, str]] = ()) -> None:
    """Title, a line below it, and the legend, all above the panels, which share the rest of the figure."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width, height = (72 * inches for inches in figure.get_size_inches())
    at = MARGIN
    for words, size, weight, ink in (
        (title, 18, "bold", palette.INK),
        (note, 12.5, "normal", palette.FAINT_INK),
    ):
        if words:
            where = (2 * MARGIN / width, 1 - at / height)
            figure.text(*where, words, size=size, weight=weight, color=ink, va="top")
            at += 1.5 * size
    if series:
        handles, names = zip(*series, strict=True)
        figure.legend(
            handles,
            names,
            loc="upper left",
            bbox_to_anchor=(MARGIN / width, 1 - at / height),
            ncols=min(len(names), 8),
        )
        at += 18.0 * -(-len(names) // 8) + 4
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    top = (at + MARGIN) / height
    engine.set(rect=(MARGIN / width, MARGIN / height, 1 - 2 * MARGIN / width, 1 - MARGIN / height - top))


def dots(panel: Axes, x: Sequence[float], y: Sequence[float], colour: str, alpha: float = 1.0) -> Line2D:
    """A dot for each point, none of them left out."""
    (drawn,) = panel.plot(
        x, y, "o", color=colour, markersize=5, markeredgewidth=0, alpha=alpha, clip_on=False
    )
    return drawn


def key(colour: str, style: Literal["-", "--", ":"] = "-", marker: Literal["", "o", "s"] = "") -> Line2D:
    """A sample for a legend: a stroke in that style or, where there is a marker, a dot or a box."""
    from matplotlib.lines import Line2D

    if marker:
        size = 7 if marker == "o" else 11
        return Line2D([], [], color=colour, marker=marker, markersize=size, markeredgewidth=0, linestyle="")
    return Line2D([], [], color=colour, linestyle=style)


def above(panel: Axes, series: Sequence[tuple[Artist, str]], columns: int = 3) -> None:
    """The legend of one panel, over it, in at most three lines: beyond that the first entries."""
    most = 3 * columns
    shown = list(series[:most])
    if len(series) > most:
        shown.append((key("#ffffff"), f"and {len(series) - most} more"))
    handles, names = zip(*shown, strict=True)
    panel.legend(
        handles,
        names,
        ncols=columns,
        fontsize=11,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
    )


def binary_bytes(size: float) -> str:
    """A size in B, KiB, MiB or GiB.

    >>> binary_bytes(65536.0)
    '64 KiB'
    """
    unit, name = next(one for one in _BINARY if size >= one[0] or one[0] == 1)
    return f"{size / unit:g} {name}"


_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def named(axis: Axis, names: Sequence[str]) -> None:
    """Names instead of numbers at 0, 1, 2, ... of an axis."""
    axis.set_ticks(range(len(names)), [*map(printable_line, names)])


CHARACTER = 6.4
"""Points that a character of a tick's name takes in the mean, at its size of 11."""


def slanted(panel: Axes, names: Sequence[str], room: float) -> None:
    """Names below the panel as ``named`` puts them; slanted where they have no ``room``, in points each."""
    named(panel.xaxis, names)
    if max(map(len, names)) * CHARACTER > room:
        panel.tick_params(axis="x", labelrotation=35)
        for label in panel.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def written(axis: Axis, write: Callable[[float], str]) -> None:
    """Have ``write`` word the ticks of an axis."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def logarithmic(
    panel: Axes,
    which: Literal["x", "y"],
    span: tuple[float, float],
    write: Callable[[float], str],
    base: float = 10.0,
    subs: Sequence[float] = (1.0,),
) -> None:
    """A logarithmic axis over ``span`` with ticks at ``subs`` times powers of ``base``."""
    from matplotlib.ticker import LogLocator, NullLocator

    if which == "x":
        panel.set(xscale="log", xlim=span)
    else:
        panel.set(yscale="log", ylim=span)
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set_major_locator(LogLocator(base=base, subs=subs))
    axis.set_minor_locator(NullLocator())
    written(axis, write)


def decades(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around ``values``.

    >>> decades([3.0, 20.0])
    (1.0, 100.0)
    """
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)
