"""The layouts of a plan as points: what each takes at least, of time and of memory, before any is replayed.

Knows arrays of candidates. Where there are more than the page draws, the fastest that fit are all there, and
of the others a sample that is spread evenly over their order by time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..sim.plan.search.candidates import Candidates

CHUNK = 2_000
"""Points of one message."""


def points(among: Candidates, most: int) -> Iterator[dict[str, Any]]:
    """Messages with ``legal``, ``fit`` and columns: ``number``, ``bound_s``, ``peak_bytes``, ``fits`` (the
    probability), ``gpu_bytes``, under ``axes`` the fields in which layouts differ, under ``same`` the
    others."""
    bound = among.bounds.bound_s
    shown = chosen(bound, among.fit_probability, most)
    columns = among.layouts.columns if len(among.layouts) else {}
    varied = {name: values for name, values in columns.items() if len(np.unique(_comparable(values))) > 1}
    same = {name: values for name, values in columns.items() if name not in varied}
    for first in range(0, max(len(shown), 1), CHUNK):
        rows = shown[first : first + CHUNK]
        yield {
            "legal": len(among.layouts),
            "shown": len(shown),
            "number": rows,
            "bound_s": bound[rows],
            "peak_bytes": among.bounds.needed_bytes[rows],
            "gpu_bytes": float(among.bounds.capacity_bytes.max(initial=0.0)),
            "fits": among.fit_probability[rows],
            "axes": {name: np.asarray(values)[rows].tolist() for name, values in varied.items()},
            "same": {name: np.asarray(values)[:1].tolist()[0] for name, values in same.items()},
        }


def chosen(bound_s: NDArray[np.float64], fits: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Numbers of the layouts that are drawn, at most ``most``: half of them the fastest that may be proposed,
    the rest spread over all that have a bound."""
    bounded = np.flatnonzero(bound_s > 0)
    order = bounded[np.argsort(bound_s[bounded], kind="stable")]
    if len(order) <= most:
        return order
    first = order[fits[order] >= 0.5][: most // 2]
    rest = np.setdiff1d(order, first, assume_unique=True)
    rest = rest[np.argsort(bound_s[rest], kind="stable")]
    count = min(most - len(first), len(rest))
    spread = rest[np.linspace(0, len(rest) - 1, count).astype(int)] if count else rest[:0]
    return np.concatenate([first, spread])


def _comparable(values: Any) -> NDArray[Any]:
    """A column of numbers or truths as it is, of anything else as text."""
    found = np.asarray(values)
    return found if found.dtype.kind in "biuf" else np.array([str(one) for one in found.tolist()])
