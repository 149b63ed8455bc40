"""What differs between two predicted steps, and where the time went.

Knows two Results. The parts of the step (segments of the critical path) add up to the difference
of the step times: what a path leaves unnamed is a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..result.result import Result
from ..result.step import AXES, PEERS

if TYPE_CHECKING:
    from ..result.cost import StepCost
    from ..scenario.models import Scenario

REST = "not on the path"
LABELS = ("name", "title", "published")  # say which case it is, and change nothing that is simulated


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One field of the scenario, by its dotted path; a value is None where it is not set."""

    path: str
    a: Any
    b: Any


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One figure of both steps, in the unit of the figure."""

    name: str
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """``b`` against ``a``. ``critical_path`` sums to the step time on both sides; ``memory`` is the
    bill of the fullest pipeline rank of each, in bytes; ``exposed`` is in seconds by axis, ``waiting`` for
    whom (PEERS).
    """

    name_a: str
    name_b: str
    fields: tuple[FieldChange, ...]
    step_time_s: Difference
    headline: tuple[Difference, ...]  # tokens/s per GPU, MFU, ... (shares are fractions)
    critical_path: tuple[Difference, ...]
    exposed: tuple[Difference, ...]
    waiting: tuple[Difference, ...]
    memory: tuple[Difference, ...]
    peak_memory_bytes: Difference
    fits_a: bool
    fits_b: bool
    fit_probability_a: float | None = None
    fit_probability_b: float | None = None
    cost: tuple[Difference, ...] = ()  # of a step, of a trillion tokens; empty without a price on both sides
    currency: str = "USD"


def comparison(a: Result, b: Result) -> Comparison:
    """What changes from ``a`` to ``b``.

    Raises ValueError for a replayed program: it lacks the scenario or the memory bill.
    """
    if not (a.scenario and a.memory and b.scenario and b.memory):
        raise ValueError("only simulated scenarios can be compared, not replayed programs")
    fullest_a, fullest_b = a.fullest, b.fullest
    return Comparison(
        name_a=a.scenario.name,
        name_b=b.scenario.name,
        fields=tuple(_field_changes(*_documents(a.scenario, b.scenario))),
        step_time_s=Difference(name="step time", a=a.step_time_s, b=b.step_time_s),
        headline=(
            Difference(name="tokens/s per GPU", a=a.tokens_per_second_per_gpu, b=b.tokens_per_second_per_gpu),
            Difference(name=_full_mfu(a, b), a=a.mfu, b=b.mfu),
            Difference(name="MFU, causal", a=a.mfu_causal, b=b.mfu_causal),
            Difference(name="HFU", a=a.hfu, b=b.hfu),
            Difference(name="pipeline bubble", a=a.bubble_fraction, b=b.bubble_fraction),
        ),
        critical_path=_changes(_path(a), _path(b)),
        exposed=_changes(
            {axis: a.exposed_communication_s.get(axis, 0.0) for axis in AXES},
            {axis: b.exposed_communication_s.get(axis, 0.0) for axis in AXES},
        ),
        waiting=_changes(
            {name: a.waiting_s.get(name, 0.0) for name in PEERS},
            {name: b.waiting_s.get(name, 0.0) for name in PEERS},
        ),
        memory=_changes(fullest_a.terms, fullest_b.terms),
        peak_memory_bytes=Difference(name="peak memory", a=fullest_a.peak_bytes, b=fullest_b.peak_bytes),
        fits_a=a.fits,
        fits_b=b.fits,
        fit_probability_a=a.fit_probability,
        fit_probability_b=b.fit_probability,
        cost=_costs(a.cost, b.cost),
        currency=a.cost.currency if a.cost else "USD",
    )


def _costs(a: StepCost | None, b: StepCost | None) -> tuple[Difference, ...]:
    """What both cost, in the currency of both; nothing where one has no price, or one of another currency."""
    if a is None or b is None or a.currency != b.currency:
        return ()
    return (
        Difference(name="cost of a step", a=a.per_step, b=b.per_step),
        Difference(name="cost of a trillion tokens", a=a.per_trillion_tokens, b=b.per_trillion_tokens),
    )


def _full_mfu(a: Result, b: Result) -> str:
    """What the MFU of full scores is called: nothing else, where it is what people should read of both."""
    return "MFU" if {a.headline_mfu, b.headline_mfu} == {"mfu"} else "MFU, full"


def _path(result: Result) -> dict[str, float]:
    """Seconds by name; segments of one name are added up."""
    seconds: dict[str, float] = {}
    for segment in result.critical_path:
        seconds[segment.name] = seconds.get(segment.name, 0.0) + segment.seconds
    rest = result.step_time_s - sum(seconds.values())
    if abs(rest) > 1e-9 * result.step_time_s:
        seconds[REST] = rest
    return seconds


def _changes(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Difference, ...]:
    """Every name of either side, in the order of ``a`` and then of ``b``."""
    return tuple(Difference(name=name, a=a.get(name, 0.0), b=b.get(name, 0.0)) for name in {**a, **b})


def _documents(a: Scenario, b: Scenario) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both scenarios as documents; with their software in full where only one side gives a preset."""
    both = a.to_document(), b.to_document()
    if len({"preset" in one.get("software", {}) for one in both}) > 1:
        for scenario, document in zip((a, b), both, strict=True):
            document["software"] = scenario.software.model_dump(mode="json", exclude={"title", "source"})
    return both


def _field_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[FieldChange]:
    flat_a, flat_b = dict(_flat(a)), dict(_flat(b))
    for path in {**flat_a, **flat_b}:
        if path.split(".")[0] in LABELS or flat_a.get(path) == flat_b.get(path):
            continue
        yield FieldChange(path=path, a=flat_a.get(path), b=flat_b.get(path))


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
