"""What a chart shows, read back from its SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where the markers of a colour lie, those of legends too."""
    return [
        (float(mark.get("x", "")), float(mark.get("y", "")))
        for group in ElementTree.fromstring(svg).iter(f"{SVG}g")
        for mark in group.findall(f"{SVG}use")
        if f"fill: {colour}" in group.get("style", "") + mark.get("style", "")
    ]


def lines(svg: str, colour: str) -> list[list[tuple[float, float]]]:
    """The corners of every line of a colour, those of legends too."""
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] ?(\S+) (\S+)", path.get("d", ""))]
        for path in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if f"stroke: {colour}" in path.get("style", "") and "fill: none" in path.get("style", "")
    ]


def hints(svg: str) -> list[str]:
    """What the pointer shows over marks, in their order."""
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")][1:]


def words(svg: str) -> list[str]:
    """Every text."""
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
