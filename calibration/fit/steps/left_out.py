"""The constants that a fit gives which never saw a source: what its GPUs and presets have without its steps.

Knows what stands in for a GPU or a preset that no other source has; how constants are found is
step_constants.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ....hardware.gpus import get_gpu
from ....hardware.limited_clock import clock_carried
from ...cases.constants import (
    EAGER_HOST_S,
    FIXED_BY_LOGS,
    HOSTS_CARRIED,
    UNTIMED_PRESET,
    Constants,
    PresetConstants,
    Wanted,
    shipped_preset,
    unfitted,
)
from .rows import TimedRow
from .step_constants import Data, fit_constants, fittable

Say = Callable[[str], None]


def without_source(data: Data, source: str, say: Say = lambda _: None) -> Constants:
    """The constants that a fit gives which never saw ``source``.

    A GPU that no other source has takes the clock of its nearest relative, at its own power limit; a preset
    what launches of eager PyTorch cost by published measurements, and so do presets that carry its host time;
    what else no other source has is as no step time has shaped it.
    """
    say(f"without {source}")
    rows = [row for row in data.rows if row.source != source]
    seen = fittable(rows)
    unseen = Wanted(
        gpus=tuple(name for name in data.wanted.gpus if name not in seen.gpus),
        presets=tuple(name for name in data.wanted.presets if name not in seen.presets),
    )
    known = Wanted(
        gpus=tuple(name for name in data.wanted.gpus if name in seen.gpus),
        presets=tuple(name for name in data.wanted.presets if name in seen.presets),
    )
    bare = unfitted(data.rows, unseen)
    start = replace(
        data.start,
        gpus={**data.start.gpus, **{name: bare.gpus[name] for name in unseen.gpus}},
        presets={**data.start.presets, **_untimed(unseen.presets), **_without_logs(rows)},
    )
    found = fit_constants(replace(data, rows=rows, wanted=known, start=start))
    for name in unseen.gpus:
        relative = _relative(name, known.gpus, rows)
        if relative is not None:
            kin, chip = get_gpu(relative), get_gpu(name)
            clock = clock_carried(found.gpus[relative].clock_fraction, kin, chip)
            found = found.with_gpu(name, clock_fraction=round(min(1.0, clock), 2))
    return found


def _untimed(presets: Sequence[str]) -> dict[str, PresetConstants]:
    """``presets`` of which no step was seen, and those whose host time is carried from one of them."""
    carried = {
        name: replace(shipped_preset(name), host_s_per_kernel=EAGER_HOST_S)
        for name, origin in HOSTS_CARRIED.items()
        if origin in presets
    }
    return {**carried, **dict.fromkeys(presets, UNTIMED_PRESET)}


def _without_logs(rows: Iterable[TimedRow]) -> dict[str, PresetConstants]:
    """Presets whose fixed time is known from logs that are not among those of ``rows``."""
    seen = {row.preset for row in rows}
    return {
        name: replace(shipped_preset(name), step_fixed_s=0.0) for name in FIXED_BY_LOGS if name not in seen
    }


def _relative(gpu: str, known: Sequence[str], rows: Sequence[TimedRow]) -> str | None:
    """The GPU of the same architecture that most sources ran on, then most families: boards differ, and those
    of one source are alike. Shipped clocks are carried in this way, too (``step_time_fit`` of the profiles).
    """

    def measured(name: str) -> tuple[int, int]:
        ran = [row for row in rows if row.gpu == name]
        return len({row.source for row in ran}), len({row.family for row in ran})

    kin = [name for name in known if get_gpu(name).architecture == get_gpu(gpu).architecture]
    return max(kin, key=measured, default=None)
