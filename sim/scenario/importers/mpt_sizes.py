"""Sizes of a model as MosaicML's MPT states them, and OLMo after it: ``model.d_model`` and its like."""

from __future__ import annotations

from .settings import Settings

_SIZES = {
    "num_layers": "model.n_layers",
    "hidden_size": "model.d_model",
    "num_attention_heads": "model.n_heads",
    "vocab_size": "model.vocab_size",
}


def put_mpt_sizes(settings: Settings) -> None:
    """Put layers, widths, heads and vocabulary; asks for those that the file leaves out."""
    for field, option in _SIZES.items():
        value = settings.integer(option)
        if value is None and not settings.has(option):
            settings.draft.ask(option, "the file does not say it", "32")
        settings.put(f"model.{field}", max(1, value or 1), option)
