"""Which layers each virtual stage holds.

References:
    Megatron-LM transformer_block.py, get_num_layers_to_build (embedding and loss counted as
    layers). nanotron pipeline_parallel/block.py (cost-balanced blocks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...scenario.refusal import NotSupported
from ...scenario.schedules import schedule_named, shape_of

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A virtual stage: ``layers`` transformer layers, the first ``recomputed`` of them recomputed in full."""

    index: int
    layers: int
    embedding: bool
    head: bool
    loss: bool
    recomputed: int = 0

    @property
    def plain(self) -> int:
        """Layers that are not recomputed in full."""
        return self.layers - self.recomputed


def build_stages(scenario: Scenario) -> tuple[Stage, ...]:
    """The virtual stages in pipeline order, pp * vpp of them."""
    par, model = scenario.parallelism, scenario.model
    count = par.pp * par.vpp
    split = par.stage_split
    head = count - 1
    if not isinstance(split, str):
        layers = list(split)
    elif split == "flops_balanced":
        layers, head = _cost_balanced(scenario, count)
    elif split == "embedding_and_loss_as_layers":
        each = (model.num_layers + 2) // count
        layers = [each] * count
        layers[0] -= 1
        layers[-1] -= 1
    else:  # uniform; where layers do not divide, Megatron-like remainders go to the middle stages
        layers = _near_uniform(model.num_layers, count)
    recomputed = _recomputed_layers(scenario, layers)
    return tuple(
        Stage(
            index=i, layers=n, embedding=i == 0, head=i == head, loss=i == count - 1, recomputed=recomputed[i]
        )
        for i, n in enumerate(layers)
    )


def _near_uniform(num_layers: int, count: int) -> list[int]:
    base, rest = divmod(num_layers, count)
    if not rest:
        return [base] * count
    first = (count - rest) // 2
    return [base + (first <= i < first + rest) for i in range(count)]


def _cost_balanced(scenario: Scenario, count: int) -> tuple[list[int], int]:
    """nanotron: blocks fill a stage until the running cost reaches its share; the crossing block stays.

    An exact tie counts as reached: the published times of a model whose head costs exactly four
    layers (16 layers, vocabulary 131,072) fit that split alone.
    """
    model = scenario.model
    h = model.hidden_size
    layer_cost = 4.0 * h * h + 3.0 * h * model.ffn_hidden_size
    costs = [0.0, *([layer_cost] * model.num_layers), 0.0, float(model.vocab_size * h), 0.0]
    total, running, stage = sum(costs), 0.0, 0
    layers = [0] * count
    head_stage = 0
    for position, cost in enumerate(costs):
        if 1 <= position <= model.num_layers:
            layers[stage] += 1
        elif position == model.num_layers + 2:
            head_stage = stage
        running += cost
        while stage < count - 1 and running >= (stage + 1) / count * total:
            stage += 1
    return layers, head_stage


def _recomputed_layers(scenario: Scenario, layers: list[int]) -> list[int]:
    """Layers per virtual stage that are recomputed in full."""
    recompute = scenario.training.recompute
    if recompute == "full":
        return layers
    if isinstance(recompute, str):
        if recompute == "op_selective":
            raise NotSupported(
                "training.recompute", "per-operator selective recomputation is not modelled yet"
            )
        return [0] * len(layers)
    if recompute.kind != "full" or recompute.layers is None:
        raise NotSupported(
            "training.recompute", "recomputation by module is not modelled yet; known: none, selective, full"
        )
    # The count is per pipeline stage (a rank), whose virtual stages are filled in order.
    rank_of, shape = schedule_named(scenario.schedule).rank_of, shape_of(scenario)
    left = [recompute.layers] * shape.ranks
    recomputed = []
    for index, held in enumerate(layers):
        rank = rank_of(index, 0, shape)
        taken = min(held, left[rank])
        left[rank] -= taken
        recomputed.append(taken)
    return recomputed
