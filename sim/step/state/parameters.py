"""Parameters that one rank holds of a virtual stage, by where their gradients become ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..layers.shard import Shard
from ..layers.stages import Stage

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """Elements held by one TP rank: head (with final norm), each layer, embedding (with positions)."""

    head: float
    layer: float
    layers: int
    embedding: float

    @property
    def total(self) -> float:
        return self.head + self.layer * self.layers + self.embedding


def stage_parameters(stage: Stage, shard: Shard, scenario: Scenario, *, ends_meet: bool) -> StageParameters:
    """A tied table counts once where both ends share a rank (``ends_meet``), and twice where they do not."""
    table = float(shard.vocabulary * shard.hidden)
    norm = shard.hidden * (1 if shard.rms_norm else 2)
    tied_here = scenario.model.tied_embeddings and (ends_meet or stage.embedding)
    positions = scenario.training.seq_length * shard.hidden if scenario.model.position == "learned" else 0
    return StageParameters(
        head=(norm + (0.0 if tied_here else table)) if stage.head else 0.0,
        layer=shard.layer_parameters,
        layers=stage.layers,
        embedding=table + positions if stage.embedding else 0.0,
    )
