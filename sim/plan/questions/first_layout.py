"""A layout to begin with: the first that fits, without recomputation if any does, then the least cut.

Knows memory, not time: a plan finds what is fast. Tensor parallelism stays inside a host, and where no NVLink
joins its GPUs, parameters are sharded first: sums of every layer over PCIe would take most of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....hardware.gpus import get_gpu, gpu_called
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

    ``document`` has no block ``parallelism``; the fields of the layout are added to it.

    Raises:
        ScenarioError: where no layout at all makes it a scenario: what is wrong with the plainest one.
    """
    wrong: ScenarioError | None = None
    legal = False
    cluster = document["cluster"]
    joined = get_gpu(gpu_called(cluster["gpu"])).nvlink_domain > 1
    for changes in _layouts(int(cluster.get("gpus_per_node", 8)), joined=joined):
        try:
            scenario = load_scenario(document, changes)
            legal = True
            if memory_by_order(scenario).fits:
                return scenario
        except ScenarioError as error:
            wrong = wrong or error
        except NotSupported:
            continue
    if not legal and wrong is not None:
        raise wrong
    return None


def _layouts(gpus_per_node: int, *, joined: bool) -> Iterator[dict[str, Any]]:
    """Ever more ways that a model is cut; of equally many, the fewest stages. Recomputation, which adds a
    third to the FLOPs, only when no layout fits without."""
    if not joined:
        for recompute in RECOMPUTE:
            yield {"parallelism.zero": 3, "training.recompute": recompute}
    sizes = [(tp, pp) for tp in SIZES if tp <= gpus_per_node for pp in SIZES]
    for recompute in RECOMPUTE:
        for tp, pp in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
            changes: dict[str, Any] = {"parallelism.zero": 1, "training.recompute": recompute}
            changes |= {"parallelism.tp": tp, "parallelism.sequence_parallel": True} if tp > 1 else {}
            changes |= {"parallelism.pp": pp, "schedule": "1f1b"} if pp > 1 else {}
            yield changes
