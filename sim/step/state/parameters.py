"""Parameters that one rank holds of a virtual stage, by where their gradients become ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..layers.kinds import LayerKind
from ..layers.shard import Shard
from ..layers.stages import Stage

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Parameters by who reduces their gradients: ``shared`` by all data-parallel ranks, and ``experts``."""

    shared: float = 0.0
    experts: float = 0.0

    @property
    def total(self) -> float:
        return self.shared + self.experts

    def __add__(self, other: Elements) -> Elements:
        return Elements(shared=self.shared + other.shared, experts=self.experts + other.experts)

    def times(self, count: float) -> Elements:
        return Elements(shared=count * self.shared, experts=count * self.experts)


NO_ELEMENTS = Elements()


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """Elements held by one TP rank: head (with final norm), each layer, embedding (with positions).

    ``layers`` has each kind of layer of the stage with its count and what one of the kind holds.
    """

    head: float
    layers: Mapping[LayerKind, tuple[int, Elements]]
    embedding: float

    def layer(self, kind: LayerKind) -> Elements:
        """Elements of one layer of that kind."""
        return self.layers[kind][1]

    @property
    def body(self) -> float:
        """Elements of all layers: those whose products a recipe of fewer bits may quantise."""
        return sum(count * each.total for count, each in self.layers.values())

    @property
    def elements(self) -> Elements:
        """All of them, by who reduces their gradients."""
        ends = Elements(shared=self.head + self.embedding)
        return sum((each.times(count) for count, each in self.layers.values()), start=ends)

    @property
    def total(self) -> float:
        return self.elements.total


def stage_parameters(stage: Stage, shard: Shard, scenario: Scenario, *, ends_meet: bool) -> StageParameters:
    """A tied table counts once where both ends share a rank (``ends_meet``), and twice where they do not."""
    table = float(shard.vocabulary * shard.hidden)
    norm = shard.hidden * (1 if shard.rms_norm else 2)
    tied_here = scenario.model.tied_embeddings and (ends_meet or stage.embedding)
    # Multi-token prediction looks tokens up where the head is.
    predicts = not ends_meet and any(kind.prediction for kind in stage.kinds)
    positions = scenario.training.seq_length * shard.hidden if scenario.model.position == "learned" else 0
    return StageParameters(
        head=(norm + (0.0 if tied_here else table)) if stage.head else 0.0,
        layers={
            kind: (count, _layer_elements(shard.of(kind))) for kind, count in Counter(stage.kinds).items()
        },
        embedding=table + positions if stage.embedding else predicts * table,
    )


def _layer_elements(shard: Shard) -> Elements:
    return Elements(shared=shard.layer_parameters, experts=shard.expert_parameters)
