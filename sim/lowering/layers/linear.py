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
from dataclasses import dataclass

from ....kernels.kernel import Gemm
from ...scenario.software.software import Software
from .shard import Shard
from .tape import Tape

PIPELINED_SPLITS = 4  # TransformerEngine's num_splits of GEMM + reduce-scatter


@dataclass(frozen=True, kw_only=True)
class Linear:
    """One weight matrix of ``inputs`` x ``outputs``, as held by this rank."""

    name: str
    inputs: int
    outputs: int

    def forward(self, shard: Shard, rows: int | None = None) -> Gemm:
        """Y = X W; ``rows`` of the activation only where a chunk is meant."""
        return _gemm(shard, rows or shard.tokens, self.outputs, self.inputs)

    def input_grad(self, shard: Shard, rows: int | None = None) -> Gemm:
        """dX = dY W^T."""
        return _gemm(shard, rows or shard.tokens, self.inputs, self.outputs)

    def weight_grad(self, shard: Shard, software: Software) -> Gemm:
        """dW = X^T dY, added into the main gradient where the software's GEMM can."""
        fused = software.fused_wgrad_accumulation and shard.accumulates
        return Gemm(
            m=self.outputs,
            n=self.inputs,
            k=shard.tokens,
            dtype=shard.gemm_dtype,
            out_bytes=shard.grad_bytes if fused else shard.element_bytes,
            accumulate=fused,
        )


def _gemm(shard: Shard, m: int, n: int, k: int) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=shard.gemm_dtype, out_bytes=shard.element_bytes)


def column_forward(
    tape: Tape, linears: tuple[Linear, ...], shard: Shard, software: Software, *, cast: bool = True
) -> None:
    """Y = gather(X) W for each matrix; the input is quantised and gathered once.

    ``cast``: the input comes in 16 bit; a norm before it may have quantised it already.
    """
    first, *others = linears
    kept_whole = not (shard.sequence_parallel and software.sp_regathers_input)
    if cast:
        quantise(tape, shard.norm_tokens * shard.hidden, shard)
    if not shard.sequence_parallel:
        tape.kernel(first.name, first.forward(shard))
    elif not software.tp_comm_overlap:
        tape.tp(f"{first.name} all_gather", "all_gather", _wire_bytes(shard))
        tape.kernel(first.name, first.forward(shard))
    else:
        _gathered_gemm(tape, first.name, first.forward, shard, software)
    for linear in others:
        tape.kernel(linear.name, linear.forward(shard))
    if kept_whole:
        transpose(tape, shard.tokens * shard.hidden, shard)


def row_forward(tape: Tape, linear: Linear, shard: Shard, software: Software) -> None:
    """Y = reduce(X W)."""
    quantise(tape, shard.tokens * linear.inputs, shard)
    transpose(tape, shard.tokens * linear.inputs, shard)
    if shard.sequence_parallel and software.tp_comm_overlap and software.tp_overlap_style == "userbuffers":
        for _ in range(PIPELINED_SPLITS):
            tape.kernel(linear.name, linear.forward(shard, -(-shard.tokens // PIPELINED_SPLITS)))
            last = tape.tp(
                f"{linear.name} reduce_scatter",
                "reduce_scatter",
                shard.hidden_bytes / PIPELINED_SPLITS,
                wait=False,
            )
        tape.join(last)
        return
    tape.kernel(linear.name, linear.forward(shard))
    if shard.tp > 1:
        kind = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
        tape.tp(f"{linear.name} {kind}", kind, shard.hidden_bytes)


def column_backward(tape: Tape, linears: tuple[Linear, ...], shard: Shard, software: Software) -> None:
    """dX = reduce(dY W^T) beside dW; under sequence parallelism X is gathered again beside dX.

    Several matrices on one input: without sequence parallelism each reduces its own dX (each is a
    column-parallel layer by itself); with it their sum is reduced once, behind the shared gather.
    """
    overlaps = software.tp_async_backward
    gathered = None
    if shard.sequence_parallel and software.sp_regathers_input:
        name = f"{linears[0].name} all_gather"
        gathered = tape.tp(name, "all_gather", _wire_bytes(shard), wait=not overlaps)
    _quantise_output_gradients(tape, linears, shard)
    reduced: list[int] = []
    for position, linear in enumerate(linears, 1):
        tape.kernel(f"{linear.name} dgrad", linear.input_grad(shard))
        last = position == len(linears)
        if shard.tp > 1 and (last or not shard.sequence_parallel):
            kind = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
            reduced.append(
                tape.tp(f"{linear.name} dgrad {kind}", kind, shard.hidden_bytes, wait=not overlaps)
            )
    for _ in linears[1:]:
        tape.memory("input gradient add", 3 * shard.hidden_bytes)
    if gathered is not None:
        tape.join(gathered)
        transpose(tape, shard.tokens * shard.hidden, shard)
    for linear in linears:
        _weight_grad(tape, linear, shard, software)
    tape.join(*reduced)


def column_input_grad(tape: Tape, linears: tuple[Linear, ...], shard: Shard, software: Software) -> None:
    """dX = reduce(dY W^T) alone: with dW put off, nothing runs beside its reduction."""
    _quantise_output_gradients(tape, linears, shard)
    for position, linear in enumerate(linears, 1):
        tape.kernel(f"{linear.name} dgrad", linear.input_grad(shard))
        if shard.tp > 1 and (position == len(linears) or not shard.sequence_parallel):
            kind = "reduce_scatter" if shard.sequence_parallel else "all_reduce"
            tape.tp(f"{linear.name} dgrad {kind}", kind, shard.hidden_bytes)
    for _ in linears[1:]:
        tape.memory("input gradient add", 3 * shard.hidden_bytes)


def column_weight_grad(tape: Tape, linears: tuple[Linear, ...], shard: Shard, software: Software) -> None:
    """dW = gather(X)^T dY alone, from the input and the output gradient that were kept for it."""
    if shard.sequence_parallel and software.sp_regathers_input:
        tape.tp(f"{linears[0].name} all_gather", "all_gather", _wire_bytes(shard))
        transpose(tape, shard.tokens * shard.hidden, shard)
    for linear in linears:
        _weight_grad(tape, linear, shard, software)


def row_backward(tape: Tape, linear: Linear, shard: Shard, software: Software) -> None:
    """dX = gather(dY) W^T, then dW."""
    row_input_grad(tape, linear, shard, software)
    row_weight_grad(tape, linear, shard, software)


def row_input_grad(tape: Tape, linear: Linear, shard: Shard, software: Software) -> None:
    """dX = gather(dY) W^T alone; the gathered dY is kept for dW."""
    quantise(tape, shard.norm_tokens * linear.outputs, shard)
    if not shard.sequence_parallel:
        tape.kernel(f"{linear.name} dgrad", linear.input_grad(shard))
    elif not software.tp_comm_overlap:
        tape.tp(f"{linear.name} dY all_gather", "all_gather", _wire_bytes(shard, both=True))
        tape.kernel(f"{linear.name} dgrad", linear.input_grad(shard))
    else:
        _gathered_gemm(tape, f"{linear.name} dgrad", linear.input_grad, shard, software, both=True)
    transpose(tape, shard.tokens * linear.outputs, shard)


def row_weight_grad(tape: Tape, linear: Linear, shard: Shard, software: Software) -> None:
    """dW = X^T dY alone."""
    _weight_grad(tape, linear, shard, software)


def _quantise_output_gradients(tape: Tape, linears: tuple[Linear, ...], shard: Shard) -> None:
    for linear in linears:
        quantise(tape, shard.tokens * linear.outputs, shard)
        transpose(tape, shard.tokens * linear.outputs, shard)


def quantise(tape: Tape, elements: float, shard: Shard) -> None:
    """From 16 bit to the recipe's type, in both layouts where only the original gives the second.

    Without elements too (experts that no token reached): blocks of ranks that meet have the same ops.
    """
    recipe = shard.recipe
    if recipe:
        per_element = recipe.cast + (recipe.second if recipe.early else 0)
        tape.memory("quantise", elements * per_element, launches=recipe.launches)


def transpose(tape: Tape, elements: float, shard: Shard) -> None:
    """The other layout of what is quantised, which the weight gradient's product wants."""
    if shard.recipe and shard.recipe.second and not shard.recipe.early:
        tape.memory("transpose quantised", elements * shard.recipe.second)


def _wire_bytes(shard: Shard, *, both: bool = False) -> float:
    """Bytes of a gathered activation: quantised before it is gathered; ``both`` copies are wanted of dY."""
    if shard.recipe is None:
        return shard.hidden_bytes
    per_element = shard.recipe.gathered if both else shard.recipe.stored
    return shard.tokens * shard.hidden * per_element


def _gathered_gemm(
    tape: Tape,
    name: str,
    gemm: Callable[[Shard, int], Gemm],
    shard: Shard,
    software: Software,
    *,
    both: bool = False,
) -> None:
    """An all-gather overlapped with the GEMM that needs it.

    userbuffers: tp chunks travel around a ring while the chunk at hand is multiplied.
    local-shard: the own rows are multiplied during the gather, then the rows before and after.
    """
    rows = -(-shard.tokens // shard.tp)
    if software.tp_overlap_style == "local-shard":
        gathered = tape.tp(f"{name} all_gather", "all_gather", _wire_bytes(shard, both=both), wait=False)
        tape.kernel(name, gemm(shard, rows))
        tape.join(gathered)
        pieces = 1 if shard.tp == 2 else 2
        for _ in range(pieces):
            tape.kernel(name, gemm(shard, max(1, rows * (shard.tp - 1) // pieces)))
        return
    arrived: int | None = None
    for chunk in range(shard.tp):
        if arrived is not None:
            tape.join(arrived)
        if chunk < shard.tp - 1:
            before = tape.last_kernel() if arrived is None else arrived
            arrived = tape.tp(
                f"{name} ring all_gather",
                "ring_step",
                _wire_bytes(shard, both=both) / shard.tp,
                after=before,
                wait=False,
            )
            # the send of the chunk at hand does not hold up its GEMM
        tape.kernel(name, gemm(shard, rows))


def _weight_grad(tape: Tape, linear: Linear, shard: Shard, software: Software) -> None:
    rate = software.fp8_wgrad_rate if shard.recipe else 1.0
    tape.kernel(f"{linear.name} wgrad", linear.weight_grad(shard, software), rate=rate)
    accumulate_gradient(tape, linear.inputs * linear.outputs, shard, software)


def accumulate_gradient(
    tape: Tape, parameters: float, shard: Shard, software: Software, *, fused: bool | None = None
) -> None:
    """Add a fresh 16-bit gradient into the main gradient, where the GEMM did not: read both, write one.

    Cast first, it is written and read once more, in the main gradient's type. ``fused``: whether the GEMM
    did, where that is not what the software does for a layer's matrices.
    """
    if fused is None:
        fused = software.fused_wgrad_accumulation
    if shard.accumulates and not fused:
        casts = software.casts_fresh_gradients and shard.grad_bytes != shard.element_bytes
        passes = 4 if casts else 2
        traffic = parameters * (shard.element_bytes + passes * shard.grad_bytes)
        tape.memory("accumulate gradient", traffic, launches=2 if casts else 1)
