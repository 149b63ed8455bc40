"""Which kinds of layer a model has, and which kind is where.

Layers of one kind have equal local shapes, and so equal blocks, parameters and activations: all of these are
built once for a kind. Knows the pattern of layers of a model; not which stage holds them (stages.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from .recompute import NOTHING, Recompute

if TYPE_CHECKING:
    from ...scenario.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What sets a layer apart from the other layers of its model.

    ``experts`` in place of an MLP; a ``window`` of keys that a query sees; ``prediction``: the layer
    predicts a further token, from a stream that it makes of two.
    """

    experts: bool = False
    window: int | None = None
    prediction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """``count`` like layers in a row, and what of each of them backward runs again (recompute.py)."""

    kind: LayerKind
    count: int = 1
    recompute: Recompute = NOTHING


@lru_cache(maxsize=64)
def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """The kind of each layer of ``model``, first to last, without those of multi-token prediction."""
    kinds = [kind_of(model, layer) for layer in range(model.num_layers)]
    one = {kind: kind for kind in kinds}  # for equal ones, so that tables find it without comparing
    return tuple(one[kind] for kind in kinds)


def kind_of(model: Model, layer: int) -> LayerKind:
    """The kind of that layer, counted from 0."""
    return LayerKind(experts=model.has_experts(layer), window=model.window_of(layer))


def prediction_kinds(model: Model) -> tuple[LayerKind, ...]:
    """The layers of multi-token prediction: each like the model's last (arXiv:2412.19437 section 2.2)."""
    return (replace(layer_kinds(model)[-1], prediction=True),) * model.mtp_layers


def joined(runs: Iterable[LayerRun]) -> tuple[LayerRun, ...]:
    """The layers of ``runs``, with equal neighbours as one run."""
    grouped = ((*each,) for _, each in groupby(runs, key=lambda run: (run.kind, run.recompute)))
    return tuple(replace(same[0], count=sum(one.count for one in same)) for same in grouped)
