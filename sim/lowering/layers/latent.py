"""Projections of latent attention: down to the latents of queries and of keys and values, and up to heads.

The matrices down are whole on every rank and work on its rows of the residual stream; those up are
column-parallel, so that under sequence parallelism only the latents are gathered. Knows no attention core.

References:
    DeepSeek-AI 2024, arXiv:2405.04434 section 2.1. Megatron-LM multi_latent_attention.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .layer_builder import LayerBuilder
from .linear import (
    Linear,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
    row_input_grad,
    row_weight_grad,
)
from .local_shape import LocalShape


@dataclass(frozen=True, kw_only=True)
class _Path:
    """One way from the residual stream to the heads: through a latent, or, without ``down``, by one matrix.

    ``rank`` is the width of the latent that is normed and projected up. ``along`` is the width of what the
    matrix down makes beside the latent: the rotary part of keys, which is neither normed nor projected.
    """

    down: Linear | None
    up: Linear
    rank: int
    along: int = 0


def _paths(local: LocalShape) -> Iterator[_Path]:
    latent, h = local.latent, local.hidden
    assert latent is not None
    queries, rank = local.heads * local.head_dim, latent.q_lora_rank
    if rank is None:
        yield _Path(down=None, up=Linear(name="q", inputs=h, outputs=queries), rank=h)
    else:
        down = Linear(name="q down", inputs=h, outputs=rank)
        yield _Path(down=down, up=Linear(name="q up", inputs=rank, outputs=queries), rank=rank)
    rank, along = latent.kv_lora_rank, latent.qk_rope_head_dim
    up = Linear(
        name="kv up", inputs=rank, outputs=local.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    )
    yield _Path(down=Linear(name="kv down", inputs=h, outputs=rank + along), up=up, rank=rank, along=along)


def latent_forward(builder: LayerBuilder) -> None:
    """Append the projections of queries, keys and values of all local heads, with the norms of their
    latents."""
    local = builder.local
    for path in _paths(local):
        if path.down:
            builder.kernel(path.down.name, path.down.forward(local.here), launches=builder.gemm_launches(1))
        latent_up(builder, path)


def latent_up(builder: LayerBuilder, path: _Path) -> None:
    """Append the norm of one latent and its matrix up: the part that is run again where only up-projections
    are recomputed."""
    local = builder.local
    if path.down:
        builder.memory("latent norm", 2.0 * local.norm_tokens * path.rank * local.element_bytes)
    column_forward(builder.on(_of_width(local, path)), (path.up,))


def up_projections(builder: LayerBuilder) -> None:
    """Append the recomputation of all norms of latents and matrices up."""
    local = builder.local
    for path in _paths(local):
        if path.down:
            latent_up(builder, path)


def latent_products(local: LocalShape) -> Iterator[tuple[str, float]]:
    """The name of each GEMM of the projections, in its order, and the elements of its output on this rank."""
    for path in _paths(local):
        if path.down:
            yield path.down.name, float(local.norm_tokens * path.down.outputs)
        yield path.up.name, float(local.tokens * path.up.outputs)


def latent_again(builder: LayerBuilder, kept: Collection[str]) -> None:
    """Append the recomputation of all projections but the GEMMs whose outputs are ``kept``, by name."""
    local = builder.local
    for path in _paths(local):
        if path.down and path.down.name not in kept:
            builder.kernel(
                f"{path.down.name} again", path.down.forward(local.here), launches=builder.gemm_launches(1)
            )
        if path.down:
            builder.memory("latent norm", 2.0 * local.norm_tokens * path.rank * local.element_bytes)
        if path.up.name not in kept:
            column_forward(builder.on(_of_width(local, path)), (path.up,))


def latent_backward(builder: LayerBuilder, *, split: bool) -> None:
    """Append the gradients of the residual stream and, unless ``split``, of the matrices."""
    local = builder.local
    column = column_input_grad if split else column_backward
    paths = tuple(_paths(local))
    for path in paths:
        column(builder.on(_of_width(local, path)), (path.up,))
        if path.down:
            builder.memory("latent norm backward", 3.0 * local.norm_tokens * path.rank * local.element_bytes)
            row_input_grad(builder.on(local.here), path.down)
            if not split:
                row_weight_grad(builder.on(local.here), path.down)
    builder.memory("input gradient add", 3 * local.norm_bytes)


def latent_weight_grad(builder: LayerBuilder) -> None:
    """Append the gradients of the matrices, which a split backward left for later."""
    local = builder.local
    for path in _paths(local):
        column_weight_grad(builder.on(_of_width(local, path)), (path.up,))
        if path.down:
            row_weight_grad(builder.on(local.here), path.down)


def latent_elements(local: LocalShape) -> float:
    """Elements of the latents that backward needs: as they come down, and normed."""
    return float(sum(local.norm_tokens * (2 * path.rank + path.along) for path in _paths(local) if path.down))


def _of_width(local: LocalShape, path: _Path) -> LocalShape:
    """The local shape of a column-parallel matrix whose input is the latent: that is what TP gathers."""
    return local.with_(hidden=path.rank + path.along)
