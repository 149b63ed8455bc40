"""Whether routers of Megatron core have a loss of their own, by the coefficients of a configuration.

Knows Megatron's options. Sources: NVIDIA/Megatron-LM megatron/core/transformer/moe/router.py
(``is_aux_loss_enabled``, ``get_aux_loss_coeff``); megatron/training/arguments.py, from which ms-swift
(megatron_args.py) and Primus (language_model.yaml) do not differ.
"""

from __future__ import annotations

from ..software.presets import get_software
from .settings import Setting, Settings

_KINDS = ("aux_loss", "seq_aux_loss", "global_aux_loss")
"""Ways to balance experts by a loss; none and sinkhorn are without. A z-loss counts no tokens."""

_NAMES = "moe_aux_loss_coeff", "moe_router_load_balancing_type"


def put_router_loss(settings: Settings, *, default: str = "") -> None:
    """Put ``router_loss`` where the software has such routers. ``default`` says where a coefficient of 0 is
    from that nobody states; without it, the recipe's Python has one, and the preset is left as it is."""
    draft, (stated, kind) = settings.draft, map(settings.setting, _NAMES)
    if not get_software(draft.get("software.preset")).exchange.router_loss:
        return
    if (stated and settings.asks(stated)) or (kind and settings.asks(kind)):
        return
    kinds = _words(kind) or ["aux_loss"]
    if stated is not None or default:
        coefficients = [_coefficient(settings, stated, word) for word in _words(stated) or ["0"]]
        pairs = zip(kinds, coefficients, strict=False)
        draft.put(
            "software.exchange.router_loss",
            any(name in _KINDS and coefficient > 0 for name, coefficient in pairs),
            next((one.origin for one in (stated, kind) if one), default),
        )
    elif kind is not None and not set(kinds) & set(_KINDS):
        draft.put("software.exchange.router_loss", False, kind.origin)


def _words(found: Setting | None) -> list[str]:
    """The entries of a setting, which takes one or as many as there are kinds."""
    if found is None:
        return []
    entries = found.value if isinstance(found.value, list) else str(found.value).replace(",", " ").split()
    return [str(one).strip("[]'\" ").lower() for one in entries]


def _coefficient(settings: Settings, stated: Setting | None, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        if stated is not None:
            stated.refuse(settings.draft, f"{word!r:.60}: a number is needed")
        return 0.0
