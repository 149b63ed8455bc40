"""Colours of the timeline: one hue a kind, one shade a virtual chunk.

Forward is blue and backward amber, as in Paul Tol's colour-blind safe sets (SRON/EPS/TN/09-002). All
others were searched for, near the hues that people expect, so that any two kinds differ by 7 (CIEDE2000) or
more, also as people see them who lack one kind of cones (Machado et al. 2009); tests/test_palette.py holds
that. Chunks run from dark (the first) to light, so a print without colour still shows their order.
"""

from __future__ import annotations

INK = "#222222"
FAINT_INK = "#666666"
GRID = "#d9d9d5"
IDLE = "#f0f0ed"

RAMPS = {
    "F": ("#2b5c8f", "#b5d3ea"),
    "B": ("#c06a12", "#f8d9a0"),
    "I": ("#c06a12", "#f8d9a0"),
    "W": ("#306020", "#cadfc3"),
}
"""Darkest and lightest shade by kind of action."""

SINGLE = {"F": "#6f9fcd", "B": "#eeb15c", "I": "#eeb15c", "W": "#608753"}
"""The one shade where a rank holds one chunk."""

FLAT = {
    "optimizer": "#494d50",
    "tp": "#ac5367",
    "cp": "#502b1b",
    "ep": "#4fc4b1",
    "pp": "#8f9299",
    "dp": "#9c1172",
}

WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward, input",
    "W": "backward, weights",
    "optimizer": "optimizer",
}


def fill(kind: str, chunk: int, chunks: int) -> str:
    """Colour of ``kind`` on virtual chunk ``chunk`` of ``chunks``, as ``#rrggbb``."""
    if kind in FLAT:
        return FLAT[kind]
    if chunks <= 1:
        return SINGLE[kind]
    dark, light = (channels(colour) for colour in RAMPS[kind])
    part = chunk / (chunks - 1)
    return "#" + "".join(f"{round(d + part * (b - d)):02x}" for d, b in zip(dark, light, strict=True))


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on ``colour`` (relative luminance of WCAG 2.1)."""
    parts = [value / 255 for value in channels(colour)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#ffffff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else INK


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour such as ``#ffcc00``, from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
