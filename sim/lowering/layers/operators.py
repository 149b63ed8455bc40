"""Selective recomputation by operators: some outputs of a layer are kept, all else is run again.

What torch's selective checkpointing does with torchtitan's policy: GEMMs are counted in the
order in which a layer runs them and every second is run again (``every_second_mm``), or all are kept
(``mm``); a router's GEMM is neither counted nor kept. Q, K and V are three GEMMs there, the two
branches of a gated MLP are two. Recomputation stops once it has made the last input that backward reads, so
that the last GEMM of an MLP or of experts is never run again, nor the exchange that brings rows home,
unless rows are weighted after it.

References:
    torchtitan distributed/activation_checkpoint.py (_apply_op_sac; early_stop;
    per_op_sac_force_recompute_mm_shapes_by_fqns is moe.router.gate), models/llama4/infra/parallelize.py
    (_op_sac_save_list); torch/utils/checkpoint.py (_StopRecomputationError).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .attention_core import attention_forward
from .expert_work import first_half, second_half, second_product
from .latent import latent_again, latent_products
from .layer_builder import LayerBuilder
from .linear import Linear, column_forward
from .local_shape import LocalShape
from .moe import await_exchange, exchange, route
from .norms import head_norms, norm, norm_quantises
from .pointwise import activation, rearrange, residual_add, rope, split_heads
from .prediction import join_forward
from .recompute import Recompute, keeps, keeps_attention
from .weighted_rows import weight_rows_at_home_again, weights_rows_at_home, weights_rows_of_experts


@dataclass(frozen=True, slots=True)
class Product:
    """A GEMM of a layer: the ``elements`` of its output on this rank, and the ``operator`` by which a
    policy keeps it."""

    name: str
    elements: float
    operator: str = "mm"


def products(local: LocalShape) -> Iterator[Product]:
    """The GEMMs of a layer in the order of the forward."""
    tokens = float(local.tokens)
    if local.prediction:
        yield Product("joint", tokens * local.hidden / local.tp)
    if local.latent:
        for name, elements in latent_products(local):
            yield Product(name, elements)
    else:
        yield Product("q", tokens * local.heads * local.head_dim)
        yield Product("k", tokens * local.kv_heads * local.head_dim)
        yield Product("v", tokens * local.kv_heads * local.v_head_dim)
    yield Product("proj", tokens * local.hidden)
    experts = local.experts
    if experts:
        yield Product("router", float(local.norm_tokens * experts.total), operator="never")
        rows = experts.rows(local.norm_tokens)
        yield Product("expert fc1", rows * experts.ffn * local.gate, operator="grouped_mm")
    width = experts.shared_ffn if experts else local.ffn
    if width:
        for branch in range(local.gate):
            yield Product(f"fc1 {branch}", tokens * width)
        yield Product("fc2", tokens * local.hidden)


_NAMED = {"q": "qkv", "k": "qkv", "v": "qkv", "proj": "proj"}
"""GEMMs that are kept by a name of their own (MaxText save_qkv_proj, Praxis SAVE_QKV_OUT_PROJ)."""


def kept_products(local: LocalShape, recompute: Recompute) -> dict[str, Product]:
    """The GEMMs whose outputs are kept, by name."""
    kept, position = {}, 0
    for product in products(local):
        second = False
        if product.operator == "mm":
            position += 1
            second = position % 2 == 0
        named = _NAMED.get(product.name, product.operator)
        if (
            keeps(recompute, product.operator)
            or keeps(recompute, named)
            or (product.operator == "mm" and keeps(recompute, "every_second_mm") and not second)
        ):
            kept[product.name] = product
    return kept


def operators_again(builder: LayerBuilder, recompute: Recompute) -> None:
    """Append the operators that run again before a layer's backward."""
    local, software = builder.local, builder.software
    kept = kept_products(local, recompute)
    if local.prediction and "joint" not in kept:
        join_forward(builder)
    norm(builder, into_product=not local.latent)
    if local.latent:
        latent_again(builder, kept)
    else:
        _run_again(builder, _queries_keys_values(local), kept)
    split_heads(builder)
    head_norms(builder)
    rope(builder)
    if not keeps_attention(recompute, software.kernels.attention):
        rearrange(builder)
        attention_forward(builder)
    if "proj" not in kept:
        proj = Linear(name="proj again", inputs=local.attention_width, outputs=local.hidden)
        builder.kernel(proj.name, proj.forward(local))
    if local.tp > 1 and not keeps(recompute, "reduce_scatter"):
        kind = "reduce_scatter" if local.sequence_parallel else "all_reduce"
        builder.tp(f"proj again {kind}", kind, local.hidden_bytes)
    residual_add(builder)
    norm(builder, into_product=not local.experts)
    if local.experts:
        _experts_again(builder, recompute, kept)
    else:
        _branches_again(builder, kept, cast=not norm_quantises(local))


def _experts_again(
    builder: LayerBuilder,
    recompute: Recompute,
    kept: dict[str, Product],
) -> None:
    """Append what runs again of router, permutation, the experts' first GEMM, and shared experts."""
    local = builder.local
    assert local.experts is not None
    if local.experts.shared_ffn:
        shared = replace(local, ffn=local.experts.shared_ffn, experts=None)
        _branches_again(builder.on(shared), kept, cast=True)
    arrived = keeps(recompute, "all_to_all")
    route(builder, shared=False, counts=not arrived)  # an all-to-all, too, in torchtitan's list of what stays
    if not arrived:
        await_exchange(builder, exchange(builder, "dispatch"))
    first_half(builder, product="expert fc1" not in kept)
    if weights_rows_of_experts(builder.software):  # their gradient reads them as the second GEMM gave them
        second_product(builder, product="expert fc1" not in kept)
    if weights_rows_at_home(
        builder.software
    ):  # and these when they are home: all of the experts' forward runs
        second_half(builder, product="expert fc1" not in kept)
        if not arrived:
            await_exchange(builder, exchange(builder, "combine"))
        weight_rows_at_home_again(builder)


def _branches_again(builder: LayerBuilder, kept: dict[str, Product], *, cast: bool) -> None:
    local = builder.local
    names = {f"fc1 {branch}": local.ffn for branch in range(local.gate)}
    _run_again(builder, names, kept, cast=cast)
    activation(builder)


def _queries_keys_values(local: LocalShape) -> dict[str, int]:
    values = local.kv_heads * local.v_head_dim
    return {"q": local.heads * local.head_dim, "k": local.kv_heads * local.head_dim, "v": values}


def _run_again(
    builder: LayerBuilder,
    widths: dict[str, int],
    kept: dict[str, Product],
    *,
    cast: bool | None = None,
) -> None:
    """Append the column-parallel GEMMs on one input that are not ``kept``; ``widths`` are their output
    columns by name."""
    local = builder.local
    again = tuple(
        Linear(name=f"{name} again", inputs=local.hidden, outputs=width)
        for name, width in widths.items()
        if name not in kept
    )
    if again:
        column_forward(builder, again, cast=not norm_quantises(local) if cast is None else cast)
