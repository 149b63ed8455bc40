"""A layout to begin with: the first that likely fits, without recomputation if any does, then the least cut.

Knows memory, not time: a plan finds what is fast. Tensor parallelism stays inside a host, and so do experts
where anything fits so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...brief.memory import memory_by_order
from ...evidence.measured_memory import fit_probability
from ...scenario.errors import ScenarioError
from ...scenario.load import load_scenario
from ...scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ...scenario.models import Scenario

SIZES = (1, 2, 4, 8, 16, 32)
EXPERT_SIZES = (*SIZES, 64)
RECOMPUTE = ("none", "full")
FITS = 0.9
"""The probability that plan asks for, too, unless told otherwise."""


def first_layout(document: Mapping[str, Any]) -> Scenario | None:
    """The scenario of ``document`` under the first layout that is legal and fits with the probability that a
    plan asks for; where none does without recomputation, the first that fits at all, and so with it.

    ``document`` has no block ``parallelism``; the fields of the layout are added to it. State is sharded as
    the software does unless told otherwise, by ZeRO-1 at least.

    Raises:
        ScenarioError: where no layout at all makes it a scenario: what is wrong with the plainest one.
        NotSupported: where each is refused: why the plainest one is.
    """
    wrong: ScenarioError | NotSupported | None = None
    legal = False
    layouts = [*_layouts(document, int(document["cluster"].get("gpus_per_node", 8)))]
    for recompute in RECOMPUTE:
        tight = None
        for changes in layouts:
            try:
                scenario, fits = _tried(document, {"training.recompute": recompute, **changes})
            except (ScenarioError, NotSupported) as error:
                wrong = wrong or error
                continue
            if fits >= FITS:
                return scenario
            tight = tight or (scenario if fits else None)
            legal = True
        if tight is not None:
            return tight
    if not legal and wrong is not None:
        raise wrong
    return None


def _tried(document: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[Scenario, float]:
    """The scenario with a layout, and the probability that it fits; 0 where its memory as such does not."""
    scenario = load_scenario(document, changes)
    if not scenario.parallelism.zero:
        scenario = scenario.with_({"parallelism.zero": 1})
    memory = memory_by_order(scenario)
    return scenario, fit_probability(scenario.software.name, memory.high) if memory.fits else 0.0


def _layouts(document: Mapping[str, Any], gpus_per_node: int) -> Iterator[dict[str, Any]]:
    """Ever more ways to cut a model; of equally many, the fewest stages, then the fewest ranks of experts.

    Experts over several hosts, and stages of unequal numbers of layers, only when no layout fits without.
    """
    layers, experts = _layers_and_experts(document)
    sizes = [
        (tp, pp, ep)
        for tp in SIZES
        if tp <= gpus_per_node
        for pp in SIZES
        if pp <= layers
        for ep in EXPERT_SIZES
        if experts % ep == 0 and ep <= max(1, experts)
    ]

    def rank(size: tuple[int, int, int]) -> tuple[bool, bool, int, int, int]:
        tp, pp, ep = size
        return bool(layers % pp), ep > gpus_per_node, tp * pp, pp, ep

    for tp, pp, ep in sorted(sizes, key=rank):
        changes: dict[str, Any] = {}
        changes |= {"parallelism.tp": tp, "parallelism.sequence_parallel": True} if tp > 1 else {}
        changes |= {"parallelism.pp": pp, "schedule": "1f1b"} if pp > 1 else {}
        changes |= {"parallelism.stage_split": "uneven_unspecified"} if layers % pp else {}
        changes |= {"parallelism.ep": ep} if ep > 1 else {}
        yield changes


def _layers_and_experts(document: Mapping[str, Any]) -> tuple[int, int]:
    """Layers of the model and routed experts of one, 0 of a dense model.

    What is no scenario under the plainest layout counts as a dense model of as many layers as stages take.
    """
    try:
        model = load_scenario(document).model
    except (ScenarioError, NotSupported):
        return max(SIZES), 0
    return model.num_layers, model.moe.num_experts if model.moe else 0
