"""What is not modelled of steps under torch.autocast: refused by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..scenario.refusal import NotSupported
from .layers.recompute import recomputed_parts

if TYPE_CHECKING:
    from ..scenario.models import Scenario


def refuse_autocast(scenario: Scenario) -> None:
    """Refuse what is not modelled under torch.autocast: layouts, models and stacks of which nobody has
    described what stays in FP32.

    Raises:
        NotSupported: names the field, its value, and the values that are modelled.
    """
    if scenario.software.kernels.autocast:
        for field, value, known in _not_described(scenario):
            raise NotSupported(
                field, f"{value} under software.kernels.autocast is not modelled; {known}, or autocast: false"
            )


def _not_described(scenario: Scenario) -> Iterator[tuple[str, str, str]]:
    """Fields, what they say, and what is known instead."""
    par, training, model, software = (
        scenario.parallelism,
        scenario.training,
        scenario.model,
        scenario.software,
    )
    if training.precision not in ("bf16", "fp16"):
        yield "training.precision", training.precision, "set bf16 or fp16"
    if not software.gradients.master_weights:
        yield "software.gradients.master_weights", "false", "set true: parameters are FP32"
    for field, ranks in (("parallelism.tp", par.tp), ("parallelism.pp", par.pp)):
        if ranks > 1:
            yield field, str(ranks), "set 1"
    if par.zero == 1:
        yield "parallelism.zero", "1", "set 0, 2 or 3"
    if par.zero > 1 and software.sharding.implementation not in ("fsdp1", "fsdp2"):
        name = software.sharding.implementation
        yield "software.sharding.implementation", name, "set fsdp1 or fsdp2"
    if model.moe or model.mla or model.mtp_layers:
        yield "model", "a model with experts, latent attention or predicted tokens", "give a plain one"
    for kernel in ("fused_wgrad_accumulation", "one_hot_embedding", "head_fp32"):
        if getattr(software.kernels, kernel):
            yield f"software.kernels.{kernel}", "true", "set false"
    if (size := software.gradients.main_grad_bytes) != 4:
        yield "software.gradients.main_grad_bytes", str(size), "set 4: gradients have their parameters' type"
    if "layernorm" in recomputed_parts(training):
        yield "training.recompute", "modules with layernorm", "leave it out of them"
    if training.offloads_state:
        yield "training.cpu_offload", "true", "set false"
