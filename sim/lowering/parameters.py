"""The parameters of a model as a list: what each part of a layer and each end of the model holds on one rank.

Everything that counts parameters reads these lists: the model's size and FLOPs (with a local shape that
nothing cuts), gradient buckets, the optimizer's work, and the memory bill. Shapes are local, outputs first,
as torch has them. Knows tensor and expert parallelism, which cut tensors; data parallelism copies them, and
how copies are sharded is sharding/rows.py's.

References:
    Megatron-LM core/transformer: attention.py, multi_latent_attention.py, mlp.py, moe/router.py,
    moe/experts.py (one matrix an expert), multi_token_prediction.py; core/tensor_parallel/layers.py
    (column-parallel biases are cut, row-parallel ones are whole).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layers.experts import Experts
    from .layers.local_shape import LocalShape

DENSE, OF_EXPERTS = ("cp", "dp"), ("edp",)
"""Axes along which ranks hold the same parameter, and sum its gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """``count`` tensors of one ``shape`` on this rank (experts and the branches of an MLP are several).

    The ranks of the axes ``sharded_over`` hold different parts along dimension ``cut``; those of
    ``replicated_over`` hold the same.
    """

    name: str
    shape: tuple[int, ...]
    sharded_over: tuple[str, ...] = ()
    replicated_over: tuple[str, ...] = DENSE
    cut: int = 0
    count: int = 1

    @property
    def elements(self) -> int:
        """Elements of all ``count`` tensors."""
        return self.count * math.prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it has rows and columns: norms and biases have not."""
        return len(self.shape) == 2


def layer_parameters(shape: LocalShape) -> tuple[Parameter, ...]:
    """All parameters of one layer, in the order in which forward meets their part."""
    prediction = prediction_parameters(shape) if shape.prediction else ()
    attention = latent_parameters(shape) if shape.latent else attention_parameters(shape)
    feed_forward = experts_parameters(shape, shape.experts) if shape.experts else mlp_parameters(shape)
    return (
        *prediction,
        *norm_parameters("attention norm", shape),
        *attention,
        *norm_parameters("mlp norm", shape),
        *feed_forward,
    )


def attention_parameters(shape: LocalShape) -> Iterator[Parameter]:
    """Queries, keys and values, each by itself however they are stored, and the projection back."""
    h, keys = shape.hidden, shape.kv_heads * shape.head_dim // shape.kv_sharers
    values = shape.kv_heads * shape.v_head_dim // shape.kv_sharers
    for name, width in (("query", shape.heads * shape.head_dim), ("key", keys), ("value", values)):
        yield Parameter(name=name, shape=(width, h), sharded_over=("tp",))
        if shape.has_qkv_biases:
            yield Parameter(name=f"{name} bias", shape=(width,), sharded_over=("tp",))
        if shape.qk_norm and name != "value":
            yield Parameter(name=f"{name} norm", shape=(shape.head_dim,))  # one for all heads
    yield from _projection(shape)


def latent_parameters(shape: LocalShape) -> Iterator[Parameter]:
    """Multi-head latent attention: matrices down to latents are whole on every rank, those up are cut."""
    h, latent = shape.hidden, shape.latent
    assert latent is not None
    queries, rank = shape.heads * shape.head_dim, latent.q_lora_rank
    if rank is None:
        yield Parameter(name="query", shape=(queries, h), sharded_over=("tp",))
    else:
        yield Parameter(name="query down", shape=(rank, h))
        yield Parameter(name="query latent norm", shape=(rank,))
        yield Parameter(name="query up", shape=(queries, rank), sharded_over=("tp",))
    rank = latent.kv_lora_rank
    yield Parameter(name="key and value down", shape=(rank + latent.qk_rope_head_dim, h))
    yield Parameter(name="key and value latent norm", shape=(rank,))
    width = shape.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    yield Parameter(name="key and value up", shape=(width, rank), sharded_over=("tp",))
    yield from _projection(shape)


def _projection(shape: LocalShape) -> Iterator[Parameter]:
    width = shape.attention_width
    yield Parameter(name="projection", shape=(shape.hidden, width), sharded_over=("tp",), cut=1)
    if shape.biases:
        yield Parameter(name="projection bias", shape=(shape.hidden,))


def mlp_parameters(shape: LocalShape) -> Iterator[Parameter]:
    """A dense MLP: the branches on its input, in one matrix or one each, and the matrix back."""
    yield from _branches("mlp", shape, shape.ffn, ("tp",))
    if shape.biases:
        yield Parameter(name="mlp in bias", shape=(shape.gate * shape.ffn,), sharded_over=("tp",))
        yield Parameter(name="mlp out bias", shape=(shape.hidden,))


def experts_parameters(shape: LocalShape, experts: Experts) -> Iterator[Parameter]:
    """The router, the shared experts, which have no biases, and the routed experts held here."""
    yield router_parameters(shape, experts)
    if experts.shared_ffn:
        yield from _branches("shared expert", shape, experts.shared_ffn, ("tp",))
    yield from routed_parameters(shape, experts)


def router_parameters(shape: LocalShape, experts: Experts) -> Parameter:
    """The matrix of the router, which every rank holds whole."""
    return Parameter(name="router", shape=(experts.total, shape.hidden))


def routed_parameters(shape: LocalShape, experts: Experts) -> Iterator[Parameter]:
    """Routed experts, a matrix of its own for each; cut over etp where experts have tensor parallelism."""
    axes, held = ("ep", "etp"), experts.held
    yield from _branches("expert", shape, experts.ffn, axes, OF_EXPERTS, held)
    if shape.biases:
        for name, width in (("expert in bias", shape.gate * experts.ffn), ("expert out bias", shape.hidden)):
            yield Parameter(
                name=name, shape=(width,), sharded_over=axes, replicated_over=OF_EXPERTS, count=held
            )


def _branches(
    name: str,
    shape: LocalShape,
    width: int,
    axes: tuple[str, ...],
    copies: tuple[str, ...] = DENSE,
    count: int = 1,
) -> Iterator[Parameter]:
    """The matrices of an MLP, or of ``count`` of them."""
    branches = shape.gate if shape.split_gate else 1
    rows = width * shape.gate // branches
    yield Parameter(
        name=f"{name} in",
        shape=(rows, shape.hidden),
        sharded_over=axes,
        replicated_over=copies,
        count=branches * count,
    )
    yield Parameter(
        name=f"{name} out",
        shape=(shape.hidden, width),
        sharded_over=axes,
        replicated_over=copies,
        cut=1,
        count=count,
    )


def prediction_parameters(shape: LocalShape) -> Iterator[Parameter]:
    """What multi-token prediction adds to a layer: norms of both streams and the output, the projection."""
    for name in ("stream norm", "embedding norm", "output norm"):
        yield from norm_parameters(name, shape)
    joint = (shape.hidden // shape.tp, 2 * shape.hidden)
    yield Parameter(name="joint projection", shape=joint, sharded_over=("tp",))


def norm_parameters(name: str, shape: LocalShape) -> Iterator[Parameter]:
    """A weight as wide as the residual stream; LayerNorm has a bias too."""
    yield Parameter(name=name, shape=(shape.hidden,))
    if not shape.rms_norm:
        yield Parameter(name=f"{name} bias", shape=(shape.hidden,))


def table_parameter(name: str, shape: LocalShape) -> Parameter:
    """The embedding table, or the head that has its shape: rows of the vocabulary are cut over tp."""
    return Parameter(name=name, shape=(shape.vocabulary, shape.hidden), sharded_over=("tp",))


def position_parameters(shape: LocalShape, positions: int) -> Iterator[Parameter]:
    """A learned table of ``positions``, whole on every rank."""
    if positions:
        yield Parameter(name="position", shape=(positions, shape.hidden))


def count_of(parameters: Iterable[Parameter]) -> int:
    """Elements of all ``parameters`` together."""
    return sum(parameter.elements for parameter in parameters)


def matrices_of(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The parameters with rows and columns: what GEMMs run on."""
    return tuple(parameter for parameter in parameters if parameter.is_matrix)
