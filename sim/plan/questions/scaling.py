"""Strong and weak scaling of predicted steps, each in one line.

Strong: as many tokens a step on more GPUs. Weak: as many tokens for each GPU. Knows numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...figures import TIMES, count, percent


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A step of ``tokens`` on ``gpus``; ``others`` are values of fields that must agree to compare two."""

    gpus: int
    tokens: float
    step_time_s: float
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A sentence each; empty where no two steps compare."""

    strong: str = ""
    weak: str = ""


def scaling(steps: Sequence[Scaled]) -> Scaling:
    """The scaling from the fewest GPUs to the most, of the largest set of steps that compare.

    >>> a = Scaled(gpus=64, tokens=1e6, step_time_s=8.0)
    >>> b = Scaled(gpus=128, tokens=1e6, step_time_s=5.0)
    >>> c = Scaled(gpus=128, tokens=2e6, step_time_s=10.0)
    >>> scaling([a, b, c]).strong
    'strong scaling, 64 to 128 GPUs: 1.60 × as fast on 2.00 × as many, efficiency 80.0 %'
    >>> scaling([a, b, c]).weak
    'weak scaling, 64 to 128 GPUs: a step takes 1.25 × as long, efficiency 80.0 %'
    """
    strong = _widest(steps, [(one.tokens, one.others) for one in steps])
    weak = _widest(steps, [(one.tokens / one.gpus, one.others) for one in steps])
    told = _differing(steps)
    return Scaling(
        strong=_strong(*strong, told(strong[0])) if strong else "",
        weak=_weak(*weak, told(weak[0])) if weak else "",
    )


def _differing(steps: Sequence[Scaled]) -> Callable[[Scaled], str]:
    """What to say of a step beside its GPUs: its values of the other fields that steps differ in."""
    places = [
        at
        for at, values in enumerate(zip(*(one.others for one in steps), strict=True))
        if len(set(values)) > 1
    ]

    def told(one: Scaled) -> str:
        return "".join(f", {one.others[at]}" for at in places)

    return told


def _widest(steps: Sequence[Scaled], keys: Iterable[object]) -> tuple[Scaled, Scaled] | None:
    """The steps on the fewest and on the most GPUs of the group with most different numbers of GPUs."""
    groups: dict[object, list[Scaled]] = {}
    for one, key in zip(steps, keys, strict=True):
        groups.setdefault(key, []).append(one)
    most = max(groups.values(), key=lambda group: len({one.gpus for one in group}), default=[])
    if len({one.gpus for one in most}) < 2:
        return None
    return min(most, key=lambda one: one.gpus), max(most, key=lambda one: one.gpus)


def _strong(first: Scaled, last: Scaled, whose: str) -> str:
    more, faster = last.gpus / first.gpus, first.step_time_s / last.step_time_s
    return (
        f"strong scaling{whose}, {count(first.gpus)} to {count(last.gpus)} GPUs: {faster:.2f} {TIMES} as"
        f" fast on {more:.2f} {TIMES} as many, efficiency {percent(faster / more)}"
    )


def _weak(first: Scaled, last: Scaled, whose: str) -> str:
    longer = last.step_time_s / first.step_time_s
    return (
        f"weak scaling{whose}, {count(first.gpus)} to {count(last.gpus)} GPUs: a step takes {longer:.2f}"
        f" {TIMES} as long, efficiency {percent(1 / longer)}"
    )
