"""What type each field of a Hugging Face config.json has, and the reader that holds it to that.

Knows names and types; what a field means for a family is in huggingface.py. A field that is null counts as
left out, as in transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....hardware.fields import MOST_LAYERS
from ....hardware.limits import LARGEST

Check = Callable[[Any], bool]


def _whole(low: int, high: int = LARGEST) -> Check:
    """A whole number; 1024.0 is one."""
    return lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and low <= value <= high
        and value == math.floor(value)
    )


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _list_of(one: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(one, value))


_KINDS: dict[str, tuple[Check, tuple[str, ...]]] = {
    f"a whole number from 1 to {MOST_LAYERS}": (_whole(1, MOST_LAYERS), ("num_hidden_layers", "n_layer")),
    "a whole number of 1 or more": (
        _whole(1),
        (
            "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size", "num_key_value_heads",
            "head_dim", "num_experts_per_tok", "num_experts_per_token", "moe_intermediate_size",
            "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_embd", "n_head",
            "decoder_sparse_step", "moe_layer_freq", "n_group", "topk_group",
        ),
    ),
    "a whole number of 0 or more": (
        _whole(0),
        (
            "num_local_experts", "num_experts", "n_routed_experts", "n_shared_experts", "q_lora_rank",
            "first_k_dense_replace", "num_nextn_predict_layers", "sliding_window", "max_window_layers",
            "n_inner",
        ),
    ),
    "true or false": (
        lambda value: isinstance(value, bool),
        ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_sliding_window"),
    ),
    "a number from 0 to less than 1": (_share, ("attention_dropout", "resid_pdrop", "hidden_dropout")),
    "text": (
        lambda value: isinstance(value, str), ("model_type", "hidden_act", "activation_function")
    ),
    "a list of texts": (_list_of(lambda value: isinstance(value, str)), ("layer_types",)),
    "a list of whole numbers": (_list_of(_whole(0)), ("mlp_only_layers",)),
}  # fmt: skip

TYPES = {name: (what, check) for what, (check, names) in _KINDS.items() for name in names}
"""What each field must be, in words, and whether a value is that."""


class Config(Mapping[str, Any]):
    """A config.json that checks the type of what is read, and remembers which fields were.

    Reading a field raises ValueError where it is of another type, and KeyError where it is left out.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields, self.read = fields, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        what, check = TYPES[name]
        value = self.fields.get(name)
        if value is None:
            raise KeyError(name)
        if not check(value):
            raise ValueError(f"{name}: {what} is needed, not {value!r:.60}")
        return int(value) if isinstance(value, float) and what.startswith("a whole") else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)
