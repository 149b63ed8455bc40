"""How many parameters a model has and how many operations a step takes, as Megatron-LM counts them.

Conventions: a multiply-add is 2 FLOPs; the backward pass takes twice the forward; the logits count,
looking up embeddings, norms and activations do not. Attention is counted over the full square of
scores (``causal=False``) or over half of it, or over what a window leaves of either. Of routed experts
those that a token visits count, and the router. Does not know layouts: counts are of the whole model, from
the lists of parameters.py with a shape that nothing cuts.

References:
    Narayanan et al. 2021, arXiv:2104.04473 section 5.1 and appendix; Korthikanti et al. 2022,
    arXiv:2205.05198 appendix A.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ..scenario.optimizers import get_optimizer
from .layers.experts import experts_of_model
from .layers.kinds import LayerKind, kind_of, layer_kinds, prediction_kinds
from .layers.local_shape import local_shape_of_model
from .parameters import (
    OF_EXPERTS,
    Parameter,
    count_of,
    layer_parameters,
    matrices_of,
    norm_parameters,
    position_parameters,
    prediction_parameters,
    table_parameter,
)

if TYPE_CHECKING:
    from ..scenario.model.model import Model
    from ..scenario.models import Scenario

_FORWARD_AND_BACKWARD = 3

WEIGHTS_AND_MASTERS = 6
"""Bytes of a parameter in BF16 and in FP32."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters by component, all layers together; ``output`` is 0 with tied embeddings.

    ``layers`` are all but the routed ``experts``, and ``prediction`` is what multi-token
    prediction adds: whole layers.
    """

    embedding: int
    position: int
    layers: int
    norm: int
    output: int
    experts: int = 0
    prediction: int = 0

    @property
    def total(self) -> int:
        """Parameters of the whole model."""
        trunk = self.embedding + self.position + self.layers + self.norm + self.output
        return trunk + self.experts + self.prediction


def parameters(model: Model, *, positions: int = 0) -> Parameters:
    """Exact parameter count; ``positions`` are rows of a learned position table (the longest sequence)."""
    shape = local_shape_of_model(model)
    table = table_parameter("embedding", shape).elements
    listed = [parameter for kind in layer_kinds(model) for parameter in whole_layer(model, kind)]
    experts = count_of(parameter for parameter in listed if parameter.replicated_over == OF_EXPERTS)
    return Parameters(
        embedding=table,
        position=count_of(position_parameters(shape, positions if model.position == "learned" else 0)),
        layers=count_of(listed) - experts,
        norm=count_of(norm_parameters("final norm", shape)),
        output=0 if model.tied_embeddings else table,
        experts=experts,
        prediction=sum(count_of(whole_layer(model, kind)) for kind in prediction_kinds(model)),
    )


@lru_cache(maxsize=64)
def whole_layer(model: Model, kind: LayerKind) -> tuple[Parameter, ...]:
    """The parameters of a layer of that kind that nothing cuts, each branch of an MLP by itself."""
    shape = replace(local_shape_of_model(model, experts=experts_of_model(model)), split_gate=True)
    return layer_parameters(shape.of(kind))


def met(model: Model, listed: Iterable[Parameter]) -> int:
    """Parameters of the matrices of ``listed`` that one token meets: of routed experts those it visits."""
    moe = model.moe
    return sum(
        each.elements * moe.topk // moe.num_experts
        if moe and each.replicated_over == OF_EXPERTS
        else each.elements
        for each in matrices_of(listed)
    )


def joint_elements(model: Model) -> int:
    """Elements of the matrix that makes one stream of two before a layer of multi-token prediction."""
    return count_of(matrices_of(prediction_parameters(local_shape_of_model(model))))


def checkpoint_bytes(scenario: Scenario) -> float:
    """Bytes of a whole checkpoint: weights, FP32 master weights and the optimizer's state, no gradients."""
    model, spec = scenario.model, scenario.training.optimizer
    row, total = spec.row, parameters(model).total
    width = scenario.software.gradients.update_bytes(scenario.training.precision)
    weights = WEIGHTS_AND_MASTERS if width == 4 else width
    each = weights + row.state_bytes(width, momentum=spec.momentum, most_bytes=width)
    if not (row.orthogonalizes or row.factors):
        return total * float(each)
    table = table_parameter("embedding", local_shape_of_model(model))
    layers = [
        one for kind in (*layer_kinds(model), *prediction_kinds(model)) for one in whole_layer(model, kind)
    ]
    matrices = matrices_of(layers)
    if row.orthogonalizes:
        others = weights + get_optimizer(row.others).state_bytes(width, most_bytes=width)
        return float(count_of(matrices) * each + (total - count_of(matrices)) * others)
    matrices += (table,) * (1 if model.tied_embeddings else 2)
    factors = sum(one.count * sum(one.shape) for one in matrices) + total - count_of(matrices)
    return float(total * each + width * factors)


def layer_matrix_flops(model: Model, tokens: float, layer: int | None = None) -> float:
    """Forward FLOPs of the weight matrices of layer number ``layer`` (None: of the last one)."""
    kind = kind_of(model, model.num_layers - 1 if layer is None else layer)
    return 2.0 * tokens * met(model, whole_layer(model, kind))


def layer_attention_flops(
    model: Model, tokens: float, seq_length: int, *, causal: bool = False, layer: int | None = None
) -> float:
    """Forward FLOPs of one layer's scores and weighted sum; ``tokens`` is all tokens of all sequences."""
    per_head = model.qk_head_dim + model.v_head_dim
    full = 2.0 * tokens * seq_length * model.num_attention_heads * per_head
    window = model.window_of(model.num_layers - 1 if layer is None else layer)
    reach = min(1.0, window / seq_length) if window else 1.0
    visible = full * 2 * reach * (1 - reach / 2)
    return visible / 2 if causal else visible


def logits_flops(model: Model, tokens: float) -> float:
    """Forward FLOPs of the output layer."""
    rows, columns = table_parameter("head", local_shape_of_model(model)).shape
    return 2.0 * tokens * columns * rows


def model_flops(
    model: Model, global_batch: int, seq_length: int, *, attended: int | None = None, causal: bool = False
) -> float:
    """FLOPs that a step needs, forward and backward, nothing recomputed: what MFU counts.

    Attention is among ``attended`` tokens each, by default among all of a sequence.

    >>> from ..scenario.model.catalogue import get_model
    >>> round(model_flops(get_model("gpt3-175b"), 64, 2048) / 1e15)  # 72Bslh²(1 + s/6h + V/12lh)
    141
    """
    tokens = float(global_batch * seq_length)
    among = attended or seq_length
    layers = _layers_flops(model, tokens, among, causal=causal)
    last = layer_matrix_flops(model, tokens) + layer_attention_flops(model, tokens, among, causal=causal)
    joined = 2.0 * tokens * joint_elements(model)
    predicted = model.mtp_layers * (last + joined + logits_flops(model, tokens))
    return _FORWARD_AND_BACKWARD * (layers + logits_flops(model, tokens) + predicted)


def _layers_flops(model: Model, tokens: float, seq_length: int, *, causal: bool) -> float:
    """Forward FLOPs of all layers; equal ones are counted together."""
    kinds = Counter((model.has_experts(i), model.window_of(i)) for i in range(model.num_layers))
    first = {(model.has_experts(i), model.window_of(i)): i for i in reversed(range(model.num_layers))}
    return sum(
        count
        * (
            layer_matrix_flops(model, tokens, first[kind])
            + layer_attention_flops(model, tokens, seq_length, causal=causal, layer=first[kind])
        )
        for kind, count in kinds.items()
    )
