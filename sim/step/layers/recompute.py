"""What of a layer's forward pass backward runs again, as a set of names.

``full`` is the whole layer. Modules are Megatron core's (``--recompute-modules``): core_attn, layernorm,
mlp and those of experts. ``operators`` is torchtitan's selective rule: the outputs of attention, of
collectives and of every second matrix product are kept, all else is run again.

References:
    Korthikanti et al. 2022, arXiv:2205.05198, section 5 (the attention core alone).
    Megatron-LM core/transformer/transformer_config.py (recompute_modules); core/tensor_parallel/random.py
    (CheckpointWithoutOutput: a norm or an activation is run again, its output not kept).
    torchtitan, distributed/activation_checkpoint.py (_get_custom_policy: every second mm is recomputed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...scenario.models import Training

Recompute = frozenset[str]

NOTHING: Recompute = frozenset()
FULL: Recompute = frozenset({"full"})
SELECTIVE: Recompute = frozenset({"core_attn"})
OPERATORS: Recompute = frozenset({"operators"})

_NAMED = {"none": NOTHING, "full": FULL, "selective": SELECTIVE, "op_selective": OPERATORS}


def recomputed_parts(training: Training) -> Recompute:
    """What is run again of each layer that is not among the first n recomputed in full."""
    recompute = training.recompute
    if isinstance(recompute, str):
        return _NAMED[recompute]
    return frozenset(recompute.modules)


def title(parts: Recompute) -> str:
    """``full``, ``none``, or the modules' names."""
    return " and ".join(sorted(parts)) or "none"
