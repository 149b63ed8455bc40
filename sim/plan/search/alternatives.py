"""Well-known ways to lay a job out, each beside the one that was chosen: by what factor it loses, and why.

Knows which layouts each of them means. Does not know how they are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...figures import chance, gigabytes, seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .candidates import Candidates
    from .shown import LayoutFigures

SEEN = 0.002
"""Share of the better step: parts of the critical path that differ by less are no reason."""

REASONS = 3
"""Parts of the critical path that are named."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """``of`` gives the layouts that it means among all, of which those fit that do with the probability that
    the plan asks for."""

    name: str
    of: Callable[[Candidates, float], NDArray[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Loser:
    """The best layout of an alternative. ``factor`` is its objective over the chosen one's; of one that does
    not fit (``fits`` is false), its memory over what a GPU has. ``settings`` is empty where there is none.
    ``at_least``: the factor is that much or a little more, by a step in which nobody shares a link.
    """

    name: str
    settings: Mapping[str, Any]
    why: str
    factor: float
    fits: bool = True
    at_least: bool = False


def _is(**fields: Any) -> Callable[[Candidates, float], NDArray[np.bool_]]:
    """Layouts with these values, fields of ``parallelism`` or ``training`` by their last name."""

    def of(among: Candidates, _fits: float) -> NDArray[np.bool_]:
        found = np.ones(len(among.layouts), dtype=bool)
        for name, value in fields.items():
            found &= np.asarray(_column(among, name) == value, dtype=bool)
        return found

    return of


def _column(among: Candidates, name: str) -> NDArray[Any]:
    for block in ("parallelism", "training"):
        field = f"{block}.{name}"
        if field in among.layouts.columns:
            return among.layouts.columns[field]
        if hasattr(getattr(among.base, block), name):
            value = getattr(getattr(among.base, block), name)
            return np.full(len(among.layouts), value, dtype=object if isinstance(value, tuple) else None)
    raise AssertionError(name)


def _whole_node(among: Candidates, _fits: float) -> NDArray[np.bool_]:
    return np.asarray(_column(among, "tp") == min(8, among.base.cluster.gpus_per_node), dtype=bool)


def _interleaved(among: Candidates, _fits: float) -> NDArray[np.bool_]:
    return np.asarray((_column(among, "pp") > 1) & (_column(among, "vpp") == 1), dtype=bool)


def _guide(among: Candidates, fits: float) -> NDArray[np.bool_]:
    """The recipe of Megatron's guides: the smallest model parallel size that fits, tensor parallelism inside
    the host first (experts uncut), ZeRO-1, then as many chunks and sequences a microbatch as fit, with
    experts over as few GPUs as that takes.

    NVIDIA Megatron-Bridge, docs/performance-guide.md; bigscience train/tflops_optimization.md.
    """
    tp, pp, cp = (_column(among, name).astype(np.int64) for name in ("tp", "pp", "cp"))
    usable = np.asarray(tp <= among.base.cluster.gpus_per_node, dtype=bool)
    usable &= among.fit_probability >= fits
    usable &= np.isin(_column(among, "zero"), (0, 1))
    usable &= _column(among, "recompute") != "full"
    usable &= _column(among, "etp") == 1
    if not usable.any():
        return usable
    more = [-_column(among, name).astype(np.int64) for name in ("vpp", "micro_batch")]
    order = np.lexsort((_column(among, "ep").astype(np.int64), *reversed(more), -tp, tp * pp * cp, ~usable))
    found = np.zeros(len(among.layouts), dtype=bool)
    found[order[0]] = True
    return found


ALTERNATIVES = (
    Alternative(name="smallest model parallelism that fits (Megatron's guide)", of=_guide),
    Alternative(name="FSDP alone", of=_is(tp=1, pp=1, cp=1, zero=3)),
    Alternative(name="no tensor parallelism", of=_is(tp=1)),
    Alternative(name="tensor parallelism over a whole host", of=_whole_node),
    Alternative(name="no pipeline", of=_is(pp=1)),
    Alternative(name="pipeline without interleaving", of=_interleaved),
    Alternative(name="no recomputation", of=_is(recompute="none")),
    Alternative(name="full recomputation", of=_is(recompute="full")),
    Alternative(name="microbatches of one sequence", of=_is(micro_batch=1)),
    Alternative(name="microbatches of two sequences", of=_is(micro_batch=2)),
)


def alternatives(
    among: Candidates, chosen: int, fits: float
) -> Iterator[tuple[Alternative, NDArray[np.bool_]]]:
    """The alternatives that some layout has and the chosen one has not, each with the layouts that have
    it. Of a recipe that takes what fits, what ``fits`` with that probability."""
    for one in ALTERNATIVES:
        found = one.of(among, fits)
        if found.any() and not found[chosen]:
            yield one, found


def why_slower(best: LayoutFigures, other: LayoutFigures, weight: float = 1.0) -> str:
    """What of the critical path is longer, and what is shorter in return, the largest first.

    ``weight`` is what a second of the other one's step is worth in seconds of the better one's: where their
    steps hold different numbers of tokens, those of as many; by tokens per dollar, those that cost as much.
    """
    names = dict.fromkeys([*best.path, *other.path])
    more = {name: weight * other.path.get(name, 0.0) - best.path.get(name, 0.0) for name in names}
    seen = {name: by for name, by in more.items() if abs(by) > SEEN * best.step_time_s}
    order = sorted(seen, key=lambda name: -seen[name])
    longer = [name for name in order if seen[name] > 0][:REASONS]
    shorter = [name for name in reversed(order) if seen[name] < 0][:1]
    parts = [
        f"{name} {'+' if seen[name] > 0 else '-'}{seconds(abs(seen[name]))}" for name in longer + shorter
    ]
    return ", ".join(parts) or "no part stands out"


def why_not_fit(layouts: int, peak_bytes: float, capacity_bytes: float, fits: float | None = None) -> str:
    """What the smallest of so many layouts takes; with which probability it ``fits``, where it may.

    >>> why_not_fit(1, 78.9e9, 84.9e9, 0.8979)
    'it takes 78.9 GB of 84.9 GB, and fits with 0.89'
    >>> why_not_fit(3, 99e9, 84.9e9, 0.0)
    'the smallest of 3 takes 99.0 GB of 84.9 GB'
    """
    which = "it" if layouts == 1 else f"the smallest of {layouts:,}"
    takes = f"{which} takes {gigabytes(peak_bytes)} of {gigabytes(capacity_bytes)}"
    if fits is None or peak_bytes > capacity_bytes:
        return takes
    return f"{takes}, and fits with {chance(fits)}"
