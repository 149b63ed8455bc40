"""The scenario under other values of fields that are no axes of a layout: in a layout that suits them, or why
there is none.

Knows plain layouts that most jobs can have; what a scenario takes, scenarios check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..scenario.errors import ScenarioError
from .same_twice import ZERO

if TYPE_CHECKING:
    from ..scenario.models import Scenario

_PLAIN: Mapping[str, Any] = {
    "parallelism.pp": 1,
    "parallelism.vpp": None,
    "parallelism.cp": 1,
    "parallelism.cp_a2a": None,
    "parallelism.ep": 1,
    "parallelism.etp": 1,
    "parallelism.dp": None,
    "parallelism.zero": None,
    "parallelism.fsdp_shard_size": None,
    "parallelism.stage_split": "uniform",
    "schedule": None,
    "schedule_options": None,
    "training.recompute": "none",
    "training.micro_batch": 1,
}
"""A layout that most jobs can have; tp, and how far the pipeline goes, are left to try."""

OWNERS = "software.gradients.zero1_broadcasts"
"""A field that only ZeRO-1 may set; layouts with another ZeRO stage reset it."""


def base_of(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario | list[ScenarioError]:
    """The scenario with other fields, in any layout that suits them; where none is found, what is wrong with
    its own, and with others from the plainest on."""
    if not changes:
        return scenario
    wrong: list[ScenarioError] = []
    owners = changes.get(OWNERS, scenario.software.gradients.zero1_broadcasts)
    whole = {**_PLAIN, **({ZERO: 1} if owners else {})}
    plain = (
        {**whole, "parallelism.tp": tp, "parallelism.sequence_parallel": tp > 1, "parallelism.pp": pp}
        for pp in (1, 2, 4, 8, 16, 32)
        for tp in (1, 2, 4, 8)
    )
    for layout in ({}, {"parallelism.dp": None}, *plain):
        try:
            return scenario.with_({**layout, **changes})
        except ScenarioError as error:
            wrong.append(error)
    return wrong


@dataclass(frozen=True, kw_only=True)
class RefusedValues:
    """A combination of ``values`` that is no scenario in any layout, by the first ``field`` that is wrong,
    with a sentence on ``why``."""

    values: Mapping[str, Any]
    field: str
    why: str

    @property
    def reason(self) -> str:
        """The short name by which a space counts it."""
        return f"{NO_SCENARIO}: {self.field}"


NO_SCENARIO = "no scenario"


def left_out(values: Mapping[str, Any], wrong: Sequence[ScenarioError]) -> RefusedValues:
    """What is wrong in the plainest layout, without tensor and pipeline parallelism, by its field; of several
    things what most others have in common with it."""
    plainest, *others = ([(one.path, one.message) for one in error.problems] for error in wrong[2:])
    field, why = max(plainest, key=lambda one: sum(one in other for other in others))
    return RefusedValues(values=values, field=field, why=why)
