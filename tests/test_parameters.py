"""The list of parameters: what tensor and expert parallelism leave of it, and what reads it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from stepsim.sim.lowering.layers.experts import experts_of_model
from stepsim.sim.lowering.layers.kinds import layer_kinds
from stepsim.sim.lowering.layers.local_shape import LocalShape, local_shape_of_model
from stepsim.sim.lowering.parameters import (
    OF_EXPERTS,
    Parameter,
    count_of,
    layer_parameters,
    table_parameter,
)
from stepsim.sim.lowering.sizes import parameters
from stepsim.sim.scenario.model.catalogue import get_model, model_names
from stepsim.sim.scenario.model.model import Model

EP = 2


def ways(model: Model) -> int:
    """Tensor parallelism that splits the heads, key and value heads and widths of ``model``."""
    groups = model.num_attention_heads if model.mla else model.num_query_groups
    common = math.gcd(model.num_attention_heads, groups, model.ffn_hidden_size)
    return min(tp for tp in range(2, common + 1) if common % tp == 0)


def cut_shape(model: Model) -> LocalShape:
    """The local shape under tensor and expert parallelism."""
    experts, tp = experts_of_model(model), ways(model)
    if experts:
        experts = replace(experts, held=experts.held // EP, shared_ffn=experts.shared_ffn // tp)
    return local_shape_of_model(model, tp=tp, experts=experts)


def whole_shape(model: Model) -> LocalShape:
    return local_shape_of_model(model, experts=experts_of_model(model))


@pytest.mark.parametrize("name", model_names())
def test_what_is_cut_is_there_once_over_the_axes_that_cut_it(name: str) -> None:
    """Local elements times the ranks of the axes that cut a parameter are those of the whole one."""
    model = get_model(name)
    for kind in set(layer_kinds(model)):
        local = layer_parameters(cut_shape(model).of(kind))
        whole = layer_parameters(whole_shape(model).of(kind))
        for mine, all_of_it in zip(local, whole, strict=True):
            assert mine.name == all_of_it.name
            parts = math.prod({"tp": ways(model), "ep": EP, "etp": 1}[axis] for axis in mine.sharded_over)
            assert mine.elements * parts == all_of_it.elements, mine.name


@pytest.mark.parametrize("name", model_names())
def test_tensor_parallelism_cuts_one_dimension(name: str) -> None:
    """The one that is named, of matrices too: by it the whole shape is known from the local one."""
    model = get_model(name)
    kind = layer_kinds(model)[-1]
    pairs = zip(
        layer_parameters(cut_shape(model).of(kind)),
        layer_parameters(whole_shape(model).of(kind)),
        strict=True,
    )
    for mine, whole in pairs:
        if "tp" in mine.sharded_over:
            assert whole.shape == uncut(mine, ways(model)), mine.name


def uncut(parameter: Parameter, ranks: int) -> tuple[int, ...]:
    return tuple(size * (ranks if i == parameter.cut else 1) for i, size in enumerate(parameter.shape))


@pytest.mark.parametrize("name", model_names())
def test_the_model_is_its_layers_and_its_ends(name: str) -> None:
    model = get_model(name)
    shape, kinds = whole_shape(model), Counter(layer_kinds(model))
    layers = sum(count * count_of(layer_parameters(shape.of(kind))) for kind, count in kinds.items())
    tables = (1 if model.tied_embeddings else 2) * table_parameter("embedding", shape).elements
    norm = model.hidden_size * (1 if model.norm == "rmsnorm" else 2)
    counted = parameters(model)
    assert counted.total == layers + tables + norm + counted.prediction
    routed = [
        p for p in layer_parameters(shape.of(layer_kinds(model)[-1])) if p.replicated_over == OF_EXPERTS
    ]
    assert bool(routed) == bool(model.moe)


def test_a_layer_of_llama_by_hand() -> None:
    """Llama 3 8B: 8 of 32 heads are keys and values, the MLP is 14,336 wide."""
    shapes = {p.name: (p.count, p.shape) for p in layer_parameters(whole_shape(get_model("llama3-8b")))}
    assert shapes == {
        "attention norm": (1, (4096,)),
        "query": (1, (4096, 4096)),
        "key": (1, (1024, 4096)),
        "value": (1, (1024, 4096)),
        "projection": (1, (4096, 4096)),
        "mlp norm": (1, (4096,)),
        "mlp in": (1, (28672, 4096)),
        "mlp out": (1, (4096, 14336)),
    }
