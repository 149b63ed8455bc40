"""Chance: streams of random numbers by purpose, laws of durations, and the gaps between failures.

Every source of faults has streams of its own, so that switching one off, or changing what recovery does,
leaves all others as they were: variants share their random numbers. Knows no units but seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...scenario.faults.laws import Gaps, Lasting


class Streams:
    """Random streams of one replication, by name."""

    def __init__(self, seed: int, replication: int) -> None:
        self.root = f"{seed}/{replication}"
        self.named: dict[str, Random] = {}

    def get(self, name: str) -> Random:
        """The stream of that name; the same numbers whatever other streams are used."""
        found = self.named.get(name)
        if found is None:
            found = self.named[name] = Random(f"{self.root}/{name}")
        return found


@dataclass(frozen=True, slots=True)
class Law:
    """A law of durations: ``kind`` with two numbers, by inversion or by the standard library."""

    kind: str
    a: float
    b: float = 0.0

    def draw(self, stream: Random) -> float:
        """One duration; always one draw of the stream or two, whatever comes out."""
        match self.kind:
            case "constant":
                return self.a
            case "exponential":
                return stream.expovariate(1.0) * self.a
            case "lognormal":
                return self.a * math.exp(self.b * stream.gauss(0.0, 1.0))
            case "weibull":
                return self.a * stream.weibullvariate(1.0, self.b)
            case _:
                return stream.uniform(self.a, self.b)

    @property
    def mean(self) -> float:
        """Expectation."""
        match self.kind:
            case "lognormal":
                return self.a * math.exp(self.b * self.b / 2)
            case "weibull":
                return self.a * math.gamma(1 + 1 / self.b)
            case "uniform":
                return (self.a + self.b) / 2
            case _:
                return self.a

    def longest(self) -> float:
        """What is exceeded once in a hundred times."""
        match self.kind:
            case "exponential":
                return self.a * math.log(100)
            case "lognormal":
                return self.a * math.exp(2.326 * self.b)
            case "weibull":
                return float(self.a * math.log(100) ** (1 / self.b))
            case "uniform":
                return self.b
            case _:
                return self.a


def law_of(spec: Lasting) -> Law:
    """The law that a document wrote."""
    if spec.constant is not None:
        return Law("constant", spec.constant)
    if spec.exponential:
        return Law("exponential", spec.exponential.mean)
    if spec.lognormal:
        return Law("lognormal", spec.lognormal.median, spec.lognormal.sigma)
    if spec.weibull:
        scale = spec.weibull.mean / math.gamma(1 + 1 / spec.weibull.shape)
        return Law("weibull", scale, spec.weibull.shape)
    assert spec.uniform
    return Law("uniform", spec.uniform.low, spec.uniform.high)


def gap_law(spec: Gaps, mean_s: float) -> Law:
    """The law of the time between failures of one unit, with that mean."""
    if spec.constant:
        return Law("constant", mean_s)
    if spec.weibull:
        return Law("weibull", mean_s / math.gamma(1 + 1 / spec.weibull.shape), spec.weibull.shape)
    if spec.lognormal:
        return Law("lognormal", mean_s * math.exp(-(spec.lognormal.sigma**2) / 2), spec.lognormal.sigma)
    if spec.uniform:
        return Law("uniform", mean_s * (1 - spec.uniform.spread), mean_s * (1 + spec.uniform.spread))
    return Law("exponential", mean_s)
