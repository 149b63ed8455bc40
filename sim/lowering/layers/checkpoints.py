"""Which layers are recomputed as a whole, and how many of them in one go.

References:
    Megatron-LM core/transformer/transformer_block.py, _checkpointed_forward: ``uniform`` keeps the input
    of every ``--recompute-num-layers`` layers of a virtual stage and runs all of these again at once;
    ``block`` recomputes the first so many layers of each virtual stage, each by itself.
    multi_token_prediction.py: those layers know uniform with one layer, and block skips them.
    torchtitan distributed/activation_checkpoint.py, _apply_layer_sac: every n-th layer that a rank makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...scenario.schedules import schedule_named

if TYPE_CHECKING:
    from ...scenario.blocks import Training
    from ...scenario.models import Scenario


def layers_in_one_go(training: Training) -> int:
    """How many layers a checkpoint spans: only the input of the first of them is kept, and backward runs all
    of them again at once. 1 unless ``training.recompute`` is uniform and says more."""
    recompute = training.recompute
    if isinstance(recompute, str) or recompute.method != "uniform":
        return 1
    return recompute.layers or 1


def recomputed_layers(scenario: Scenario, layers: list[int]) -> list[list[bool]]:
    """Which layers of each virtual stage are recomputed as a whole."""
    recompute = scenario.training.recompute
    if isinstance(recompute, str):
        return [[recompute == "full"] * held for held in layers]
    if recompute.method == "uniform":
        return [[True] * held for held in layers]
    if recompute.method == "block":
        return [[i < (recompute.layers or 0) for i in range(held)] for held in layers]
    # Counted on a pipeline rank, through its virtual stages in order.
    rank_of, shape = schedule_named(scenario.schedule).rank_of, scenario.pipeline_shape
    before = [0] * shape.ranks
    found = []
    for index, held in enumerate(layers):
        rank = rank_of(index, 0, shape)
        numbers = range(before[rank] + 1, before[rank] + held + 1)
        if recompute.every:
            found.append([number % recompute.every == 0 for number in numbers])
        else:
            found.append([number <= (recompute.layers or 0) for number in numbers])
        before[rank] += held
    return found


def prediction_recomputed(scenario: Scenario, stage: list[bool]) -> bool:
    """Whether layers of multi-token prediction are recomputed as those of their ``stage`` are."""
    recompute = scenario.training.recompute
    block = not isinstance(recompute, str) and (recompute.method == "block" or recompute.every is not None)
    return bool(stage) and all(stage) and not block
