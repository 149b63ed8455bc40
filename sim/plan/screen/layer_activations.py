"""Activations of a microbatch on a stage, for all distinct layers of the tables at once.

``sim/lowering/state/activations.py`` has the rules for one layer. Here every size is an array over the
layers, and so is what a stage keeps.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...lowering.state.activations import ActivationBytes, LayerBytes, activation_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...lowering.layers.kinds import LayerKind
    from ...lowering.layers.stages import Stage
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]


class _Known(dict[Any, LayerBytes]):
    """Bytes of layers by kind and recomputation, each an array over the distinct layers of the tables."""

    def __init__(self, sizes: Sequence[ActivationBytes]) -> None:
        super().__init__()
        self.sizes = sizes

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: tuple[LayerKind, Any]) -> LayerBytes:
        from ...lowering.layers.kinds import LayerRun

        run = LayerRun(kind=key[0], recompute=key[1])
        each = [one.layer(run) for one in self.sizes]
        self[key] = LayerBytes(
            kept=cast(float, np.array([one.kept for one in each])),
            working=cast(float, np.array([one.working for one in each])),
            operands=cast(float, np.array([one.operands for one in each])),
        )
        return self[key]


def joined_sizes(tables: ScreenTables) -> ActivationBytes:
    """The sizes of every layer of the tables as one object, in which each number is an array over the
    layers."""
    software = tables.base.software
    # A forward pass leaves the same behind whatever becomes of gradients.
    first = tables.forward_of.tolist()
    known = {one: activation_bytes(tables.layers[one].local, software) for one in dict.fromkeys(first)}
    each = [known[one] for one in first]

    def joined(name: str) -> float:
        return cast(float, np.array([getattr(one, name) for one in each]))

    return ActivationBytes(
        local=each[0].local,
        software=software,
        embedding=joined("embedding"),
        head=joined("head"),
        logits=joined("logits"),
        head_operands=joined("head_operands"),
        output=joined("output"),
        passed=joined("passed"),
        known=_Known(each),
        most=_most_of_each,
    )


def activations_of(stage: Stage, sizes: ActivationBytes, layer: Codes) -> list[Floats]:
    """Activations of a microbatch on a stage of that kind, by layout, in the order of ``QUANTITIES``."""
    return [
        _of_layer(sizes.kept_by_forward(stage), layer),
        _of_layer(sizes.working(stage), layer),
        stage.losses * _of_layer(sizes.logits, layer),
        _of_layer(sizes.kept_by_input_grad(stage), layer),
        _of_layer(sizes.kept_by_layer(stage), layer),
    ]


def _most_of_each(figures: Sequence[Any]) -> Any:
    """By layer, the largest of some figures that are arrays over the layers."""
    return reduce(np.maximum, figures) if len(figures) else 0.0


def _of_layer(size: float, layer: Codes) -> Floats:
    """A size by layout, from one array over layers or from one number for all."""
    found = np.asarray(size, dtype=np.float64)
    return found[layer] if found.ndim else np.full(len(layer), float(found))
