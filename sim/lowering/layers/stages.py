"""Which layers each virtual stage holds.

References:
    nanotron pipeline_parallel/block.py (cost-balanced blocks). All other rules: chunk_layers.py of the
    scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ...scenario.chunk_layers import chunk_layers
from .amax import amax_group, attention_scales_later
from .checkpoints import layers_in_one_go, prediction_recomputed, recomputed_layers
from .kinds import LayerKind, LayerRun, joined, layer_kinds, prediction_kinds
from .recompute import FULL, recomputed_parts

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A virtual stage: its transformer layers in forward order, and which ends of the model it has.

    ``in_one_go``: so many of its layers are recomputed at once, from the input of the first of them.
    ``scales``: whether maxima of 8-bit tensors are reduced behind its layers (amax.py); ``attention_scales``:
    whether those of attention are, behind each layer.
    """

    index: int
    runs: tuple[LayerRun, ...]
    embedding: bool
    head: bool
    loss: bool
    in_one_go: int = 1
    scales: bool = False
    attention_scales: bool = False

    @property
    def layers(self) -> int:
        """Transformer layers."""
        return sum([run.count for run in self.runs])

    @property
    def recomputed(self) -> int:
        """Layers that are recomputed in full."""
        return sum([run.count for run in self.runs if run.recompute == FULL])

    @property
    def heads(self) -> int:
        """How often a microbatch passes the head: once for the model, and for each predicted token."""
        return self.head * self._predicted

    @property
    def losses(self) -> int:
        """How often a microbatch passes the loss on this stage."""
        return self.loss * self._predicted

    @property
    def _predicted(self) -> int:
        """Tokens that a microbatch predicts at each place, here at the end of the model."""
        return 1 + sum([run.count for run in self.runs if run.kind.prediction])

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, in forward order."""
        return tuple(run.kind for run in self.runs for _ in range(run.count))


def build_stages(scenario: Scenario) -> tuple[Stage, ...]:
    """The virtual stages in pipeline order, pp * vpp of them."""
    count = scenario.parallelism.virtual_stages
    told = chunk_layers(scenario)
    layers, head = _cost_balanced(scenario, count) if told is None else (told, count - 1)
    reduces, by_layer = amax_group(scenario) is not None, attention_scales_later(scenario)
    return tuple(
        Stage(
            index=i,
            runs=runs,
            embedding=i == 0,
            head=i == head,
            loss=i == count - 1,
            in_one_go=layers_in_one_go(scenario.training),
            scales=bool(runs) and reduces and not by_layer,
            attention_scales=bool(runs) and reduces and by_layer,
        )
        for i, runs in enumerate(_runs(scenario, layers, head))
    )


def _runs(scenario: Scenario, layers: list[int], head: int) -> Iterator[tuple[LayerRun, ...]]:
    """The layers of each virtual stage, and what of each is recomputed.

    Layers of multi-token prediction are where the head is, beyond the layers that the split places.
    """
    parts = recomputed_parts(scenario.training)
    kinds = iter(layer_kinds(scenario.model))
    known: dict[object, tuple[LayerRun, ...]] = {}  # of stages that hold the same: nearly all do
    for index, whole in enumerate(recomputed_layers(scenario, layers)):
        held = (*zip(islice(kinds, len(whole)), whole, strict=True),)
        same = held, index == head
        if same not in known:
            runs = [LayerRun(kind=kind, recompute=FULL if full else parts) for kind, full in held]
            if index == head:
                again = FULL if prediction_recomputed(scenario, whole) else parts
                runs += [LayerRun(kind=kind, recompute=again) for kind in prediction_kinds(scenario.model)]
            known[same] = joined(runs)
        yield known[same]


def _cost_balanced(scenario: Scenario, count: int) -> tuple[list[int], int]:
    """nanotron: blocks fill a stage until the running cost reaches its share; the crossing block stays.

    An exact tie counts as reached: the published times of a model whose head costs exactly four
    layers (16 layers, vocabulary 131,072) fit that split alone. By the public code a head that crosses leaves
    the loss to the next stage, to which logits travel. Later runs on 8 and 16 stages keep a pace at which
    they cannot, that of head and loss on the last stage; the first stage holds what the rule gives it, as
    their memory tells.
    """
    model = scenario.model
    h = model.hidden_size
    layer_cost = 4.0 * h * h + 3.0 * h * model.ffn_hidden_size
    costs = [0.0, *([layer_cost] * model.num_layers), 0.0, float(model.embedding_rows * h), 0.0]
    total, running, stage = sum(costs), 0.0, 0
    layers = [0] * count
    head_stage = 0
    for position, cost in enumerate(costs):
        running += cost
        if 1 <= position <= model.num_layers:
            layers[stage] += 1
        elif position == model.num_layers + 2:
            head_stage = stage
        while stage < count - 1 and running >= (stage + 1) / count * total:
            stage += 1
    return layers, count - 1 if scenario.software.pipeline.head_beside_loss else head_stage
