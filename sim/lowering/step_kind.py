"""What kind of step a scenario is: the sizes and choices by which steps of one cluster differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hardware.step_factors import StepKind

if TYPE_CHECKING:
    from ..scenario.models import Scenario


def step_kind(scenario: Scenario) -> StepKind:
    """The kind of a scenario's step; sizes in tokens, ranks, layers and units of the model."""
    model, parallelism, training = scenario.model, scenario.parallelism, scenario.training
    sizes = {
        **{name: float(getattr(parallelism, name)) for name in ("tp", "pp", "vpp", "cp", "ep")},
        "dp": scenario.cluster.gpus / (parallelism.tp * parallelism.pp * parallelism.cp),
        "micro_batch": float(training.micro_batch),
        "microbatches": float(scenario.num_microbatches),
        "hidden": float(model.hidden_size),
        "layers": float(model.num_layers),
        "sequence": float(training.seq_length),
    }
    kinds = {
        "software": scenario.software.name,
        "schedule": scenario.schedule,
        "precision": "16 bit" if training.precision in ("bf16", "fp16") else training.precision,
        "recompute": "none" if training.recompute == "none" else "some",
        "sharding": "some" if parallelism.zero else "none",
        "sequence_parallel": "yes" if parallelism.sequence_parallel else "no",
        "attention": "unfused" if scenario.software.kernels.attention == "unfused" else "fused",
        "experts": "yes" if model.moe else "no",
    }
    return StepKind(sizes=sizes, kinds=kinds)
