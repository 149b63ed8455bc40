"""Facts of the software that fit the work of a step: what nothing would read is refused.

Knows which precision reads how tensors are scaled, and what compiled blocks hold. Presets state facts for
every precision; only what a document itself states is held against its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from .blocks import Parallelism, Training
    from .frameworks import Lookup
    from .model.model import Model
    from .software.software import Software

_SCALING = "software.kernels.fp8_scaling"


def scaling_is_read(stated: Lookup, training: Training) -> Iterator[Finding]:
    """How FP8 is scaled is for precision fp8 alone; MXFP8 and NVFP4 say it by their names. ``stated`` finds
    what the document says. A stack without a preset says all that it has, as a preset does."""
    scaling = stated(_SCALING)
    if scaling is not None and stated("software.preset") is not None and training.precision != "fp8":
        yield Finding(
            path=tuple(_SCALING.split(".")),
            message=f"{scaling} is for precision fp8, and training.precision is {training.precision};"
            " leave it out, or set precision to fp8",
        )


_OF_EXPERTS = {
    "software.kernels.expert_operators": "library",
    "software.kernels.weighted_rows": False,
    "software.kernels.split_expert_gate": False,
    "software.exchange.arrivals_indexed_by_torch": False,
    "software.exchange.arrivals_padded": False,
    "software.exchange.experts_gather_tokens": False,
    "software.exchange.router_loss": False,
    "software.exchange.replays_exchanges": False,
    "software.sharding.experts_whole": False,
}
"""Facts of how experts run or are sharded, with what says nothing of a dense model."""


def experts_are_there(stated: Lookup, model: Model) -> Iterator[Finding]:
    """What a document says of experts is for models that have some. ``stated`` finds what it says; a stack
    without a preset says all that it has, as a preset does."""
    if model.moe is not None or stated("software.preset") is None:
        return
    for path, silent in _OF_EXPERTS.items():
        if (said := stated(path)) is not None and said != silent:
            yield Finding(
                path=tuple(path.split(".")),
                message=f"{str(said).lower()} is of experts, and the model is dense; leave it out, or give"
                " model.moe",
            )


def broadcasts_are_of_zero1(stated: Lookup, parallelism: Parallelism) -> Iterator[Finding]:
    """Owners of whole parameters are ZeRO-1's. ``stated`` finds what the document says; a stack without a
    preset says all that it has, as a preset does."""
    path = "software.gradients.zero1_broadcasts"
    if stated(path) and stated("software.preset") is not None and parallelism.zero != 1:
        yield Finding(
            path=tuple(path.split(".")),
            message=f"true is of ZeRO-1, and parallelism.zero is {parallelism.zero}; leave it out, or set"
            " zero to 1",
        )


def lists_are_of_deepspeeds_third_stage(
    stated: Lookup, parallelism: Parallelism, software: Software
) -> Iterator[Finding]:
    """Lists of a tensor a rank are of DeepSpeed's ZeRO-3. ``stated`` finds what the document says; a stack
    without a preset says all that it has, as a preset does."""
    path, kind, zero = "software.sharding.lists", software.sharding.implementation, parallelism.zero
    if not stated(path) or stated("software.preset") is None or (kind == "deepspeed" and zero == 3):
        return
    yield Finding(
        path=tuple(path.split(".")),
        message=f"true is of DeepSpeed's ZeRO-3, and software.sharding.implementation is {kind},"
        f" parallelism.zero {zero}; leave it out, or set implementation: deepspeed and zero to 3",
    )


_OF_XLA = (
    "profile_guided",
    "combine_gather_bytes",
    "combine_scatter_bytes",
    "combine_reduce_bytes",
    "unrolled",
)
"""Facts of how XLA schedules and joins what is sharded, in ``software.sharding``."""


def xla_reads_what_is_its_own(stated: Lookup, software: Software) -> Iterator[Finding]:
    """Findings for each fact of XLA that a document states of a stack that XLA does not compile.

    ``stated`` gives the value of a field as the document has it, None where it is silent. A stack without a
    preset is left alone: it states all of its fields, as a preset does."""
    kind = software.sharding.implementation
    if kind == "xla" or stated("software.preset") is None:
        return
    for name in _OF_XLA:
        silent = type(software.sharding).model_fields[name].default
        if (said := stated(f"software.sharding.{name}")) is not None and said != silent:
            yield Finding(
                path=("software", "sharding", name),
                message=f"{str(said).lower()} is of XLA, and software.sharding.implementation is {kind};"
                " leave it out, or set implementation: xla",
            )


def operators_of_experts(model: Model, software: Software) -> Iterator[Finding]:
    """torch's own operators on experts' rows are none where a compiler joins them or GEMMs apply gates."""
    kernels = software.kernels
    if model.moe is None or kernels.expert_operators == "library":
        return
    for idle, why in (
        (kernels.torch_compile, "torch_compile joins them"),
        (kernels.fused_grouped_mlp, "fused_grouped_mlp has kernels of its own"),
        (
            kernels.gelu_by_operators and model.mlp == "gelu",
            "gelu_by_operators is known of a library's rows alone",
        ),
    ):
        if idle:
            yield Finding(
                path=("software", "kernels", "expert_operators"),
                message=f"{kernels.expert_operators} is operators of torch's by themselves, but {why};"
                " set expert_operators: library",
            )


def logits_are_held_of_torchs_loss(software: Software) -> Iterator[Finding]:
    """Logits that a trainer refers to are apart from what the loss makes in torch's cross entropy alone."""
    kernels = software.kernels
    if kernels.holds_logits and kernels.cross_entropy != "eager":
        yield Finding(
            path=("software", "kernels", "holds_logits"),
            message=f"true is of cross_entropy: eager, and this one is {kernels.cross_entropy}; leave it out",
        )


def z_loss_within_a_loss_with_sums(software: Software) -> Iterator[Finding]:
    """torch's own cross_entropy, uncompiled, has no z-loss within."""
    kernels = software.kernels
    if kernels.z_loss == "within" and kernels.cross_entropy in ("eager", "gathered"):
        yield Finding(
            path=("software", "kernels", "z_loss"),
            message=f"cross_entropy: {kernels.cross_entropy} has no z-loss within; write apart",
        )


def metrics_copy_logits_that_are_there(software: Software) -> Iterator[Finding]:
    """What metrics copy is told beside a fused loss alone, which writes its gradient over what it is given; a
    loss in chunks leaves no logits to copy."""
    kernels = software.kernels
    told = {"cross_entropy": "fused", "loss_chunks": 1, "loss_in_place": True}
    have = {name: getattr(kernels, name) for name in told}
    if kernels.metrics_copy_logits and have != told:
        wanted, these = (", ".join(f"{k}: {str(v).lower()}" for k, v in one.items()) for one in (told, have))
        yield Finding(
            path=("software", "kernels", "metrics_copy_logits"),
            message=f"true is of {wanted}; here is {these}; leave it out",
        )


def owners_hold_whole_parameters(software: Software) -> Iterator[Finding]:
    """Check that owners which broadcast hold whole parameters; nanotron's optimizer shards each, and gathers
    them."""
    gradients = software.gradients
    if gradients.zero1_broadcasts and gradients.reduction == "nanotron-buckets":
        yield Finding(
            path=("software", "gradients", "zero1_broadcasts"),
            message="true is of ranks that own whole parameters, and under reduction: nanotron-buckets each"
            " parameter is sharded and gathered; leave it out, or set another reduction",
        )


def columns_are_summed_apart(software: Software) -> Iterator[Finding]:
    """How a norm's weight gradient is summed is a fact of a kernel that makes nothing else."""
    kernels = software.kernels
    if kernels.norm_grad_by_columns and kernels.fused_norm and not kernels.norm_grad_apart:
        yield Finding(
            path=("software", "kernels", "norm_grad_by_columns"),
            message="true is of a weight gradient that is a kernel of its own, and norm_grad_apart is false;"
            " leave it out, or set norm_grad_apart: true, or fused_norm: false for torch's",
        )


def heads_are_turned_in_their_product(model: Model, software: Software) -> Iterator[Finding]:
    """Megatron core stops where ``fused_single_qkv_rope`` is asked for and heads are normed, or have no
    rotary positions (transformer/attention.py, forward: split_qkv); latent attention never asks."""
    if not software.kernels.fused_qkv_rope or model.mla is not None:
        return
    for why, field, wanted in (
        (model.qk_norm, "qk_norm is true", "qk_norm: false"),
        (model.position != "rope", f"position is {model.position}", "position: rope"),
    ):
        if why:
            yield Finding(
                path=("software", "kernels", "fused_qkv_rope"),
                message="true is of rotary positions that follow the product of Q, K and V at once, and"
                f" model.{field}; set fused_qkv_rope: false, or model.{wanted}",
            )


def weights_are_cast_before_they_are_gathered(
    software: Software, parallelism: Parallelism, training: Training
) -> Iterator[Finding]:
    """FSDP of torch's first version flattens 16-bit parameters, and DeepSpeed shards these (TransformerEngine
    issue 401: fp8_model_init is not supported with FSDP)."""
    kind = software.sharding.implementation
    eight = software.kernels.fp8_parameters and training.precision in ("fp8", "mxfp8", "nvfp4")
    if eight and parallelism.zero >= 2 and parallelism.dp * parallelism.cp > 1 and kind in _GATHER_16_BITS:
        yield Finding(
            path=("software", "kernels", "fp8_parameters"),
            message=f"true is of weights that are gathered in the products' type, and {kind}, which"
            " software.sharding.implementation is, gathers 16 bits; set fp8_parameters: false, or"
            " implementation: fsdp2, megatron-fsdp or xla",
        )


_GATHER_16_BITS = ("fsdp1", "deepspeed")


def compiler_leaves_biases(model: Model, software: Software) -> Iterator[Finding]:
    """Kernels that torch runs for biases of experts are none where blocks are compiled."""
    kernels = software.kernels
    if not (model.moe and model.biases and kernels.torch_compile) or kernels.fused_grouped_mlp:
        return
    if kernels.expert_biases != "in-products":
        yield Finding(
            path=("software", "kernels", "expert_biases"),
            message=f"{kernels.expert_biases} is operations of torch's by themselves, and torch_compile joins"
            " them; set expert_biases: in-products, or torch_compile: false",
        )
