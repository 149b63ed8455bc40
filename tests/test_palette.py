"""Colours of the timeline stay apart, also for people who lack one kind of cones.

Simulated by the matrices of Machado, Oliveira and Fernandes (2009, severity 1.0) on linear RGB; differences
by CIEDE2000 (Sharma, Wu, Dalal 2005).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stepsim.sim.report.drawing.palette import FLAT, IDLE, SINGLE, fill

LEAST = 7.0
CHUNKS = 5
WORK = ("F", "B", "W")  # I is drawn as B: a backward in either case

VISION = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
SRGB_TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour: str, vision: str) -> NDArray[np.float64]:
    """CIELAB (D65) of ``#rrggbb`` as it is seen."""
    coded = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    part = np.array(SRGB_TO_XYZ) @ seen / WHITE
    x, y, z = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """CIEDE2000 with all weights 1."""
    (l1, a1, b1), (l2, a2, b2) = one.tolist(), other.tolist()
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean**7 / (mean**7 + 25.0**7))
    a1, a2 = a1 * stretch, a2 * stretch
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    l_mean, c_mean = (l1 + l2) / 2, (c1 + c2) / 2
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    t = 1 + sum(weight * math.cos(math.radians(times * hue + shift)) for weight, times, shift in waves)
    light = (l2 - l1) / (1 + 0.015 * (l_mean - 50) ** 2 / math.sqrt(20 + (l_mean - 50) ** 2))
    chroma = (c2 - c1) / (1 + 0.045 * c_mean)
    round_ = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * c_mean * t)
    bend = math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    tilt = -2 * math.sqrt(c_mean**7 / (c_mean**7 + 25.0**7)) * bend
    return math.sqrt(light**2 + chroma**2 + round_**2 + tilt * chroma * round_)


def kinds() -> dict[str, set[str]]:
    """Every colour that a kind is drawn in."""
    shades = {kind: {SINGLE[kind]} | {fill(kind, chunk, CHUNKS) for chunk in range(CHUNKS)} for kind in WORK}
    return shades | {kind: {colour} for kind, colour in FLAT.items()} | {"idle": {IDLE}}


def test_the_difference_is_the_published_one() -> None:
    """Pairs 1, 7 and 17 of the test data of Sharma, Wu and Dalal."""
    rows = [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
    ]
    for one, other, expected in rows:
        assert difference(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("vision", VISION)
def test_kinds_stay_apart(vision: str) -> None:
    close = [
        (one, a, other, b)
        for (one, first), (other, second) in itertools.combinations(kinds().items(), 2)
        for a, b in itertools.product(first, second)
        if difference(lab(a, vision), lab(b, vision)) < LEAST
    ]
    assert close == []
