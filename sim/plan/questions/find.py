"""Find one number that a job depends on: the fewest GPUs, the longest sequence, the largest microbatch.

Knows in which order values are tried. Whether a value will do, the screening says (some layout fits), and a
search where there is a deadline or a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ...scenario.finding import divisors
from ..fields import field_value
from ..search.on_ray import connected
from ..search.plan import Means, candidates_of, planned_whole

if TYPE_CHECKING:
    from ...scenario.models import Scenario
    from ..base_scenarios import RefusedValues
    from ..search.searching import Wishes

FINE = (1.25, 1.5, 1.75)
"""Sizes between two powers of two that clusters and batches are made for."""

SHARE_OF_LENGTH = 8
"""Parts of the longest power of two that are tried between it and the next."""

MOST = {"gpus": 1 << 17, "seq_length": 1 << 26}
"""Beyond these nothing is tried."""


class Sought(StrEnum):
    """The field that is sought."""

    GPUS = "gpus"
    SEQ_LENGTH = "seq_length"
    MICRO_BATCH = "micro_batch"


FIELDS = {
    Sought.GPUS: "cluster.gpus",
    Sought.SEQ_LENGTH: "training.seq_length",
    Sought.MICRO_BATCH: "training.micro_batch",
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A value that was tried: how many layouts are ``legal``, and how many ``fit``. ``settings`` are those of
    the layout with the least memory, or of the fastest where a limit was to be met; ``peak_bytes`` is its
    memory, of ``capacity_bytes``. ``refused`` counts the illegal layouts by reason.
    """

    value: int
    good: bool
    legal: int
    fit: int
    settings: Mapping[str, Any]
    peak_bytes: float
    capacity_bytes: float
    step_time_s: float | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[RefusedValues, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundValue:
    """``value`` is None where none will do. ``tried`` are all that were, in order of the value."""

    scenario: Scenario
    sought: Sought
    fits: float
    limited: bool
    value: int | None
    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried | None:
        """The value that was found."""
        return next((one for one in self.tried if one.value == self.value), None)


def find(
    what: str,
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    wishes: Wishes,
    *,
    means: Means,
    progress: Callable[[str], None] | None = None,
) -> FoundValue:
    """The value of one field: the fewest ``gpus``, the longest ``seq_length``, the largest ``micro_batch``.

    ``fix`` and ``vary`` are as ``plan`` takes them. If the field itself is varied, those values are tried;
    else GPUs and lengths are the scenario's times powers of two, and values between two of them.

    Raises:
        ValueError: ``what`` is not one of these; and whatever ``plan`` raises.
    """
    try:
        sought = Sought(what)
    except ValueError:
        raise ValueError(f"find {what!r}: known are {', '.join(one.value for one in Sought)}") from None
    name = FIELDS[sought]
    limited = wishes.limits.deadline_s is not None or wishes.limits.budget is not None
    _check(sought, base, fix, vary.get(name))
    tried: dict[int, Tried] = {}
    others = {one: values for one, values in vary.items() if one != name}
    kept = {one: value for one, value in fix.items() if one != name}

    def attempt(value: int) -> Tried:
        if value not in tried:
            if progress:
                progress(f"trying {name} {value:,}")
            asked = {**others, name: [value]}
            tried[value] = _tried(value, base, kept, asked, wishes, means if limited else None)
        return tried[value]

    with connected(limited and means is not None and means.ray):
        if sought is Sought.MICRO_BATCH and name not in vary:
            value = _largest(attempt, divisors(base.training.global_batch))
        else:
            value = _first_good(sought, attempt, base, vary.get(name))
    return FoundValue(
        scenario=base,
        sought=sought,
        fits=wishes.fits,
        limited=limited,
        value=value,
        tried=tuple(tried[value] for value in sorted(tried)),
    )


def _first_good(
    sought: Sought, tried: Callable[[int], Tried], base: Scenario, given: Sequence[int] | None
) -> int | None:
    """The value that is sought: of those ``given``, else in the order of its kind."""
    if given is not None:
        ascending = sorted(given)
        hits = (
            value for value in (ascending if sought is Sought.GPUS else ascending[::-1]) if tried(value).good
        )
        return next(hits, None)
    if sought is Sought.GPUS:
        return _fewest(tried, base.cluster.gpus, base.cluster.gpus_per_node)
    return _longest(lambda value: tried(value).good, base.training.seq_length)


def _check(sought: Sought, base: Scenario, fix: Mapping[str, Any], given: Sequence[Any] | None) -> None:
    """Raise ValueError where what is sought is fixed, or values to try are no whole numbers."""
    name = FIELDS[sought]
    if name in fix and fix[name] != field_value(base, name):
        raise ValueError(f"find {sought.value}: {name} is fixed at {fix[name]}; leave one of both out")
    for value in given or ():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"find {sought.value}: {name} is a whole number from 1 on, not {value!r}")


def _tried(
    value: int,
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    wishes: Wishes,
    means: Means | None,
) -> Tried:
    """Whether a value works: by screening alone, or with ``means`` by a search within the limits."""
    found = _screened(value, base, fix, vary, wishes)
    if means is None or not found.good:
        return found
    best = planned_whole(base, fix, vary, replace(wishes, top=1, audit=0), means).choices
    if not best:
        return replace(found, good=False)
    figures = best[0].figures
    return replace(
        found,
        settings=best[0].settings,
        peak_bytes=figures.peak_memory_bytes,
        capacity_bytes=figures.capacity_bytes,
        step_time_s=figures.step_time_s,
    )


def _screened(
    value: int,
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    wishes: Wishes,
) -> Tried:
    """Whether any layout of a value fits in memory, with the settings of the one that fills it least."""
    among, _ = candidates_of(
        base, fix, vary, lambda _: None, fits=math.inf, axes=wishes.axes
    )  # memory is enough
    layouts, needed, capacity = among.layouts, among.bounds.needed_bytes, among.bounds.capacity_bytes
    if not len(layouts):
        return Tried(
            value=value,
            good=False,
            legal=0,
            fit=0,
            settings={},
            peak_bytes=0.0,
            capacity_bytes=0.0,
            refused=layouts.refused,
            left_out=layouts.left_out,
        )
    fits = among.fit_probability >= wishes.fits
    least = int(np.argmin(needed / capacity))
    return Tried(
        value=value,
        good=bool(fits.any()),
        legal=len(layouts),
        fit=int(fits.sum()),
        settings=layouts.settings(least),
        peak_bytes=float(needed[least]),
        capacity_bytes=float(capacity[least]),
    )


def _fewest(tried: Callable[[int], Tried], gpus: int, per_node: int) -> int | None:
    """The fewest GPUs: powers of two of the scenario's, then sizes between the last that was too few and it.
    One that no layout has, as what does not divide the batch, says nothing of fewer or of more."""
    enough, short = gpus, 0
    while not tried(enough).good:
        enough, short = 2 * enough, enough if tried(enough).legal else short
        if enough > MOST["gpus"]:
            return None
    size = enough
    while not short and size > 1:
        size = _half(size, per_node)
        enough, short = (size, 0) if tried(size).good else (enough, size if tried(size).legal else 0)
    return next((size for size in _between(short, enough, per_node) if tried(size).good), enough)


def _between(short: int, enough: int, per_node: int) -> list[int]:
    """Sizes above ``short`` and below ``enough`` that clusters are made for, in whole hosts or within one:
    powers of two, and FINE parts of these and of ``short``, in their order."""
    powers = [1 << k for k in range(enough.bit_length())]
    sizes = {int(size * part) for size in {short, *powers} for part in (1.0, *FINE) if size * part % 1 == 0}
    return sorted(
        size for size in sizes if short < size < enough and (size % per_node == 0 or size < per_node)
    )


def _half(gpus: int, per_node: int) -> int:
    """Half as many, in whole hosts, or a part of one."""
    half = gpus // 2
    return half if half <= per_node else half // per_node * per_node


def _longest(good: Callable[[int], bool], tokens: int) -> int | None:
    """The longest sequence: doubled or halved, then in eighths of the longest that does."""
    if good(tokens):
        while 2 * tokens <= MOST["seq_length"] and good(2 * tokens):
            tokens *= 2
    else:
        while tokens > 1 and not good(tokens := tokens // 2):
            pass
        if not good(tokens):
            return None
    part = tokens // SHARE_OF_LENGTH
    if not part:
        return tokens
    steps = [tokens + k * part for k in range(SHARE_OF_LENGTH)]
    return _last_good(good, steps)


def _largest(tried: Callable[[int], Tried], sizes: Sequence[int]) -> int | None:
    """The largest of ``sizes`` that does, where smaller ones do if a larger one does. Those of which no
    layout is legal, as what does not divide a rank's share of the batch, say nothing of others.
    """
    low, high = -1, len(sizes)
    while True:
        middle = (low + high) // 2
        turns = [*range(max(middle, low + 1), high), *range(middle - 1, low, -1)]
        place = next((place for place in turns if tried(sizes[place]).legal), None)
        if place is None:
            return sizes[low] if low >= 0 else None
        low, high = (place, high) if tried(sizes[place]).good else (low, place)


def _last_good(good: Callable[[int], bool], values: Sequence[int]) -> int:
    """The last of ``values`` that is good, found by bisection: all before it are good, and the first is known
    to be."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(values[middle]) else (low, middle)
    return values[low]
