"""Liger's kernels in a run of transformers' models: which are on, and the chunks of its loss.

Sources: linkedin/Liger-Kernel src/liger_kernel/transformers/monkey_patch.py (apply_liger_kernel_to_llama: all
but the loss by itself), ops/fused_linear_cross_entropy.py (rows of a chunk); huggingface/transformers
training_args.py (``use_liger_kernel``, ``liger_kernel_config``); axolotl 0.19 integrations/liger/args.py
(each by its own name). Which software these kernels are is docs/decisions/0233.
"""

from __future__ import annotations

from math import ceil

from ..model.catalogue import get_model, model_names
from .settings import Settings

_WHOLE = ("use_liger_kernel", "enable_liger_kernel", "use_liger")

_PARTS = {
    "rope": ("liger_rope",),
    "rms_norm": ("liger_rms_norm",),
    "swiglu": ("liger_glu_activation", "liger_swiglu"),
    "fused_linear_cross_entropy": ("liger_fused_linear_cross_entropy",),
    "cross_entropy": ("liger_cross_entropy",),
}
"""Kernels as Liger names them, and axolotl's names for them."""

_FIELDS = {"rope": "fused_rope", "rms_norm": "fused_norm", "swiglu": "fused_activation"}


def chunks_of_loss(tokens: int, vocabulary: int, hidden: int) -> int:
    """Chunks that Liger's fused linear cross entropy takes so many tokens in: logits of one are no larger
    than the hidden states of all.

    >>> chunks_of_loss(4096, 151936, 2048)
    64
    """
    rows = ceil(tokens / ceil(vocabulary / hidden))
    return ceil(tokens / (1 << (rows - 1).bit_length()))


def put_liger(settings: Settings) -> None:
    """Put the kernels that are Liger's, once model, batch and sequence are put."""
    draft = settings.draft
    whole = settings.flag(*_WHOLE)
    on: dict[str, str] = {}
    for part, names in _PARTS.items():
        names = (*names, f"liger_kernel_config.{part}")
        if settings.flag(*names, default=whole and part != "cross_entropy"):
            on[part] = settings.origin(*names, *_WHOLE)
    if not on:
        return
    known = draft.get("model.preset")
    model = get_model(known) if known in model_names() else None
    if draft.get("model.moe") or (model is not None and model.moe is not None):
        name = next(one for one in (*_WHOLE, *sum(_PARTS.values(), ())) if settings.has(one))
        settings.refuse(
            name, "Liger's kernels of models with experts are not modelled; those of dense ones are"
        )
        return
    for part, field in _FIELDS.items():
        if part in on:
            draft.put_software(field, True, on[part])
    fused = on.get("fused_linear_cross_entropy")
    if fused or "cross_entropy" in on:
        draft.put_software("cross_entropy", "fused", fused or on["cross_entropy"])
    micro, length = draft.get("training.micro_batch"), draft.get("training.seq_length")
    vocabulary = model.vocab_size if model else draft.get("model.vocab_size")
    hidden = model.hidden_size if model else draft.get("model.hidden_size")
    if fused and micro and length and vocabulary and hidden:
        tokens = micro * length // draft.get("parallelism.cp", 1)
        draft.put_software("logits_fp32", False, fused)
        draft.put_software("loss_chunks", chunks_of_loss(tokens, vocabulary, hidden), fused)
