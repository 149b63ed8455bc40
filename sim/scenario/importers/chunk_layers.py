"""Which layers each chunk of a pipeline has, where a rule and a list may say the same."""

from __future__ import annotations

from ..models import Scenario


def chunk_layers(scenario: Scenario) -> list[int] | str:
    """The layers of each chunk where a rule says them, so that a rule and the list that it means are one."""
    par, layers = scenario.parallelism, scenario.model.num_layers
    chunks = par.virtual_stages
    if par.stage_split == "uniform" and layers % chunks == 0:
        return [layers // chunks] * chunks
    if par.stage_split == "embedding_and_loss_as_layers" and (layers + 2) % chunks == 0 and chunks > 1:
        split = [(layers + 2) // chunks] * chunks
        return [split[0] - 1, *split[1:-1], split[-1] - 1]
    return par.stage_split if isinstance(par.stage_split, str) else list(par.stage_split)
