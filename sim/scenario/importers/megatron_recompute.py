"""What a Megatron-LM run computes again in its backward, by the options of each era.

Sources: Megatron-LM megatron/training/arguments.py (validate_args); core/transformer/transformer_block.py.
"""

from __future__ import annotations

import math
import re

from .megatron_model import DEFAULT
from .settings import Settings

_MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")


def put_recompute(settings: Settings) -> None:
    """``training.recompute``, in the words of each era."""
    if settings.flag("checkpoint_activations"):
        count = settings.integer("checkpoint_num_layers", default=1)
        _full(settings, "uniform", count, "checkpoint_activations")
    elif method := settings.text("activations_checkpoint_method"):
        count = settings.integer("activations_checkpoint_num_layers", default=1)
        _full(settings, method, count, "activations_checkpoint_method")
    else:
        _recompute_by_granularity(settings)


def _recompute_by_granularity(settings: Settings) -> None:
    """What Megatron core's options say; some of them exclude others."""
    method, count = settings.text("recompute_method"), settings.integer("recompute_num_layers")
    modules = settings.setting("recompute_modules")
    layers = settings.flag("moe_layer_recompute")
    kind = settings.choice(
        "recompute_granularity", among={"full": "full", "selective": "selective", "none": None, "": None}
    )
    if settings.flag("recompute_activations"):
        if kind == "full":
            settings.refuse(
                "recompute_activations",
                "with --recompute-granularity full it says two things; Megatron-LM takes selective",
            )
            return
        kind = "selective"
    if layers and kind is not None:
        settings.refuse("moe_layer_recompute", "it goes with no other recomputation")
    elif layers:
        _put_modules(settings, ["moe"], "moe_layer_recompute")
    elif kind == "full":
        _full(settings, method, count, "recompute_granularity")
    elif kind == "selective" and method is not None and modules is None:
        settings.refuse("recompute_method", "Megatron-LM takes a method with full recomputation only")
    elif kind == "selective":
        listed = _listed(modules.value) if modules else ["core_attn"]
        _put_modules(settings, listed, "recompute_modules" if modules else "recompute_granularity")
    else:
        settings.draft.put("training.recompute", "none", DEFAULT)


def _listed(named: object) -> list[str]:
    """Names of modules, from a list or from words between commas or blanks, without brackets and quotes."""
    words: list[str] = []
    if isinstance(named, str):
        words = re.split(r"[,\s]+", named)
    elif isinstance(named, list):
        words = [str(one) for one in named]
    return [re.sub(r"[\[\]'\"]", "", one) for one in words if one]


def _put_modules(settings: Settings, modules: list[str], name: str) -> None:
    unknown = [one for one in modules if one not in _MODULES]
    if unknown or not modules:
        settings.refuse(
            name, f"{', '.join(unknown) or 'nothing'}: recomputed modules can be {', '.join(_MODULES)}"
        )
    elif modules == ["core_attn"]:
        settings.put("training.recompute", "selective", name, "recompute_activations")
    else:
        settings.put("training.recompute", {"kind": "modules", "modules": modules}, name)


def _full(settings: Settings, method: str | None, count: int | None, name: str) -> None:
    """Whole layers: all of them, chunks of n (uniform), or the first n of each stage (block)."""
    draft = settings.draft
    if method not in (None, "uniform", "block"):
        settings.refuse(name, f"{method}: the methods are uniform and block")
        return
    layers, pp, chunks = (
        draft.get("model.num_layers") or 0,
        draft.get("parallelism.pp", 1),
        draft.get("parallelism.vpp", 1),
    )
    held = math.ceil(layers / (pp * chunks)) if layers else 0
    if method is None or (method == "uniform" and (count or 1) == 1):
        settings.put("training.recompute", "full", name)
    elif method == "block" and count == 0:
        settings.put("training.recompute", "none", "recompute_num_layers")
    elif method == "block" and held and (count or 1) >= held:
        draft.put("training.recompute", "full", f"{settings.origin(name)}: {count} layers are all of a stage")
    else:
        settings.put("training.recompute", {"kind": "full", "method": method, "layers": count or 1}, name)
