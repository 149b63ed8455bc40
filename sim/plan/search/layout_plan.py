"""The answer of a planner: choices, front, alternatives and the certificate, as data and as frames.

Knows no view; sim/report/plan writes it for people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...figures import seconds
from .alternatives import Loser
from .certificate import Certificate
from .judged import JudgedLayout
from .layout_in_words import short
from .searching import Wishes
from .shown import BoldChoice, Choice, FrontPoint

if TYPE_CHECKING:
    import pandas as pd

    from ...scenario.models import Scenario
    from ..base_scenarios import RefusedValues


@dataclass(frozen=True, kw_only=True)
class ReplayedLayout:
    """A layout that was replayed, for whatever reason."""

    number: int
    settings: Mapping[str, Any]
    judged: JudgedLayout
    bound_s: float


@dataclass(frozen=True, kw_only=True, repr=False)
class LayoutPlan:
    """``scenario`` as it was given; ``choices`` the best layouts, best first, empty where nothing fits.

    ``refused`` counts what is not legal by reason, ``bounded`` the layouts that fit and may meet every limit.
    ``front_whole`` says whether no other layout can be on the front. ``smallest`` is the layout that takes
    the least memory, with what it takes and has, where none fits, and ``smallest_terms`` its bytes by name;
    ``nearest`` the one that misses the limits by the least factor, and that factor, where some fit and none
    meets them. ``replays`` are all that were
    replayed, ``remembered`` those among them that a journal knew. ``timing`` is in seconds. ``tied`` are the
    fewest layouts that hold the best one in nine of ten draws of the constants. ``passed_over`` counts
    layouts that came before the last choice in turn and that the framework of the answer cannot say, by
    their fields. ``bold`` may not fit, and is worth trying first all the same; None where no layout is.
    """

    scenario: Scenario
    wishes: Wishes
    certificate: Certificate
    refused: Mapping[str, int]
    bounded: int
    choices: tuple[Choice, ...]
    front: tuple[FrontPoint, ...]
    front_whole: bool
    lost: tuple[Loser, ...]
    replays: tuple[ReplayedLayout, ...]
    remembered: int
    timing: Mapping[str, float]
    smallest: tuple[Mapping[str, Any], float, float] | None = None
    smallest_terms: Mapping[str, float] = field(default_factory=dict)
    nearest: tuple[Mapping[str, Any], float] | None = None
    tied: tuple[Mapping[str, Any], ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    bold: BoldChoice | None = None
    left_out: tuple[RefusedValues, ...] = ()

    def __repr__(self) -> str:
        """The best layout and its step, as a notebook shows it; all fields would be pages."""
        of = f"of {self.certificate.legal:,} legal layouts"
        if not self.choices:
            return f"<LayoutPlan {self.scenario.name}: nothing fits and meets the limits, {of}>"
        best = self.choices[0]
        layout, step = short(best.settings), seconds(best.figures.step_time_s)
        return f"<LayoutPlan {self.scenario.name}: {layout}, {step}; the first of {len(self.choices)} {of}>"

    @property
    def stated(self) -> set[str]:
        """Fields that what was replayed states itself, whatever the scenario says of them."""
        return {name for one in self.replays for name in one.settings}

    @property
    def found(self) -> bool:
        """Whether any layout fits and meets every limit."""
        return bool(self.choices)

    @property
    def best(self) -> Scenario:
        """The scenario of the best choice. ValueError where nothing fits."""
        if not self.choices:
            raise ValueError(f"{self.scenario.name}: no layout fits, so that none is the best")
        return self.choices[0].scenario

    @property
    def emitted(self) -> str | None:
        """The best layout as the flags or the file that were asked for; None where nothing was or fits."""
        emission = self.wishes.emission
        return None if emission is None or not self.choices else emission.text(self.best)

    @property
    def not_emitted(self) -> list[str]:
        """What of the best layout the ``emitted`` text says nothing of, a sentence for each."""
        emission, text = self.wishes.emission, self.emitted
        return [] if emission is None or text is None else emission.left_out(text, self.best)

    @property
    def frame(self) -> pd.DataFrame:
        """The choices, one row each: the fields of each layout, and its figures."""
        import pandas as pd

        return pd.DataFrame(
            [{**written(one.settings), **choice_figures(one)} for one in self.choices],
            index=pd.RangeIndex(1, len(self.choices) + 1, name="rank"),
        )

    @property
    def front_frame(self) -> pd.DataFrame:
        """The front, one row each."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **written(point.settings),
                    "step_time_s": point.step_time_s,
                    "peak_memory_bytes": point.peak_memory_bytes,
                    "headroom_bytes": point.headroom_bytes,
                    "gpus": point.gpus,
                    "price_per_step": point.price_per_step,
                }
                for point in self.front
            ]
        )

    @property
    def replays_frame(self) -> pd.DataFrame:
        """All that was replayed, one row each, in the order of the numbers of layouts."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    **written(one.settings),
                    "step_time_s": one.judged.step_time_s,
                    "bound_s": one.bound_s,
                    "peak_memory_bytes": one.judged.peak_memory_bytes,
                    "refused": one.judged.refused,
                }
                for one in self.replays
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """What ``stepsim plan --json`` prints; docs/plan.md says what each key means."""
        certificate = self.certificate
        return {
            "scenario": self.scenario.name,
            "objective": self.wishes.objective.value,
            "space": {
                "legal": certificate.legal,
                "fit": certificate.fit,
                "bounded": self.bounded,
                "replayed": certificate.replayed,
                "refused": dict(self.refused),
            },
            "left_out": [
                {"set": written(one.values), "field": one.field, "why": one.why} for one in self.left_out
            ],
            "certificate": {
                "optimal": certificate.optimal,
                "tolerance": certificate.tolerance,
                "audited": certificate.audited,
                "better": certificate.better,
                "below_bound": certificate.below,
                "interrupted": certificate.interrupted,
                "sentence": certificate.sentence(),
            },
            "choices": [
                {"set": written(one.settings), **choice_figures(one), "critical_path": dict(one.figures.path)}
                for one in self.choices
            ],
            "bold": None if self.bold is None else _bold(self.bold),
            "front": [
                {
                    "set": written(point.settings),
                    "step_time_s": point.step_time_s,
                    "peak_memory_bytes": point.peak_memory_bytes,
                    "headroom_bytes": point.headroom_bytes,
                    "gpus": point.gpus,
                    "price_per_step": point.price_per_step,
                }
                for point in self.front
            ],
            "front_whole": self.front_whole,
            "lost": [
                {
                    "set": written(one.settings),
                    "why": one.why,
                    "factor": one.factor if math.isfinite(one.factor) else None,
                    "factor_of": "objective" if one.fits else "memory",
                    "name": one.name,
                    "fits": one.fits,
                    "at_least": one.at_least,
                }
                for one in self.lost
            ],
            "smallest": self._smallest(),
            "nearest": None
            if self.nearest is None
            else {"set": written(self.nearest[0]), "factor": self.nearest[1]},
            "tied": [written(settings) for settings in self.tied],
            "passed_over": dict(self.passed_over),
            "emitted": self.emitted,
            "not_emitted": self.not_emitted,
            "remembered": self.remembered,
            "timing": dict(self.timing),
        }

    def _smallest(self) -> dict[str, Any] | None:
        if self.smallest is None:
            return None
        settings, peak, capacity = self.smallest
        terms = dict(self.smallest_terms)
        return {
            "set": written(settings),
            "peak_memory_bytes": peak,
            "capacity_bytes": capacity,
            "terms_bytes": terms,
        }


def _bold(bold: BoldChoice) -> dict[str, Any]:
    return {
        "set": written(bold.choice.settings),
        **choice_figures(bold.choice),
        "critical_path": dict(bold.choice.figures.path),
        "faster": bold.faster,
        "promised": bold.promised,
    }


def choice_figures(choice: Choice) -> dict[str, Any]:
    """The figures of a choice under the keys of the JSON, plain values."""
    figures = choice.figures
    return {
        "step_time_s": figures.step_time_s,
        "interval_s": [*figures.interval_s],
        "tokens_per_second_per_gpu": figures.tokens_per_second_per_gpu,
        "mfu": figures.mfu,
        "peak_memory_bytes": figures.peak_memory_bytes,
        "fit_probability": choice.fit_probability,
        "probability_best": choice.probability_best,
        "expected_regret": choice.expected_regret,
        "price_per_step": choice.price_per_step,
        "objective": choice.value,
        "goodput": choice.goodput,
        "gpus": choice.gpus,
        "days": choice.days,
        "price": choice.price,
    }


def written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as plain values, lists in place of tuples."""
    return {name: [*value] if isinstance(value, tuple) else value for name, value in settings.items()}
