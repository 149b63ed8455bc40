"""FLOPs of the operators that backward recomputes: what HFU counts beyond the FLOPs that a step needs (MFU).

Knows which modules and operators are recomputed in a layer; not which layers are. Conventions are those of
sizes.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .layers.kinds import kind_of
from .parameters import OF_EXPERTS, Parameter, matrices_of
from .sizes import joint_elements, layer_attention_flops, layer_matrix_flops, met, whole_layer

if TYPE_CHECKING:
    from ..scenario.model.model import Model

MODULES = {
    "moe": ("router", "shared expert", "expert"),
    "shared_experts": ("shared expert",),
    "mlp": ("mlp",),
    "mla_up_proj": ("query up", "key and value up"),
}
"""By the name of a module, how the names of its parameters begin."""


def recomputed_layer_flops(
    model: Model,
    tokens: float,
    seq_length: int,
    layer: int,
    *,
    modules: Collection[str] = (),
    keep: Collection[str] | None = None,
    prediction: bool = False,
    causal: bool = False,
    stops_early: bool = False,
    rows_read: bool = False,
) -> float:
    """FLOPs of recomputing layer number ``layer`` once, for ``tokens`` tokens of all sequences.

    ``modules`` run again (``full`` is all of it, but the last GEMM of a dense layer where recomputation
    ``stops_early``); or, where ``keep`` is given, all operators but those (by_operators), the last GEMM of
    experts too where backward has ``rows_read`` that came home. A layer of multi-token ``prediction`` makes
    its stream of two first.
    """
    attention = layer_attention_flops(model, tokens, seq_length, causal=causal, layer=layer)
    joint = joint_elements(model) if prediction else 0
    if keep is not None:
        matrices = _operators_again(model, layer, joint, keep, rows_read)
        return 2.0 * tokens * matrices + (0.0 if "attention" in keep else attention)
    if "full" in modules:
        last = _last_product(model, layer) if stops_early else 0
        return layer_matrix_flops(model, tokens, layer) + attention + 2.0 * tokens * (joint - last)
    again = 2.0 * tokens * _modules_again(model, layer, modules)
    return again + (attention if "core_attn" in modules else 0.0)


def _last_product(model: Model, layer: int) -> int:
    """Parameters of the matrix back of a dense layer's MLP; none of a layer with experts."""
    listed = whole_layer(model, kind_of(model, layer))
    return met(model, [each for each in listed if each.name == "mlp out"])


def _modules_again(model: Model, layer: int, modules: Collection[str]) -> int:
    """Parameters whose GEMMs a token passes again, if modules are recomputed."""
    names = tuple(name for module in modules for name in MODULES.get(module, ()))
    listed = whole_layer(model, kind_of(model, layer))
    return met(model, [each for each in listed if names and each.name.startswith(names)])


def _operators_again(model: Model, layer: int, joint: int, keep: Collection[str], rows_read: bool) -> int:
    """Parameters that a token meets again in GEMMs whose outputs are not kept; the last GEMM of
    an MLP is never needed again, that of experts where ``rows_read``.

    The order is that in which they run; router and routed experts are no plain GEMMs.
    """
    listed = matrices_of(whole_layer(model, kind_of(model, layer)))
    last = ["mlp out", "shared expert out"] + ["expert out"] * (not rows_read)
    wanted = [each for each in listed if each.name not in last]
    plain = [each for each in wanted if each.name != "router" and each.replicated_over != OF_EXPERTS]
    counted = [joint] * bool(joint) + [
        each.elements // each.count for each in plain for _ in range(each.count)
    ]
    every = 1 if "mm" in keep else 2 if "every_second_mm" in keep else 0
    again = sum(size for i, size in enumerate(counted) if not every or i % every)
    return again + met(model, [each for each in wanted if each not in plain and not _kept(each, keep)])


def _kept(parameter: Parameter, keep: Collection[str]) -> bool:
    return parameter.replicated_over == OF_EXPERTS and "grouped_mm" in keep
