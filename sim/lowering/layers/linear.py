"""Column- and row-parallel linear layers: their GEMMs and the tensor-parallel collectives around them.

Without sequence parallelism a column-parallel layer all-reduces its input gradient and a
row-parallel one its output. With it, the input is all-gathered and the output reduce-scattered,
and backward does the reverse (Korthikanti 2022, section 4.2.2). How much of that runs beside a
GEMM is left to the streams.

References:
    Shoeybi et al. 2019, arXiv:1909.08053, section 3. Korthikanti et al. 2022, arXiv:2205.05198.
    TransformerEngine, module/base.py, userbuffers defaults: ring exchange, pipelined, bulk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ....kernels.kernel import Gemm
from ...scenario.software.software import Software
from .autocast import (
    cast_row_gradients,
    cast_rows,
    cast_weight_gradient,
    cast_weights,
    issued_by_gradient_cast,
)
from .issued import NOTHING
from .layer_builder import LayerBuilder
from .local_shape import LocalShape, regathers_input
from .quantise import Maker, activation_quantises, lay_out_scales, quantise, transpose

PIPELINED_SPLITS = 4  # TransformerEngine's num_splits of GEMM + reduce-scatter

SEND_AND_RECEIVE = 3
"""Launches of a step around userbuffers' ring, by the call that launches the GEMMs, and no call of
torch's: a copy by a copy engine, the signal behind it, the wait for the neighbour's (TransformerEngine
comm_gemm_overlap.cpp; userbuffers.cu: userbuffers_send with use_ce, the default, and userbuffers_recv)."""

OPERATORS = 4
"""Operators that torch runs for one GEMM of a linear layer on distributed tensors: the weight transposed,
rows folded, the GEMM, rows unfolded (aten native/LinearAlgebra.cpp, _matmul_impl). Each of the two
gradients takes as many."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """One weight matrix of ``inputs`` x ``outputs``, as held by this rank."""

    name: str
    inputs: int
    outputs: int
    joined: int = 1
    """Matrices that it stands for, as queries, keys and values are one GEMM."""
    dtype: str = ""
    """Type of its GEMMs, if it is not the layer's."""

    def forward(self, local: LocalShape, rows: int | None = None) -> Gemm:
        """Y = X W; ``rows`` is given where only a chunk of the activation is multiplied."""
        return self._typed(_gemm(local, rows or local.tokens, self.outputs, self.inputs))

    def input_grad(self, local: LocalShape, rows: int | None = None) -> Gemm:
        """dX = dY W^T. In 8 bit, gradients are accumulated precisely and outputs are not: TransformerEngine
        (pytorch/module/base.py, _2X_ACC_DGRAD, _2X_ACC_WGRAD), torchao (float8/config.py, use_fast_accum)."""
        precise = _in_8_bit(local)
        return self._typed(_gemm(local, rows or local.tokens, self.inputs, self.outputs, precise=precise))

    def weight_grad(self, local: LocalShape, software: Software) -> Gemm:
        """dW = X^T dY, added into the main gradient where the software's GEMM can."""
        fused = software.kernels.fused_wgrad_accumulation and local.accumulates
        product = Gemm(
            m=self.outputs,
            n=self.inputs,
            k=local.tokens,
            dtype=local.gemm_dtype,
            out_bytes=local.grad_bytes if fused else local.element_bytes,
            accumulate=fused,
            precise=_in_8_bit(local),
        )
        return self._typed(product)

    def _typed(self, product: Gemm) -> Gemm:
        return replace(product, dtype=self.dtype) if self.dtype else product


def _in_8_bit(local: LocalShape) -> bool:
    return local.gemm_dtype == "fp8"


def _gemm(local: LocalShape, m: int, n: int, k: int, *, precise: bool = False) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=local.gemm_dtype, out_bytes=local.element_bytes, precise=precise)


def column_forward(
    builder: LayerBuilder,
    linears: tuple[Linear, ...],
    *,
    cast: bool = True,
) -> None:
    """Append Y = gather(X) W for each matrix. The input X, a norm's output, is quantised and gathered once
    for all.

    ``cast``: X comes in 16 bit, and is quantised here unless the norm has done so as it wrote it. Otherwise X
    is in the GEMMs' type already.
    """
    local, software = builder.local, builder.software
    first, *others = linears
    kept_whole = not regathers_input(local, software)
    readers = _readers(builder, linears)
    cast_weights(builder, sum(linear.inputs * linear.outputs for linear in linears), readers)
    cast_rows(builder, readers)
    if cast:
        quantise(builder, local.norm_tokens * local.hidden, maker="norm")
    if not local.sequence_parallel:
        _product(builder, first.name, first, first.forward(local))
    elif not software.exchange.tp_comm_overlap:
        builder.tp(f"{first.name} all_gather", "all_gather", _wire_bytes(local))
        _gather_again(builder, first, first.joined - 1)
        _product(builder, first.name, first, first.forward(local))
    else:
        _gathered_gemm(builder, first.name, first.forward)
    for linear in others:
        _gather_again(builder, linear, linear.joined)
        _product(builder, linear.name, linear, linear.forward(local))
    if kept_whole:
        transpose(builder, local.tokens * local.hidden, just_cast=cast and not local.sequence_parallel)


def _readers(builder: LayerBuilder, linears: tuple[Linear, ...]) -> int:
    """How many GEMMs of their own read the same input. Software that keeps both branches of a gate apart
    keeps queries, keys and values apart, too (Transformers modeling_llama.py)."""
    apart = builder.local.split_gate and builder.local.gate == 2
    return sum(linear.joined if apart else 1 for linear in linears)


def _product(
    builder: LayerBuilder, name: str, linear: Linear, gemm: Gemm, *, rate: float = 1.0, weight: bool = True
) -> None:
    """Append one GEMM, and in front of it the kernels that lay out its operands' scales. ``weight``: one
    operand is a weight; otherwise (the weight gradient) both are activations or gradients."""
    operators = OPERATORS * linear.joined
    lay_out_scales(builder, gemm, weight=weight)
    builder.kernel(name, gemm, launches=builder.gemm_launches(1), rate=rate, operators=operators)


def _gather_again(builder: LayerBuilder, linear: Linear, times: int) -> None:
    """Append the all-gathers of further matrices on an input that the software gathers once for each matrix.

    A compiler makes all matrices read the first gather's output, yet runs the other gathers (pytorch issue
    146045).
    """
    if builder.local.sequence_parallel and builder.software.exchange.tp_gathers_each:
        for _ in range(times):
            builder.tp(f"{linear.name} all_gather", "all_gather", _wire_bytes(builder.local))


def row_forward(builder: LayerBuilder, linear: Linear, *, maker: Maker = "other") -> None:
    """Append Y = reduce(X W). ``maker`` names the operation that wrote X, which may have quantised it."""
    local, software = builder.local, builder.software
    cast_weights(builder, linear.inputs * linear.outputs, 1)
    quantise(builder, local.tokens * linear.inputs, maker=maker)
    transpose(builder, local.tokens * linear.inputs, just_cast=True)
    if (
        local.sequence_parallel
        and software.exchange.tp_comm_overlap
        and software.exchange.tp_overlap_style == "userbuffers"
    ):
        lay_out_scales(builder, linear.forward(local), weight=True)
        for _ in range(PIPELINED_SPLITS):
            builder.part(linear.name, linear.forward(local), PIPELINED_SPLITS)
            last = builder.tp(
                f"{linear.name} reduce_scatter",
                "reduce_scatter",
                local.hidden_bytes / PIPELINED_SPLITS,
                wait=False,
                launches=builder.costs.loop.kernel,
            )
        builder.join(last)
        return
    _product(builder, linear.name, linear, linear.forward(local))
    if local.tp > 1:
        kind = "reduce_scatter" if local.sequence_parallel else "all_reduce"
        builder.tp(f"{linear.name} {kind}", kind, local.hidden_bytes)


def column_backward(builder: LayerBuilder, linears: tuple[Linear, ...], *, maker: Maker = "other") -> None:
    """dX = reduce(dY W^T) overlapped with dW; ``maker`` says which operation wrote dY.

    Under sequence parallelism X is gathered again at the same time. Several matrices on one input: without
    sequence parallelism each reduces its own dX, as a column-parallel layer by itself; with it, their sum is
    reduced once, after the shared gather.
    """
    local, software = builder.local, builder.software
    overlaps = software.exchange.tp_async_backward
    gathered = None
    if regathers_input(local, software):
        name = f"{linears[0].name} all_gather"
        gathered = builder.tp(name, "all_gather", _wire_bytes(local), wait=not overlaps)
    _quantise_output_gradients(builder, linears, maker)
    reduced: list[int] = []
    for position, linear in enumerate(linears, 1):
        _product(builder, f"{linear.name} dgrad", linear, linear.input_grad(local))
        for _ in range(_reductions(builder, linear, last=position == len(linears))):
            name = f"{linear.name} dgrad {local.reduction}"
            reduced.append(builder.tp(name, local.reduction, local.hidden_bytes, wait=not overlaps))
    for _ in linears[1:]:
        builder.memory("input gradient add", 3 * local.hidden_bytes)
    if gathered is not None:
        builder.join(gathered)
        transpose(builder, local.tokens * local.hidden)
    cast_row_gradients(builder, _readers(builder, linears), len(linears) - 1)
    for linear in linears:
        _weight_grad(builder, linear)
    builder.join(*reduced)


def _reductions(builder: LayerBuilder, linear: Linear, *, last: bool) -> int:
    """How many reductions of input gradients follow this matrix; matrices on one input may share one."""
    local = builder.local
    if local.tp == 1:
        return 0
    if not local.sequence_parallel:
        return 1
    return linear.joined if builder.software.exchange.tp_gathers_each else int(last)


def column_input_grad(builder: LayerBuilder, linears: tuple[Linear, ...], *, maker: Maker = "other") -> None:
    """Append dX = reduce(dY W^T) alone. Weight gradients are left for later, so that nothing overlaps the
    reduction."""
    local = builder.local
    _quantise_output_gradients(builder, linears, maker)
    for position, linear in enumerate(linears, 1):
        _product(builder, f"{linear.name} dgrad", linear, linear.input_grad(local))
        for _ in range(_reductions(builder, linear, last=position == len(linears))):
            builder.tp(f"{linear.name} dgrad {local.reduction}", local.reduction, local.hidden_bytes)
    for _ in linears[1:]:
        builder.memory("input gradient add", 3 * local.hidden_bytes)


def column_weight_grad(builder: LayerBuilder, linears: tuple[Linear, ...]) -> None:
    """Append dW = gather(X)^T dY, from the stored input and output gradient."""
    local, software = builder.local, builder.software
    if regathers_input(local, software):
        builder.tp(f"{linears[0].name} all_gather", "all_gather", _wire_bytes(local))
        transpose(builder, local.tokens * local.hidden)
    for linear in linears:
        _weight_grad(builder, linear)


def row_backward(builder: LayerBuilder, linear: Linear) -> None:
    """Append dX = gather(dY) W^T, then dW = X^T dY."""
    row_input_grad(builder, linear)
    row_weight_grad(builder, linear)


def row_input_grad(builder: LayerBuilder, linear: Linear) -> None:
    """Append dX = gather(dY) W^T. The gathered dY is kept for the weight gradient."""
    local, software = builder.local, builder.software
    quantise(builder, local.norm_tokens * linear.outputs, gradients=True)
    if not local.sequence_parallel:
        _product(builder, f"{linear.name} dgrad", linear, linear.input_grad(local))
    elif not software.exchange.tp_comm_overlap:
        builder.tp(f"{linear.name} dY all_gather", "all_gather", _wire_bytes(local, both=True))
        _product(builder, f"{linear.name} dgrad", linear, linear.input_grad(local))
    else:
        _gathered_gemm(builder, f"{linear.name} dgrad", linear.input_grad, both=True)
    transpose(builder, local.tokens * linear.outputs, just_cast=not local.sequence_parallel)


def row_weight_grad(builder: LayerBuilder, linear: Linear) -> None:
    """Append dW = X^T dY, from the stored input and the output gradient that was gathered before."""
    _weight_grad(builder, linear)


def _quantise_output_gradients(builder: LayerBuilder, linears: tuple[Linear, ...], maker: Maker) -> None:
    local = builder.local
    for linear in linears:
        quantise(builder, local.tokens * linear.outputs, maker=maker, gradients=True)
        if maker != "activation" or not activation_quantises(builder):  # that wrote both layouts
            transpose(builder, local.tokens * linear.outputs, just_cast=True)


def _wire_bytes(local: LocalShape, *, both: bool = False) -> float:
    """Bytes of an activation on the wire, which is quantised before it is gathered. ``both``: dY is needed in
    both layouts."""
    if local.recipe is None:
        return local.hidden_bytes
    per_element = local.recipe.gathered if both else local.recipe.stored
    return local.tokens * local.hidden * per_element


def _gathered_gemm(
    builder: LayerBuilder,
    name: str,
    gemm: Callable[[LocalShape, int], Gemm],
    *,
    both: bool = False,
) -> None:
    """An all-gather overlapped with the GEMM that needs it.

    userbuffers: tp chunks travel around a ring, and each is multiplied while the next one travels.
    local-shard: a rank's own rows are multiplied during the gather, and the other rows after it.
    """
    local, software = builder.local, builder.software
    rows = -(-local.tokens // local.tp)
    if software.exchange.tp_overlap_style == "local-shard":
        gathered = builder.tp(f"{name} all_gather", "all_gather", _wire_bytes(local, both=both), wait=False)
        builder.kernel(name, gemm(local, rows))
        builder.join(gathered)
        pieces = 1 if local.tp == 2 else 2
        for _ in range(pieces):
            builder.kernel(name, gemm(local, max(1, rows * (local.tp - 1) // pieces)))
        return
    lay_out_scales(builder, gemm(local, local.tokens), weight=True)
    arrived: int | None = None
    for chunk in range(local.tp):
        if arrived is not None:
            builder.join(arrived)
        if chunk < local.tp - 1:
            before = builder.last_kernel() if arrived is None else arrived
            arrived = builder.tp(
                f"{name} ring all_gather",
                "ring_step",
                _wire_bytes(local, both=both) / local.tp,
                after=before,
                wait=False,
                launches=SEND_AND_RECEIVE * builder.costs.loop.kernel,
            )
            # the send of the chunk at hand does not hold up its GEMM
        builder.part(name, gemm(local, local.tokens), local.tp)


def _weight_grad(builder: LayerBuilder, linear: Linear) -> None:
    local, software = builder.local, builder.software
    rate = software.kernels.fp8_wgrad_rate if local.recipe else 1.0
    product = linear.weight_grad(local, software)
    _product(builder, f"{linear.name} wgrad", linear, product, rate=rate, weight=False)
    accumulate_gradient(builder, linear.inputs * linear.outputs)


def accumulate_gradient(
    builder: LayerBuilder,
    parameters: float,
    *,
    fused: bool | None = None,
    fresh_bytes: int | None = None,
) -> None:
    """Append the kernel that adds a fresh gradient to the main gradient (read both, write one), unless the
    GEMM did.

    ``fused``: whether the GEMM did; None: as the software does for a layer's matrices. The fresh gradient is
    of 16 bit, or of ``fresh_bytes``. Where it is cast first, it is written and read once more, in the main
    gradient's type. Where there is no main gradient yet, it is only cast, or taken as it is
    (torch/csrc/autograd/functions/accumulate_grad.h).
    """
    local, software = builder.local, builder.software
    if fused is None:
        fused = software.kernels.fused_wgrad_accumulation
    fresh = fresh_bytes or local.element_bytes
    cast_weight_gradient(builder, parameters, fresh)
    if local.finds_none and not fused:
        if local.accumulates and local.grad_bytes != fresh:
            _cast_gradient(builder, parameters, fresh)
    elif local.accumulates and not fused:
        apart = software.gradients.wrapper == "deepspeed" or local.autocast
        if apart and local.grad_bytes != fresh:
            _cast_gradient(builder, parameters, fresh)
            fresh = local.grad_bytes
        mixed = builder.costs.issued("FP32 plus 16 bits", parameters) if fresh < local.grad_bytes else NOTHING
        traffic = parameters * (fresh + 2 * local.grad_bytes)
        builder.memory("accumulate gradient", traffic, instructions=mixed)


def _cast_gradient(builder: LayerBuilder, parameters: float, fresh: int) -> None:
    """Append the cast of fresh gradients to the type of the main ones."""
    wide = builder.local.grad_bytes
    issued = issued_by_gradient_cast(builder, parameters) if fresh < wide else NOTHING
    builder.memory("gradient cast", parameters * (fresh + wide), instructions=issued)
