"""The memory bill of a pipeline rank beside the formulas of the textbooks, and why they differ.

State, in bytes per parameter: 16 N is 2 of weights, 2 of gradients, 12 of FP32 master weights and Adam's
two moments (Rajbhandari et al. 2019, arXiv:1910.02054, section 3.1); 18 N has FP32 gradients, 20 N both.
ZeRO-1 divides the 12 by the shard group, ZeRO-2 the gradients too, ZeRO-3 all (same, table 1).

Activations, Korthikanti et al. 2022, arXiv:2205.05198, section 4.1, derived: of one layer in 16 bit,
attention keeps 11 s b h + 5 a s^2 b bytes (input of QKV 2, Q and K 4, V 2, output 2, mask of the
dropout 1; softmax output 2, its dropout's mask 1 and output 2 for each of the a s^2 b scores), the MLP
19 s b h (inputs 2 + 8 + 8, mask 1), two norms 4 s b h. In all

    s b h (34 + 5 a s / h),

so that the s stands in the numerator: scores grow with a s^2. Under TP of t: s b h (10 + 24/t + 5 a s/(h t));
with sequence parallelism all of it is divided by t (equations 2 and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...result.step import IDLE
from .why import (
    keeps_no_scores,
    layers_of_an_input,
    why_activations,
    why_gradients,
    why_optimizer,
    why_weights,
)

if TYPE_CHECKING:
    from ...result.step import StageMemory
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class BillLine:
    """One term: what is predicted, what the textbook has (None where it has nothing), its formula, and why
    they differ (empty where they agree)."""

    name: str
    bytes: float
    textbook_bytes: float | None
    formula: str
    why: str


def bill(run: Scenario, stage: StageMemory) -> tuple[BillLine, ...]:
    """Every term of the bill of ``stage``."""
    known = [_weights(run, stage), _gradients(run, stage)]
    known += [_optimizer(run, stage), _activations(run, stage)]
    named = {line.name for line in known}
    others = (
        BillLine(name=name, bytes=size, textbook_bytes=None, formula="", why=WHAT.get(name, ""))
        for name, size in stage.terms.items()
        if name not in named and size
    )
    return (*known, *others)


WHAT = {
    "logits": "logits, probabilities and their gradient at the loss",
    "gathered": "parameters gathered from the shards for the layers at work",
    "workspace": "gathered activations, a layer's widest gradient or keys of other ranks, GEMM workspace",
    "outputs": "what torch.distributed.pipelining keeps of all microbatches: what stages get, and give",
    "flat buffers": "buffers of reductions, gathers and the update that are in one piece",
    IDLE: "free blocks of the stream that reduces gradients, which no other stream is given",
    "communication": "buffers of NCCL's communicators, which are listed below",
    "context": "CUDA context and loaded kernels",
    "allocator": "rounding and fragmentation: a share of all tensors, fitted on reserved memory",
    "in flight": "buffers of collectives that the host has issued ahead of the GPU",
}
"""What the textbook leaves out."""


def _shards(run: Scenario) -> int:
    par = run.parallelism
    return par.shard_ranks if par.zero else 1


def _weights(run: Scenario, stage: StageMemory) -> BillLine:
    parts = _shards(run) if run.parallelism.zero == 3 else 1
    return _state(stage, "weights", _stored_bytes(run), parts, lambda _: why_weights(run))


def _gradients(run: Scenario, stage: StageMemory) -> BillLine:
    parts = _shards(run) if run.parallelism.zero >= 2 else 1
    return _state(
        stage, "gradients", _stored_bytes(run), parts, lambda fewer: why_gradients(run, fewer=fewer)
    )


def _optimizer(run: Scenario, stage: StageMemory) -> BillLine:
    each = 8 if run.training.precision == "fp32" else 12
    return _state(stage, "optimizer", each, _shards(run), lambda _: why_optimizer(run))


def _stored_bytes(run: Scenario) -> int:
    """Bytes of a weight or a gradient in the textbook."""
    return 4 if run.training.precision == "fp32" else 2


def _state(
    stage: StageMemory, name: str, each: int, parts: int, why: Callable[[bool], Iterable[str]]
) -> BillLine:
    """A term of the model's state: ``each`` bytes a parameter in the textbook, over ``parts`` ranks. ``why``
    gives reasons for another size, which may be fewer bytes than the textbook's."""
    textbook, size = each * stage.parameters / parts, stage.terms[name]
    return BillLine(
        name=name,
        bytes=size,
        textbook_bytes=textbook,
        formula=_divided(f"{each} N", parts),
        why="; ".join(why(size < textbook)) if _differs(size, textbook) else "",
    )


def _differs(size: float, textbook: float) -> bool:
    return abs(size - textbook) > 0.01 * textbook


def _divided(formula: str, parts: int) -> str:
    return f"{formula} / {parts}" if parts > 1 else formula


def layer_formula(run: Scenario) -> tuple[float, str]:
    """Bytes of one layer and microbatch by the textbook, and its formula."""
    model, par, training = run.model, run.parallelism, run.training
    s, b, h, t = training.seq_length / par.cp, training.micro_batch, model.hidden_size, par.tp
    a = model.num_attention_heads
    scores = 5 * a * training.seq_length / h
    sharded = t if par.sequence_parallel else 1
    over_t = " / t" if par.sequence_parallel else ""
    if layers := layers_of_an_input(run):
        each = f" / {layers}" if layers > 1 else ""
        return 2 * s * b * h / sharded / layers, f"2 s b h{over_t}{each}"
    if without := keeps_no_scores(run):
        scores = 0.0
    if par.sequence_parallel:
        inside = "34 s b h" if without else "s b h (34 + 5 a s/h)"
        return s * b * h * (34 + scores) / t, f"{inside} / t"
    if t > 1:
        inside = "10 + 24/t" + ("" if without else " + 5 a s/(h t)")
        return s * b * h * (10 + 24 / t + scores / t), f"s b h ({inside})"
    return s * b * h * (34 + scores), "34 s b h" if without else "s b h (34 + 5 a s/h)"


def _activations(run: Scenario, stage: StageMemory) -> BillLine:
    each, formula = layer_formula(run)
    size, textbook = stage.terms["activations"], each * stage.layers_in_flight
    differs = abs(size - textbook) > 0.02 * max(textbook, 1.0)
    return BillLine(
        name="activations",
        bytes=size,
        textbook_bytes=textbook,
        formula=f"{stage.layers_in_flight} layers in flight {TIMES} {formula}",
        why="; ".join(why_activations(run, stage)) if differs else "",
    )


TIMES = "\N{MULTIPLICATION SIGN}"
