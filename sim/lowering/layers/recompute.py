"""What of a layer's forward pass backward runs again, as a set of names.

``full`` is the whole layer; which layers that are, checkpoints.py says. Modules are Megatron core's
(``--recompute-modules``): core_attn, layernorm, mlp, mla_up_proj and those of experts. ``operators`` is
torchtitan's selective rule: the outputs of named operators are kept, all else is run again (operators.py).

References:
    Korthikanti et al. 2022, arXiv:2205.05198, section 5 (the attention core alone).
    Megatron-LM core/transformer/transformer_config.py (recompute_modules); core/tensor_parallel/random.py
    (CheckpointWithoutOutput: a norm or an activation is run again, its output not kept).
    torchtitan, distributed/activation_checkpoint.py (selective_ac_option op: every second mm is recomputed),
    models/llama4/infra/parallelize.py (_op_sac_save_list).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...scenario.blocks import Training

Recompute = frozenset[str]

NOTHING: Recompute = frozenset()
FULL: Recompute = frozenset({"full"})
SELECTIVE: Recompute = frozenset({"core_attn"})

OF_ATTENTION: Recompute = frozenset({"core_attn", "mla_up_proj"})
"""Modules that the experts of a layer and their router have no part of."""

OF_EXPERTS: Recompute = frozenset({"moe", "moe_act", "shared_experts"})
"""Modules that nothing but the experts of a layer and their router has a part of."""

TORCHTITAN = ("every_second_mm", "attention", "reduce_scatter", "all_to_all")
"""Operators whose outputs torchtitan keeps: its list has no GEMM of experts (aten._grouped_mm)."""


def unrecorded(recompute: Recompute) -> bool:
    """Whether a layer's forward keeps nothing of its router and experts for backward, since these run again
    as a whole: they run without autograd then (torch.utils.checkpoint)."""
    return recompute == FULL or "moe" in recompute


def seen_by_forward(recompute: Recompute) -> Recompute:
    """What a layer's forward depends on of what is recomputed: ``moe`` where experts keep nothing."""
    return frozenset({"moe"}) if unrecorded(recompute) else NOTHING


def all_but(keep: Iterable[str]) -> Recompute:
    """The recomputation of a whole layer but for the outputs of the operators in ``keep``."""
    return frozenset({"operators", *(f"keep {operator}" for operator in keep)})


def by_operators(recompute: Recompute) -> bool:
    """Whether ``recompute`` names operators whose outputs are kept, and not modules that run again."""
    return "operators" in recompute


def keeps(recompute: Recompute, operator: str) -> bool:
    """Whether outputs of ``operator`` are kept in a layer that is recomputed ``by_operators``."""
    return f"keep {operator}" in recompute


def keeps_attention(recompute: Recompute, kernel: str) -> bool:
    """Whether the output of the attention kernel ``kernel`` is kept: the lists of torch name fused kernels
    alone."""
    return keeps(recompute, "attention") and kernel != "unfused"


def kept_operators(recompute: Recompute, kernel: str) -> frozenset[str] | None:
    """The operators whose outputs are kept with that attention kernel; None where operators are not named."""
    if not by_operators(recompute):
        return None
    kept = frozenset(name.removeprefix("keep ") for name in recompute - {"operators"})
    return kept if kernel != "unfused" else kept - {"attention"}


OPERATORS = all_but(TORCHTITAN)

_NAMED = {"none": NOTHING, "full": FULL, "selective": SELECTIVE, "op_selective": OPERATORS}


def recomputed_parts(training: Training) -> Recompute:
    """What is run again of each layer that is not recomputed as a whole."""
    recompute = training.recompute
    if isinstance(recompute, str):
        return _NAMED[recompute]
    return all_but(recompute.keep) if recompute.kind == "operators" else frozenset(recompute.modules)


def title(parts: Recompute) -> str:
    """How results call what is recomputed: ``full``, ``none``, ``operators``, or the names of modules."""
    return "operators" if by_operators(parts) else " and ".join(sorted(parts)) or "none"
