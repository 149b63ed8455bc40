"""What CUDA graphs of Megatron core hold: its scopes, as the fields of ``software.host`` that say the same.

Knows the words of ``--cuda-graph-scope`` (later ``--cuda-graph-modules``), and which of them together are a
part of a layer that the simulator can leave out. Any other part is refused, never taken as a whole layer.

Sources: Megatron-LM megatron/training/arguments.py, ``--cuda-graph-impl`` and ``--cuda-graph-scope``;
core/transformer/transformer_config.py, ``cuda_graph_scope``; core/transformer/transformer_layer.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.catalogue import get_model, model_names
from ..software.host import HostSoftware
from .draft import Draft
from .settings import Setting, Settings

SCOPE_NAMES = ("cuda_graph_scope", "cuda_graph_modules")
SCOPES = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full", "full_iteration")
"""``attn``: attention. ``mlp``: the MLP of dense layers. ``moe``: experts, whole. ``moe_router``: up to the
router, shared experts included. ``moe_preprocess``: what the dispatcher does before rows leave."""

_MODELLED = (
    "modelled are whole layers (no scope; attn with mlp, or with moe), and of layers with experts attn with"
    " moe_router and moe_preprocess, or these two without attn"
)


PARTS_SINCE = (4, 16)
"""Version of Megatron core, as importers count them, from which a list of scopes says which parts of a layer
graphs hold."""


@dataclass(frozen=True, kw_only=True)
class LayersInGraphs:
    """Whose layers are captured: whether they have ``experts``, and some of them none (``mixed``).

    ``sorts`` says whether rows are put into order before an exchange of NCCL's, which is in the graph by
    ``moe_preprocess`` alone.
    """

    experts: bool
    mixed: bool
    sorts: bool


def layers_of(draft: Draft) -> LayersInGraphs:
    """The layers of the model that was put, by its sizes or its name."""
    name, sorts = draft.get("model.preset"), draft.get("software.exchange.moe_dispatcher", "alltoall")
    if name in model_names():
        model = get_model(name)
        with_experts = [model.has_experts(layer) for layer in range(model.num_layers)]
    else:
        freq = draft.get("model.moe.layer_freq", 1)
        dense = freq != 1 or draft.get("model.moe.num_dense_layers", 0) > 0
        with_experts = [draft.get("model.moe") is not None, draft.get("model.moe") is not None and not dense]
    return LayersInGraphs(experts=any(with_experts), mixed=not all(with_experts), sorts=sorts == "alltoall")


def scopes_of(settings: Settings) -> frozenset[str]:
    """The scopes that are named; none for whole layers. A word that is no scope is refused."""
    found = settings.setting(*SCOPE_NAMES)
    if found is None or found.value in (True, None, "") or settings.asks(found):
        return frozenset()
    words = [word.lower() for word in _words(found)]
    if unknown := [word for word in words if word not in SCOPES]:
        settings.refuse(_name(settings), f"no scope is called {unknown[0]!r}; known: {', '.join(SCOPES)}")
        return frozenset()
    return frozenset(words) - {"full", "mamba"}  # nothing here has layers of Mamba


def put_scopes(settings: Settings, *, layerwise: bool = False) -> None:
    """Put what the graphs leave out. ``layerwise``: any scope but that of an iteration captures whole layers,
    as Megatron core's own graphs did until 0.15."""
    if not settings.has(*SCOPE_NAMES):
        return
    draft, scopes, layers = settings.draft, scopes_of(settings), layers_of(settings.draft)
    origin = settings.origin(*SCOPE_NAMES)
    if layerwise or "full_iteration" in scopes or _whole(scopes, layers):
        out: tuple[bool, bool] | None = (False, False)
    else:
        out = _left_out(scopes, layers)
    if out is None:
        settings.refuse(_name(settings), _why(scopes, layers))
        return
    experts, attention = out
    if layers.experts:
        draft.put("software.host.graphs_leave_out_experts", experts, origin)
        draft.put("software.host.graphs_leave_out_attention", attention or None, origin)
    if experts and layers.mixed and "mlp" not in scopes:
        draft.note(f"{_name(settings)}: layers without experts are captured as a whole here")


def _whole(scopes: frozenset[str], layers: LayersInGraphs) -> bool:
    return (
        not scopes
        or scopes - {"mlp"} == {"attn", "moe"}
        or (scopes == {"attn", "mlp"} and not layers.experts)
    )


def _left_out(scopes: frozenset[str], layers: LayersInGraphs) -> tuple[bool, bool] | None:
    """Whether graphs leave out experts, and attention; None for a part of a layer that is not modelled."""
    held = scopes - {"mlp", "attn"}
    router = held == {"moe_router", "moe_preprocess"} or (held == {"moe_router"} and not layers.sorts)
    return (True, "attn" not in scopes) if layers.experts and router else None


def _why(scopes: frozenset[str], layers: LayersInGraphs) -> str:
    told = " ".join(one for one in SCOPES if one in scopes)
    if not layers.experts and (moe := sorted(one for one in scopes if one.startswith("moe"))):
        return f"{told}: the model has no experts for {moe[0]}"
    if "moe_preprocess" in scopes and "moe_router" not in scopes:
        return f"{told}: moe_preprocess goes with moe_router"
    return f"{told}: graphs of that part of a layer are not modelled; {_MODELLED}"


def _words(found: Setting) -> list[str]:
    value = found.value
    parts = value if isinstance(value, list | tuple) else str(value).strip("[]").replace(",", " ").split()
    return [str(part).strip("[]'\" ,") for part in parts]


def _name(settings: Settings) -> str:
    found = settings.setting(*SCOPE_NAMES)
    return found.name if found else SCOPE_NAMES[0]


def scopes_told(host: HostSoftware) -> list[str]:
    """The scopes of graphs that leave parts of layers with experts out; none of whole layers."""
    if not host.graphs_leave_out_experts:
        return []
    return [*([] if host.graphs_leave_out_attention else ["attn"]), "moe_router", "moe_preprocess"]
