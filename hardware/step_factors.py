"""Factors by which steps on a user's own cluster take longer than shipped constants say, one for each cause.

Knows the causes, the measured steps that showed the factors, and how far one step is from another;
``calibration/fit/own/steps.py`` finds the factors, ``sim/lowering`` applies them,
``sim/evidence/own_steps.py`` says how sure they leave a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

CAUSES = ("matrix", "memory", "host", "checks", "node", "network")
"""What takes the time of a step: GEMM and attention, kernels bound by memory, the host's launches and its
checks of collectives (sim/network/checks.py), communication inside an NVLink domain and between domains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKind:
    """What kind of step it is: ``sizes`` of model, layout and batch, and ``kinds`` of schedule, precision,
    software and the like, by name."""

    sizes: Mapping[str, float]
    kinds: Mapping[str, str]

    def distance(self, other: StepKind) -> float:
        """How far two steps are apart: doublings of every size and 1 for each kind that differs, as a
        Euclidean distance. What one of both does not state counts as 1.

        >>> small = StepKind(sizes={"tp": 2, "pp": 1}, kinds={"schedule": "1f1b"})
        >>> small.distance(StepKind(sizes={"tp": 16, "pp": 16}, kinds={"schedule": "1f1b"}))
        5.0
        """
        names = {*self.sizes, *other.sizes}
        squares = sum(
            math.log2(max(self.sizes.get(name, 1.0), 1e-9) / max(other.sizes.get(name, 1.0), 1e-9)) ** 2
            for name in names
        )
        differ = sum(self.kinds.get(name) != other.kinds.get(name) for name in {*self.kinds, *other.kinds})
        return math.sqrt(squares + differ)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """A measured step that factors were found on.

    ``predicted_s`` is with shipped constants, ``calibrated_s`` with the factors; ``shares`` are of the
    calibrated critical path, by cause. ``pull`` is the logarithm of a further factor of steps of exactly
    this kind.
    """

    name: str
    measured_s: float
    predicted_s: float
    calibrated_s: float
    shares: Mapping[str, float]
    kind: StepKind
    pull: float = 0.0

    def __hash__(self) -> int:
        return hash((self.name, self.measured_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFactors:
    """Durations over the shipped ones, by cause; ``fixed_s`` comes to the fixed time of every step.

    ``runs`` have shown them. What a run takes longer besides them fades with the distance from it, to
    1/e at ``reach``; ``remaining`` is what is left of all of them at one step (``at``).
    """

    matrix: float = 1.0
    memory: float = 1.0
    host: float = 1.0
    checks: float = 1.0
    node: float = 1.0
    network: float = 1.0
    fixed_s: float = 0.0
    remaining: float = 1.0
    reach: float = 1.0
    runs: tuple[OwnStep, ...] = ()

    def of_communication(self, *, network: bool) -> float:
        """The factor of a communication, by whether it leaves its NVLink domain."""
        return self.network if network else self.node

    def at(self, kind: StepKind) -> StepFactors:
        """The factors of one step, and how much longer than these factors say runs near it took."""
        if not self.runs:
            return self
        left = sum(run.pull * math.exp(-run.kind.distance(kind) / self.reach) for run in self.runs)
        factor = math.exp(left)
        return replace(self, remaining=factor, **{cause: factor * getattr(self, cause) for cause in CAUSES})


AS_SHIPPED = StepFactors()
