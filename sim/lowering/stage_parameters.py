"""Parameters that one rank holds of a virtual stage, by where their gradients become ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .layers.kinds import LayerKind, LayerRun
from .layers.local_shape import LocalShape
from .layers.stages import Stage
from .parameters import (
    OF_EXPERTS,
    Parameter,
    count_of,
    layer_parameters,
    norm_parameters,
    position_parameters,
    table_parameter,
)

if TYPE_CHECKING:
    from ..scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Parameters by who reduces their gradients: ``shared`` by all data-parallel ranks, and ``experts``.
    ``one``: they are one parameter, as a table is, however many elements other things have."""

    shared: float = 0.0
    experts: float = 0.0
    one: bool = False

    @property
    def total(self) -> float:
        """All of them, whoever reduces their gradients."""
        return self.shared + self.experts

    @classmethod
    def of_all(cls, each: Iterable[Elements]) -> Elements:
        """The sum of all of them, which is one object and not as many as there are terms."""
        each = tuple(each)
        shared, experts = sum(one.shared for one in each), sum(one.experts for one in each)
        return cls(shared=float(shared), experts=float(experts))

    def __add__(self, other: Elements) -> Elements:
        return Elements(shared=self.shared + other.shared, experts=self.experts + other.experts)

    def times(self, count: float) -> Elements:
        """The elements of ``count`` such parts."""
        return Elements(shared=count * self.shared, experts=count * self.experts)


NO_ELEMENTS = Elements()

MLP_MATRICES = ("mlp in", "mlp out", "shared expert in", "shared expert out")
"""Names of the matrices whose GEMMs layers/mlp.py writes."""


@dataclass(frozen=True, kw_only=True)
class StageParameters:
    """What one TP rank holds: the head (with the final norm), layers, the embedding (with positions).

    ``of_layers`` has each kind of layer of the stage with its count and the parameters of one of the kind.
    """

    of_head: tuple[Parameter, ...]
    of_layers: Mapping[LayerKind, tuple[int, tuple[Parameter, ...]]]
    of_embedding: tuple[Parameter, ...]

    @cached_property
    def head(self) -> float:
        """Elements of the head."""
        return float(count_of(self.of_head))

    @cached_property
    def embedding(self) -> float:
        """Elements of the embedding."""
        return float(count_of(self.of_embedding))

    @cached_property
    def layers(self) -> Mapping[LayerKind, tuple[int, Elements]]:
        """The count of each kind of layer, and the elements of one of the kind."""
        return {kind: (count, elements_of(listed)) for kind, (count, listed) in self.of_layers.items()}

    def each(self) -> Iterator[tuple[Parameter, int]]:
        """Every parameter, with the number of layers that have one."""
        for one in (*self.of_head, *self.of_embedding):
            yield one, 1
        for count, listed in self.of_layers.values():
            for one in listed:
                yield one, count

    def layer(self, kind: LayerKind) -> Elements:
        """Elements of one layer of that kind."""
        return self.layers[kind][1]

    @cached_property
    def body(self) -> float:
        """Elements of all layers: those whose GEMMs a recipe of fewer bits may quantise."""
        return sum(count * each.total for count, each in self.layers.values())

    @cached_property
    def beside_mlps(self) -> float:
        """Elements of ``body`` outside the matrices of dense MLPs and shared experts (mlp.py)."""
        mlps = sum(count * one.elements for one, count in self.each() if one.name in MLP_MATRICES)
        return self.body - mlps

    @cached_property
    def elements(self) -> Elements:
        """All of them, by who reduces their gradients."""
        ends = Elements(shared=self.head + self.embedding)
        return sum((each.times(count) for count, each in self.layers.values()), start=ends)

    @property
    def total(self) -> float:
        """Elements of all parameters of the stage."""
        return self.elements.total


def elements_of(parameters: Iterable[Parameter]) -> Elements:
    """The elements of these parameters, by who reduces their gradients."""
    shared, experts = 0, 0
    for parameter in parameters:
        if parameter.replicated_over == OF_EXPERTS:
            experts += parameter.elements
        else:
            shared += parameter.elements
    return Elements(shared=float(shared), experts=float(experts))


def all_stage_parameters(
    stages: Iterable[Stage], local: LocalShape, scenario: Scenario, *, ends_meet: bool
) -> tuple[StageParameters, ...]:
    """The parameters of each stage: those of equal stages are one object."""
    known: dict[tuple[tuple[LayerRun, ...], bool, bool], StageParameters] = {}
    found = []
    for stage in stages:
        alike = stage.runs, stage.embedding, stage.head
        if alike not in known:
            known[alike] = stage_parameters(stage, local, scenario, ends_meet=ends_meet)
        found.append(known[alike])
    return tuple(found)


def stage_parameters(
    stage: Stage, local: LocalShape, scenario: Scenario, *, ends_meet: bool
) -> StageParameters:
    """A tied table counts once where both ends share a rank (``ends_meet``), and twice where they do not."""
    tied_here = scenario.model.tied_embeddings and (ends_meet or stage.embedding)
    head = [*norm_parameters("final norm", local)]
    if not tied_here:
        head.append(table_parameter("head", local))
    # Multi-token prediction looks tokens up where the head is.
    predicts = not ends_meet and any(kind.prediction for kind in stage.kinds)
    embedding = [table_parameter("embedding", local)] if stage.embedding or predicts else []
    if stage.embedding and scenario.model.position == "learned":
        embedding += position_parameters(local, scenario.training.seq_length)
    return StageParameters(
        of_head=tuple(head) if stage.head else (),
        of_layers={
            kind: (count, layer_parameters(local.of(kind))) for kind, count in Counter(stage.kinds).items()
        },
        of_embedding=tuple(embedding),
    )
