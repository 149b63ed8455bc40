"""Selective recomputation by operators: some outputs of a layer are kept, all else is run again.

What torch's selective checkpointing does with torchtitan's policy: matrix products are counted in the
order in which a layer runs them and every second is run again (``every_second_mm``), or all are kept
(``mm``); a router's product is neither counted nor kept. Q, K and V are three products there, the two
branches of a gated MLP are two. Recomputation stops once it has made the last input that backward reads, so
that the last product of an MLP or of experts is never run again, nor the exchange that brings rows home.

References:
    torchtitan distributed/activation_checkpoint.py (_apply_op_sac; early_stop;
    per_op_sac_force_recompute_mm_shapes_by_fqns is moe.router.gate), models/llama4/infra/parallelize.py
    (_op_sac_save_list); torch/utils/checkpoint.py (_StopRecomputationError).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...scenario.software.software import Software
from .attention_core import attention_forward
from .latent import latent_again, latent_products
from .linear import Linear, column_forward
from .moe import arrive, exchange, first_half, route
from .pointwise import activation, norm, norm_quantises, rearrange, residual, rope
from .prediction import join_forward
from .recompute import Recompute, keeps, keeps_attention
from .shard import Shard
from .tape import Tape


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer, the ``elements`` of its output here, the ``operator`` that keeps it."""

    name: str
    elements: float
    operator: str = "mm"


def products(shard: Shard) -> Iterator[Product]:
    """The products of a layer in the order in which forward runs them."""
    tokens = float(shard.tokens)
    if shard.prediction:
        yield Product("joint", tokens * shard.hidden / shard.tp)
    if shard.latent:
        for name, elements in latent_products(shard):
            yield Product(name, elements)
    else:
        yield Product("q", tokens * shard.heads * shard.head_dim)
        yield Product("k", tokens * shard.kv_heads * shard.head_dim)
        yield Product("v", tokens * shard.kv_heads * (shard.value_dim or shard.head_dim))
    yield Product("proj", tokens * shard.hidden)
    experts = shard.experts
    if experts:
        yield Product("router", float(shard.norm_tokens * experts.total), operator="never")
        rows = experts.rows(shard.norm_tokens)
        yield Product("expert fc1", rows * experts.ffn * shard.gate, operator="grouped_mm")
    width = experts.shared_ffn if experts else shard.ffn
    if width:
        for branch in range(shard.gate):
            yield Product(f"fc1 {branch}", tokens * width)
        yield Product("fc2", tokens * shard.hidden)


def kept_products(shard: Shard, recompute: Recompute) -> dict[str, Product]:
    """Products whose outputs stay, by name."""
    kept, position = {}, 0
    for product in products(shard):
        second = False
        if product.operator == "mm":
            position += 1
            second = position % 2 == 0
        if keeps(recompute, product.operator) or (
            product.operator == "mm" and keeps(recompute, "every_second_mm") and not second
        ):
            kept[product.name] = product
    return kept


def operators_again(tape: Tape, shard: Shard, software: Software, recompute: Recompute) -> None:
    """Append what is run again before a layer's backward."""
    kept = kept_products(shard, recompute)
    if shard.prediction and "joint" not in kept:
        join_forward(tape, shard, software)
    norm(tape, shard, software, into_product=not shard.latent)
    if shard.latent:
        latent_again(tape, shard, software, kept)
    else:
        _run_again(tape, _queries_keys_values(shard), shard, software, kept)
    rope(tape, shard, software)
    if not keeps_attention(recompute, software.attention):
        rearrange(tape, shard, software)
        attention_forward(tape, shard, software)
    if "proj" not in kept:
        proj = Linear(name="proj again", inputs=shard.attention_width, outputs=shard.hidden)
        tape.kernel(proj.name, proj.forward(shard))
    if shard.tp > 1 and not keeps(recompute, "reduce_scatter"):
        kind = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
        tape.tp(f"proj again {kind}", kind, shard.hidden_bytes)
    residual(tape, shard, software)
    norm(tape, shard, software, into_product=not shard.experts)
    if shard.experts:
        _experts_again(tape, shard, software, recompute, kept)
    else:
        _branches_again(tape, shard, software, kept, cast=not norm_quantises(shard))


def _experts_again(
    tape: Tape, shard: Shard, software: Software, recompute: Recompute, kept: dict[str, Product]
) -> None:
    """Router, rows sorted, the first product of the experts; the shared ones."""
    assert shard.experts is not None
    if shard.experts.shared_ffn:
        shared = replace(shard, ffn=shard.experts.shared_ffn, experts=None)
        _branches_again(tape, shared, software, kept, cast=True)
    arrived = keeps(recompute, "all_to_all")
    route(tape, shard, software, shared=False, counts=not arrived)
    if not arrived:
        arrive(tape, exchange(tape, shard, "dispatch"))
    first_half(tape, shard, software, product="expert fc1" not in kept)


def _branches_again(
    tape: Tape, shard: Shard, software: Software, kept: dict[str, Product], *, cast: bool
) -> None:
    names = {f"fc1 {branch}": shard.ffn for branch in range(shard.gate)}
    _run_again(tape, names, shard, software, kept, cast=cast)
    activation(tape, shard, software)


def _queries_keys_values(shard: Shard) -> dict[str, int]:
    values = shard.kv_heads * (shard.value_dim or shard.head_dim)
    return {"q": shard.heads * shard.head_dim, "k": shard.kv_heads * shard.head_dim, "v": values}


def _run_again(
    tape: Tape,
    widths: dict[str, int],
    shard: Shard,
    software: Software,
    kept: dict[str, Product],
    *,
    cast: bool | None = None,
) -> None:
    """Those of column-parallel products of one input that are not ``kept``, by name and columns."""
    again = tuple(
        Linear(name=f"{name} again", inputs=shard.hidden, outputs=width)
        for name, width in widths.items()
        if name not in kept
    )
    if again:
        column_forward(tape, again, shard, software, cast=not norm_quantises(shard) if cast is None else cast)
