"""A layout to begin with: the first that fits, without recomputation if any does, then the least cut.

Knows memory, not time: a plan finds what is fast. Tensor parallelism stays inside a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...brief.memory import memory_by_order
from ...scenario.errors import ScenarioError
from ...scenario.load import load_scenario
from ...scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ...scenario.models import Scenario

SIZES = (1, 2, 4, 8, 16, 32)
RECOMPUTE = ("none", "full")


def first_layout(document: Mapping[str, Any]) -> Scenario | None:
    """The scenario of ``document`` under the first layout that is legal and fits; None where none does.

    ``document`` has no block ``parallelism``; the fields of the layout are added to it. State is sharded as
    the software does unless told otherwise, by ZeRO-1 at least.

    Raises:
        ScenarioError: where no layout at all makes it a scenario: what is wrong with the plainest one.
        NotSupported: where each is refused: why the plainest one is.
    """
    wrong: ScenarioError | NotSupported | None = None
    legal = False
    for changes in _layouts(int(document["cluster"].get("gpus_per_node", 8))):
        try:
            scenario = load_scenario(document, changes)
            if not scenario.parallelism.zero:
                scenario = scenario.with_({"parallelism.zero": 1})
            fits = memory_by_order(scenario).fits
        except (ScenarioError, NotSupported) as error:
            wrong = wrong or error
            continue
        if fits:
            return scenario
        legal = True
    if not legal and wrong is not None:
        raise wrong
    return None


def _layouts(gpus_per_node: int) -> Iterator[dict[str, Any]]:
    """Ever more ways that a model is cut; of equally many, the fewest stages. Recomputation, which adds a
    third to the FLOPs, only when no layout fits without."""
    sizes = [(tp, pp) for tp in SIZES if tp <= gpus_per_node for pp in SIZES]
    for recompute in RECOMPUTE:
        for tp, pp in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
            changes: dict[str, Any] = {"training.recompute": recompute}
            changes |= {"parallelism.tp": tp, "parallelism.sequence_parallel": True} if tp > 1 else {}
            changes |= {"parallelism.pp": pp, "schedule": "1f1b"} if pp > 1 else {}
            yield changes
