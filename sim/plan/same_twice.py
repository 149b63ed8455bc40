"""Rules for layouts that are not worth trying: they equal another layout under another name, or nearly so.

Knows in which layouts a field changes nothing, so that its other values are the same step twice; and how many
layers of a stage are worth recomputing. What is illegal is ``legality.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fold.can_bind import can_bind
from ..scenario.checks_recompute import most_layers
from ..scenario.machine import cluster_of
from ..scenario.recompute import RecomputeSpec
from ..scenario.refusal import NotSupported
from ..scenario.sharding import sharding_rule
from .axes import (
    DP,
    GRAD_REDUCE,
    MOE_OVERLAP,
    ORDER,
    ORDERS,
    PARAM_GATHER,
    RECOMPUTE,
    SHARD,
    TP_OVERLAP,
    Axes,
    domain_of,
    layout_values,
    quarters,
)
from .fields import field_value

if TYPE_CHECKING:
    from ..scenario.models import Scenario

TP, CP, PP = "parallelism.tp", "parallelism.cp", "parallelism.pp"
VPP, EP, ETP = "parallelism.vpp", "parallelism.ep", "parallelism.etp"
SP, SPLIT, ZERO = "parallelism.sequence_parallel", "parallelism.stage_split", "parallelism.zero"
MICRO_BATCH = "training.micro_batch"
TWICE = "the same twice"


@dataclass(frozen=True, kw_only=True)
class LayoutRule:
    """``breaks(draft)`` says for which reason the fields that it ``reads`` are no layout; "" where they are.
    If ``concerns(draft)`` is false for all values of the fields ``concerned_by``, it breaks none.

    ``about`` is the field that it is about where it says what is not worth trying (a framework's note): a
    value that a user names is kept against it, and with ``keeps_own`` the scenario's own in any case.
    """

    reads: tuple[str, ...]
    breaks: Callable[[Scenario], str]
    about: str = ""
    keeps_own: bool = False
    concerns: Callable[[Scenario], bool] | None = None
    concerned_by: tuple[str, ...] = ()


SAME = (
    LayoutRule(
        reads=(PP, VPP, SPLIT),
        breaks=lambda one: (
            TWICE
            if one.parallelism.pp * one.parallelism.vpp == 1 and one.parallelism.stage_split != "uniform"
            else ""
        ),
        about=SPLIT,
    ),
    LayoutRule(
        reads=(CP, DP, EP, ZERO),
        breaks=lambda one: (
            TWICE
            if one.parallelism.dp * one.parallelism.cp * one.parallelism.ep == 1 and one.parallelism.zero
            else ""
        ),
        about=ZERO,
    ),
)
"""Layouts that are another one under another name: a rule of splitting with one stage, shards of one rank."""


def of_all_axes(scenario: Scenario) -> Iterator[LayoutRule]:
    """Rules of the axes that ``Axes.ALL`` has besides: each keeps one value of a field where it changes
    nothing, the scenario's own, or the usual one."""
    yield from (
        _where_it_tells(scenario, GRAD_REDUCE, (TP, CP, DP, EP, ETP), _reduces),
        _gathers_where_they_tell(scenario),
        _where_it_tells(scenario, TP_OVERLAP, (TP, SP), _exchanges),
        _where_it_tells(scenario, MOE_OVERLAP, (DP, PP, EP, MICRO_BATCH), _pairs),
    )
    yield LayoutRule(reads=(TP, CP, PP, DP, ORDER), breaks=_same_order(scenario), about=ORDER)
    yield LayoutRule(reads=(TP, CP, DP, SHARD), breaks=_odd_shards, about=SHARD, keeps_own=True)
    yield LayoutRule(reads=(PP, VPP, SPLIT, RECOMPUTE), breaks=_odd_layers, about=RECOMPUTE, keeps_own=True)


def _twice(same: bool) -> str:
    return TWICE if same else ""


def _where_it_tells(
    scenario: Scenario, switch: str, reads: tuple[str, ...], tells: Callable[[Scenario], bool]
) -> LayoutRule:
    """Values of a switch other than the scenario's own are worth trying where it ``tells``."""
    own = field_value(scenario, switch)
    return LayoutRule(
        reads=(*reads, switch),
        breaks=lambda one: _twice(field_value(one, switch) != own and not tells(one)),
        about=switch,
    )


def _gathers_where_they_tell(scenario: Scenario) -> LayoutRule:
    """The same of the gathers' switch. What nobody gathers overlaps nothing beside reductions that do not:
    a framework may have no other value there (Megatron-LM arguments.py, validate_args)."""
    own, reduces = (field_value(scenario, switch) for switch in (PARAM_GATHER, GRAD_REDUCE))
    both = len(layout_values(scenario, Axes.ALL)[PARAM_GATHER]) > 1

    def breaks(draft: Scenario) -> str:
        off = both and reduces and not field_value(draft, GRAD_REDUCE)
        return _twice(field_value(draft, PARAM_GATHER) != (own and not off) and not _gathers(draft))

    reads = (TP, CP, PP, DP, EP, ETP, ZERO, GRAD_REDUCE, PARAM_GATHER)
    return LayoutRule(reads=reads, breaks=breaks, about=PARAM_GATHER)


def _reduces(draft: Scenario) -> bool:
    """Whether several ranks hold the same parameters, of experts or others."""
    par = draft.parallelism
    same = par.tp * par.cp * par.dp // (par.ep * par.etp) if draft.model.moe else 1
    return max(par.dp * par.cp, same) > 1


def _gathers(draft: Scenario) -> bool:
    """Whether updated parameters are gathered in a pass of their own: not where layers gather theirs, as in
    ZeRO-3. Layouts that no software supports are cut by another rule."""
    par = draft.parallelism
    if par.zero == 0 or not _reduces(draft):
        return False
    if par.dp * par.cp == 1:
        return True  # of experts alone, whatever the stage (lowering/optional_parts.py)
    try:
        rule = sharding_rule(draft)
    except NotSupported:
        return True
    return rule is None or rule.gathers == "never"


def _exchanges(draft: Scenario) -> bool:
    """Whether tensor parallelism gathers and scatters what the overlap could hide."""
    return draft.parallelism.shards_sequence


def _pairs(draft: Scenario) -> bool:
    """Whether experts lie on other ranks, and a forward of one microbatch may follow a backward of
    another."""
    return draft.parallelism.ep > 1 and (draft.parallelism.pp > 1 or draft.num_microbatches > 1)


def _same_order(scenario: Scenario) -> Callable[[Scenario], str]:
    """Whether another order of ranks than the scenario's places all groups alike: there are no pipelines or
    no replicas; or tp and cp fill domains, so that both lie across domains in any order, and no link of the
    fabric is ever short, so that it is one which (twins.py has the rest, layout by layout)."""
    own, domain, cluster = scenario.parallelism.order, domain_of(scenario), scenario.cluster
    apart = cluster.placement is None and not can_bind(cluster_of(cluster))

    def breaks(draft: Scenario) -> str:
        par = draft.parallelism
        if par.order == own or own not in ORDERS:
            return ""
        filled = apart and par.tp * par.cp % domain == 0
        return _twice(par.order in ORDERS and (filled or 1 in (par.pp, par.dp)))

    return breaks


def _odd_shards(draft: Scenario) -> str:
    """Shards of other ranks than those of one NVLink domain (Megatron-Bridge's recipes and torchtitan's HSDP
    shard within a domain and keep copies in others), or without a copy of any."""
    par, domain = draft.parallelism, domain_of(draft)
    if par.fsdp_shard_size is None or par.fsdp_shard_size * par.tp == domain < par.tp * par.cp * par.dp:
        return ""
    return "shards over part of a domain" if par.fsdp_shard_size * par.tp != domain else TWICE


def _odd_layers(draft: Scenario) -> str:
    """Recomputation of other numbers of layers than quarters of the fullest virtual stage."""
    recompute, par = draft.training.recompute, draft.parallelism
    if not isinstance(recompute, RecomputeSpec) or recompute.kind != "full":
        return ""
    fullest = most_layers(draft.model, par, None)
    odd = recompute.method == "block" and recompute.layers not in quarters(fullest)
    return "not a quarter of the layers" if odd else ""
