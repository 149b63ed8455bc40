"""Which layers each chunk of a pipeline has, by the rule or by the list of a scenario.

References:
    Megatron-LM transformer_block.py, get_num_layers_to_build (embedding and loss counted as layers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .models import Scenario


def chunk_layers(scenario: Scenario) -> list[int] | None:
    """The transformer layers of each of the pp x vpp chunks, in pipeline order; None where costs decide
    (``flops_balanced``).

    Remainders go to the middle, as Megatron's users give them; no public code says where.
    """
    par, model = scenario.parallelism, scenario.model
    split, count = par.stage_split, par.virtual_stages
    if not isinstance(split, str):
        return list(split)
    if split == "flops_balanced":
        return None
    if split == "embedding_and_loss_as_layers":
        layers = [(model.num_layers + 2) // count] * count
        layers[0] -= 1
        layers[-1] -= 1
        return layers
    if split == "uneven_unspecified" and model.mtp_layers:
        return _with_prediction(model.num_layers, model.mtp_layers, count)
    return near_uniform(model.num_layers, count)


def _with_prediction(num_layers: int, predictions: int, count: int) -> list[int]:
    """The layers of multi-token prediction and each passage of the head count as layers of the last chunk.

    Of DeepSeek-V3 on 16 chunks that leaves one layer there, as NVIDIA's layout has it (Megatron-Bridge
    scripts/performance/configs/deepseek, ``pp_layout`` Et*4|(t*4|)*14tmL).
    """
    ends = 2 * predictions + 1
    layers = near_uniform(num_layers + ends, count)
    layers[-1] -= ends
    return layers if layers[-1] >= 0 else near_uniform(num_layers, count)


def near_uniform(num_layers: int, count: int) -> list[int]:
    """Layers of each of ``count`` chunks: equal, with one more in the middle ones where they do not divide.

    >>> near_uniform(14, 4)
    [3, 4, 4, 3]
    """
    base, rest = divmod(num_layers, count)
    if not rest:
        return [base] * count
    first = (count - rest) // 2
    return [base + (first <= i < first + rest) for i in range(count)]
