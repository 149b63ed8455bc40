"""SVG elements as strings, always with the same bytes for the same input.

Knows nothing of schedules. Colours are presentation attributes, not CSS, so that converters to PDF
read them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax import saxutils

from ....hardware.shown import printable_line

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


def number(value: float) -> str:
    """At most two decimals and no trailing zeros: a hundredth of a pixel is enough.

    >>> number(12.0), number(3.14159), number(-0.001)
    ('12', '3.14', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(tag: str, content: str = "", /, **attributes: float | str) -> str:
    """One element. ``_`` in a name becomes ``-``; numbers are rounded; ``content`` is markup."""
    written = "".join(
        f" {name.replace('_', '-')}={_attribute(value if isinstance(value, str) else number(value))}"
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def escape(words: str) -> str:
    """Text as content of an element. XML has no control characters, not even escaped: they are spelt out."""
    return saxutils.escape(printable_line(words))


def _attribute(words: str) -> str:
    return saxutils.quoteattr(printable_line(words))


def rect(
    x: float, y: float, width: float, height: float, title: str = "", /, **attributes: float | str
) -> str:
    content = f"<title>{escape(title)}</title>" if title else ""
    return element("rect", content, x=x, y=y, width=width, height=height, **attributes)


def paper(width: float, height: float) -> str:
    """White ground."""
    return rect(0, 0, width, height, fill="#ffffff")


def line(x1: float, y1: float, x2: float, y2: float, /, **attributes: float | str) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def text(x: float, y: float, words: str, /, **attributes: float | str) -> str:
    return element("text", escape(words), x=x, y=y, **attributes)


def group(parts: Iterable[str], /, **attributes: float | str) -> str:
    """The parts under shared attributes, one a line; nothing when there are none."""
    inside = "\n".join(parts)
    return element("g", f"\n{inside}\n", **attributes) if inside else ""


def document(title: str, parts: Iterable[str], width: float, height: float) -> str:
    """A whole file: ``title`` for whoever hears it read, ``parts`` in pixels; empty ones are left out."""
    body = "\n".join(filter(None, (element("title", escape(title)), *parts)))
    root = element(
        "svg",
        f"\n{body}\n",
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        font_family=FONT,
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n'


def boxes_path(boxes: Iterable[tuple[float, float, float, float]], /, **attributes: float | str) -> str:
    """Many boxes (x, y, width, height) as one path: a fifth of the bytes of as many rects."""
    steps = (f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in boxes)
    return element("path", d="".join(steps), **attributes)


LETTER = 0.56
"""Mean advance in em of the widest font that pictures come to be drawn in: DejaVu Sans, which browsers take
where none that FONT names is there, has 0.45 to 0.60 in the words of legends; Helvetica has 0.48."""


def text_width(words: str, size: float) -> float:
    """Width in pixels, estimated by LETTER."""
    return LETTER * size * len(words)


def shortened(words: str, size: float, width: float) -> str:
    """The words, cut with an ellipsis where they would be wider than ``width``."""
    letters = int(width / (LETTER * size))
    return words if len(words) <= letters else words[: max(letters - 1, 1)].rstrip() + "…"
