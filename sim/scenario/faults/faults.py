"""The block ``faults``: what strikes, where, how often; and one fault as a line of text.

Knows the kinds of faults and their keys; which targets exist is checked where the cluster is known
(sim/scenario/checks_faults.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ....hardware.catalogue import unknown_name
from ....hardware.explain import lines
from ....hardware.fields import (
    Chance,
    Count,
    CountOrZero,
    Flag,
    Latency,
    PositiveShare,
    Ratio,
    Seconds,
    SecondsAboveZero,
    Spread,
    Text,
    number,
)
from .fields import FaultsBlock
from .kinds import ANYWHERE, FaultKind, get_kind, kind_names
from .laws import EXPONENTIAL, Arrival, Duration, Lasting
from .targets import WHOLE, Target, parse_target

MAGNITUDES = ("slow_factor", "bandwidth_factor", "latency_add", "notice", "cv")
"""How strong a fault is: keys that some kinds take."""

MOST_CV = 0.3
"""Largest coefficient of variation of jitter: at three deviations a host would take twice as long, which is
no jitter."""


class Magnitude(FaultsBlock):
    """How strong a fault is."""

    slow_factor: Ratio | None = Field(
        default=None, description="time of a step or kernel over the healthy one"
    )
    bandwidth_factor: PositiveShare | None = Field(default=None, description="share of the rate that is left")
    latency_add: Latency | None = Field(default=None, description="added to every message")
    notice: Seconds | None = Field(default=None, description="warning before a graceful stop")
    cv: Annotated[float, number(ge=0, le=10)] | None = Field(
        default=None,
        description="jitter: standard deviation of a host's compute time over its undisturbed time, "
        "which it is never below",
    )


MOST_A_DAY = 86400.0
"""Failures of one unit: one a second. A unit that fails more often never works."""


def check_magnitudes(kind: FaultKind, given: Magnitude) -> None:
    """ValueError for a magnitude that the kind does not take."""
    wrong = [key for key in MAGNITUDES if getattr(given, key) is not None and key not in kind.keys]
    if wrong:
        over = kind.effect in ("crash", "hang") and kind.swapped == "none"
        known = ", ".join((*kind.keys, *(() if over else ("duration",)))) or "at alone"
        raise ValueError(f"{kind.name} takes no {wrong[0]}; it takes {known}")
    if given.cv is not None and given.cv > MOST_CV:
        raise ValueError(
            f"cv: {given.cv:g} is more than {MOST_CV}: some hosts would take twice as long; "
            "jitter is a few hundredths, and a host that is slower by more is a gpu_throttle"
        )


def check_duration(kind: FaultKind, duration: Lasting | None) -> None:
    """ValueError for a duration of a fault that is over when the job restarts."""
    if duration is not None and kind.effect in ("crash", "hang") and kind.swapped == "none":
        raise ValueError(f"{kind.name} takes no duration: it is over when the job restarts")


def fields_of_line(text: str) -> dict[str, Any]:
    """The fields of an event as text. ValueError for an unknown key, two targets, or nothing at all."""
    words = _with_units(text.split())
    if not words:
        raise ValueError("a fault is kind target key=value ..., such as gpu_throttle gpu/37 slow_factor=1.3")
    fields: dict[str, Any] = {"kind": words[0]}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            if "target" in fields:
                raise ValueError(f"{text!r}: {fields['target']} and {word} are two targets; give one")
            fields["target"] = word
            continue
        known = ("at", "at_step", "duration", *MAGNITUDES)
        if key not in known:
            raise ValueError(f"{text!r}: {unknown_name('key', key, known)}")
        if key in fields:
            raise ValueError(f"{text!r}: {key} is given twice")
        fields[key] = _number(value) if key in _NUMBERS else value
    return fields


def _with_units(words: list[str]) -> list[str]:
    """``at=2``, ``s`` as one word: a bare number of a key that takes a unit, and a word that is no target."""
    joined: list[str] = []
    for word in words:
        key, _, value = joined[-1].partition("=") if joined else ("", "", "")
        lacks_unit = value and key not in _NUMBERS and isinstance(_number(value), int | float)
        if lacks_unit and "=" not in word and "/" not in word and word not in WHOLE:
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


_NUMBERS = ("at_step", "slow_factor", "bandwidth_factor", "cv")
"""Keys of a line that are plain numbers; the others carry a unit."""


def _number(text: str) -> Any:
    """The number that a word of a line is; the word itself where it is none, which its field refuses."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Event(Magnitude):
    """One fault at a known time, or a file of them. Without ``at`` and ``at_step`` it is there from the
    start.
    """

    trace: Text | None = Field(
        default=None, description="CSV of time,kind,target,duration,magnitude; or Greyhound's format"
    )
    at: Seconds | None = Field(default=None, description="after the start of the run")
    at_step: CountOrZero | None = Field(default=None, description="when that many steps are done")
    kind: Text | None = Field(
        default=None, examples=["gpu_fatal"], description="what strikes; stepsim list faults"
    )
    target: Text | None = Field(
        default=None,
        examples=["gpu/1037", "rail/3@node/12"],
        description="where: scope/index, or scope/index@scope/index",
    )
    duration: Duration | None = Field(
        default=None, description="how long it lasts; of a lost part: how long it is away"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_line(cls, value: Any) -> Any:
        return fields_of_line(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _sound(self) -> Event:
        if self.trace is not None:
            if self.model_fields_set - {"trace"}:
                raise ValueError("trace takes no other keys: its file says when, what and where")
            return self
        if self.kind is None:
            raise ValueError(f"kind is required; known: {', '.join(kind_names())}")
        if self.at is not None and self.at_step is not None:
            raise ValueError("give at or at_step, not both")
        kind = get_kind(self.kind)
        check_magnitudes(kind, self)
        check_duration(kind, self.duration)
        where = self.where
        if where.scope not in kind.scopes:
            raise ValueError(f"{kind.name} strikes {' or '.join(kind.scopes)}, not {where.scope}")
        return self

    @property
    def where(self) -> Target:
        """The parsed target; the job or the storage where none is given and the kind allows it."""
        if self.target is not None:
            return parse_target(self.target)
        assert self.kind is not None
        scopes = get_kind(self.kind).scopes
        for scope in ("job", "storage"):
            if scope in scopes:
                return Target(scope)
        example = next((scope for scope in scopes if self.kind.startswith(scope)), scopes[0])
        raise ValueError(f"{self.kind} needs a target, such as {example}/0")


class Process(Magnitude):
    """Faults by chance, alike for every unit of a scope.

    One of ``rate_per_unit_day``, ``mtbf`` (of one unit) and ``prevalence`` (the share of units that have the
    fault from the start: a state, not an event).
    """

    kind: Text = Field(description="what strikes; stepsim list faults")
    scope: Text | None = Field(default=None, description="default: the kind's usual one")
    name: Text | None = Field(default=None, description="in reports; default: the kind's name")
    rate_per_unit_day: Annotated[float, number(ge=0, le=MOST_A_DAY)] | None = Field(
        default=None, description="failures of one unit of the scope per day"
    )
    mtbf: SecondsAboveZero | None = Field(
        default=None, description="mean time between failures of one unit of the scope"
    )
    prevalence: Chance | None = Field(
        default=None, description="share of units that have the fault from the start, and of hosts swapped in"
    )
    dist: Arrival = Field(default=EXPONENTIAL, description="law of the time between failures of one unit")
    on_repair: Literal["renew", "keep"] = Field(
        default="renew", description="whether a swapped-in unit starts at age zero"
    )
    duration: Duration | None = Field(
        default=None, description="how long it lasts; of a lost part: how long it is away"
    )
    repair: Duration | None = Field(default=None, description="how long the broken part is away")
    source: Text = Field(default="", description="where the rate comes from")

    @model_validator(mode="after")
    def _sound(self) -> Process:
        kind = get_kind(self.kind)
        if self.scope is not None and self.scope not in ANYWHERE:
            raise ValueError(f"no scope is called {self.scope!r}; known: {', '.join(ANYWHERE)}")
        if self.scope is not None and self.scope not in kind.scopes:
            raise ValueError(f"{kind.name} strikes {' or '.join(kind.scopes)}, not {self.scope}")
        given = [key for key in ("rate_per_unit_day", "mtbf", "prevalence") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("exactly one of rate_per_unit_day, mtbf and prevalence says how often")
        if self.prevalence is not None and kind.effect != "slow":
            raise ValueError(f"prevalence is a lasting state, and {kind.name} is an event; give a rate")
        check_magnitudes(kind, self)
        check_duration(kind, self.duration)
        return self

    @property
    def unit(self) -> str:
        """The scope, the kind's usual one where none is given."""
        return self.scope or get_kind(self.kind).scopes[0]

    @property
    def title(self) -> str:
        """What reports call it."""
        return self.name or self.kind

    @property
    def rate_per_unit_s(self) -> float:
        """Failures of one unit per second; 0 for a prevalence."""
        if self.rate_per_unit_day is not None:
            return self.rate_per_unit_day / 86400.0
        return 1.0 / self.mtbf if self.mtbf else 0.0


class Frailty(FaultsBlock):
    """Hosts differ: each one's rate is multiplied by a gamma variate of mean 1 and this deviation."""

    gamma_cv: Spread = Field(description="standard deviation over mean")


class Heterogeneity(FaultsBlock):
    """How hosts differ. Applies to processes of scope node and gpu."""

    node_frailty: Frailty | None = Field(default=None, description="a factor on each host's failure rate")


class Domains(FaultsBlock):
    """How many hosts share what. Defaults are assumptions, but leaves, which the fabric states where it
    can.
    """

    nodes_per_leaf: Count | None = Field(
        default=None, description="hosts under a leaf switch; default: the fabric's, else 16"
    )
    nodes_per_rack: Count = Field(
        default=2,
        description="RSC-1: 2 servers a rack (arXiv:2410.21680); of NVL72: those of an NVLink domain",
    )
    racks_per_power: Count = Field(default=10, description="RSC-1: pods of 10 racks")


def _list(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


class Faults(FaultsBlock):
    """What strikes. ``clock: exposure``: failures arrive only while the job runs; ``wall``: always."""

    seed: CountOrZero = Field(default=7, description="of all random numbers")
    clock: Literal["exposure", "wall"] = Field(
        default="exposure", description="when failures arrive: while the job runs, or always"
    )
    restore_exposed: Flag = Field(
        default=True,
        description="exposure clock: whether failures arrive while the job initialises and loads",
    )
    presets: Annotated[tuple[Text, ...], BeforeValidator(_list)] = Field(
        default=(), description="published rates by name; stepsim list fault-presets"
    )
    scale: Annotated[float, number(ge=0, le=1e6)] = Field(
        default=1.0, description="multiplies every rate, of presets and processes"
    )
    off: Annotated[tuple[Text, ...], BeforeValidator(_list)] = Field(
        default=(), description="kinds that are switched off; the others stay as they were drawn"
    )
    events: tuple[Event, ...] = Field(default=(), description="faults at known times, and files of them")
    processes: tuple[Process, ...] = Field(default=(), description="faults by chance")
    heterogeneity: Heterogeneity = Field(default=Heterogeneity(), description="how hosts differ")
    domains: Domains = Field(default=Domains(), description="how many hosts share what")

    @model_validator(mode="after")
    def _known(self) -> Faults:
        for name in self.off:
            get_kind(name)
        return self


def parse_fault(text: str) -> Event:
    """One fault as a line: ``gpu_throttle gpu/37 slow_factor=1.3 at=2s duration=40min``.

    The first word is the kind; a word with ``=`` sets a key of an event; the other one is the target.

    Raises:
        ValueError: an unknown kind, key or target; a value without its unit.

    >>> parse_fault("gpu_throttle gpu/37 slow_factor=1.3").slow_factor
    1.3
    """
    from pydantic import ValidationError

    fields = fields_of_line(text)
    try:
        return Event.model_validate(fields, context={"document": True})
    except ValidationError as failure:
        raise ValueError(lines(repr(text), failure, Event)[0]) from None
