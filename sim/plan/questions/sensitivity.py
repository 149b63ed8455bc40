"""What faster parts would gain: twice the NIC, NVLink, HBM and peak, half the latency, half the host.

Each is a scenario of its own (cluster.what_if), predicted with the layout as it is and planned anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...scenario.machine import gpu_as_sold
from ..search.on_ray import connected
from ..search.plan import Means, planned_whole, scenario_from
from ..search.searching import Wishes
from ..search.shown import Choice, LayoutFigures, layout_figures

if TYPE_CHECKING:
    import pandas as pd

    from ...scenario.documents import Changes
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Faster:
    """One faster part: the step with the layout as it is (None: that is refused), and with the best one
    (None: not asked for, or none fits) and its settings.
    """

    name: str
    changes: Mapping[str, Any]
    step_time_s: float | None
    replanned_s: float | None = None
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """``parts`` by what they gain, the most first. ``step_time_s`` is the step as it is, None where the
    scenario's own layout is ``refused`` for that reason; ``own`` are its figures, its memory among them,
    which may be more than a GPU has. ``planned_s`` is that of the best layout on the same machine, which is
    what replanned ones compare with.
    """

    scenario: Scenario
    own: LayoutFigures | None
    planned_s: float | None
    parts: tuple[Faster, ...]
    refused: str = ""

    @property
    def step_time_s(self) -> float | None:
        """The step of the layout as it is."""
        return None if self.own is None else self.own.step_time_s

    @property
    def fits(self) -> bool | None:
        """Whether the layout as it is is predicted to fit; None where it is refused."""
        return None if self.own is None else self.own.peak_memory_bytes <= self.own.capacity_bytes

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each part."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "part": one.name,
                    "step_time_s": one.step_time_s,
                    "speedup": self.gain(one),
                    "replanned_s": one.replanned_s,
                    "replanned_speedup": self.gain_replanned(one),
                }
                for one in self.parts
            ]
        )

    def gain(self, one: Faster) -> float | None:
        """How many times as fast as the layout as it is; None where that is refused."""
        return self.step_time_s / one.step_time_s if self.step_time_s and one.step_time_s else None

    def gain_replanned(self, one: Faster) -> float | None:
        """How many times as fast as the best layout of the machine as it is."""
        return self.planned_s / one.replanned_s if self.planned_s and one.replanned_s else None

    def to_dict(self) -> dict[str, Any]:
        """What ``stepsim sensitivity --json`` prints; docs/plan.md says what each key means."""
        return {
            "scenario": self.scenario.name,
            "step_time_s": self.step_time_s,
            "fits": self.fits,
            "fit_probability": None if self.own is None else self.own.fit_probability,
            "refused": self.refused,
            "planned_step_time_s": self.planned_s,
            "parts": [
                {
                    "part": one.name,
                    "set": dict(one.changes),
                    "step_time_s": one.step_time_s,
                    "speedup": self.gain(one),
                    "replanned_step_time_s": one.replanned_s,
                    "replanned_speedup": self.gain_replanned(one),
                    "replanned_set": dict(one.settings),
                }
                for one in self.parts
            ],
        }


def faster_parts(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """The changes that each faster part is."""
    times = scenario.cluster.what_if
    now = {name: getattr(times, name, 1.0) for name in ("nic", "nvlink", "hbm", "peak", "latency")}
    words = {"nic": "NIC", "nvlink": "NVLink", "hbm": "HBM", "peak": "peak"}
    if gpu_as_sold(scenario.cluster).nvlink_domain < 2:  # what is not there cannot be faster
        del words["nvlink"]
    parts: dict[str, dict[str, Any]] = {
        f"twice the {word}": {f"cluster.what_if.{name}": 2 * now[name]} for name, word in words.items()
    }
    parts["half the latency"] = {"cluster.what_if.latency": now["latency"] / 2}
    software = scenario.software
    host = {
        "software.host.host_s_per_kernel": software.host.host_s_per_kernel,
        "software.host.step_fixed_s": software.host.step_fixed_s,
    }
    parts["half the host time"] = {field: value / 2 for field, value in host.items()}
    return parts


def sensitivity(
    source: str | Path | Mapping[str, Any] | Scenario,
    changes: Changes = (),
    *,
    replan: bool = True,
    wishes: Wishes | None = None,
    means: Means | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sensitivity:
    """The step with each faster part, by the layout as it is and, with ``replan``, by the best one for it.

    Raises as ``plan`` does; without ``replan``, and where no layout fits, what ``simulate`` raises of the
    scenario itself.
    """
    base = scenario_from(source, changes)
    say = progress or (lambda _: None)
    wanted, by = wishes or Wishes(top=1, audit=0), means or Means()

    def best(scenario: Scenario, what: str) -> Choice | None:
        if not replan:
            return None
        found = planned_whole(scenario, {}, {}, wanted, by, lambda text: say(f"{what}: {text}"))
        return next(iter(found.choices), None)

    with connected(replan and by.ray):
        planned_now = best(base, "as it is")
        own, refused = _own_figures(base, needed=planned_now is None)
        parts = []
        for name, changed in faster_parts(base).items():
            say(name)
            faster = base.with_(changed)
            replanned = best(faster, name)
            step_time_s = None if own is None else layout_figures(faster).step_time_s
            parts.append(_faster(name, changed, step_time_s, replanned))
    parts.sort(key=lambda one: one.step_time_s or one.replanned_s or math.inf)
    return Sensitivity(
        scenario=base,
        own=own,
        planned_s=None if planned_now is None else planned_now.figures.step_time_s,
        parts=tuple(parts),
        refused=refused,
    )


def _faster(
    name: str, changes: Mapping[str, Any], step_time_s: float | None, replanned: Choice | None
) -> Faster:
    """A faster part with the step that it makes, in the layout as it is and in the best one for it."""
    return Faster(
        name=name,
        changes=changes,
        step_time_s=step_time_s,
        replanned_s=None if replanned is None else replanned.figures.step_time_s,
        settings={} if replanned is None else replanned.settings,
    )


def _own_figures(base: Scenario, *, needed: bool) -> tuple[LayoutFigures | None, str]:
    """The figures of the layout as it is, or why it is refused; that is raised where they are ``needed``."""
    try:
        return layout_figures(base), ""
    except ValueError as refusal:
        if needed:
            raise
        return None, str(refusal).splitlines()[0]
