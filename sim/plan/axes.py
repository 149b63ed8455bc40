"""What each axis of a layout may be where nobody says: the values that a search tries.

Knows which values are worth trying; which of them fit one another is ``legality.py``'s. The scenario's own
value of every axis is always among them.

Sources for what is worth trying: NVIDIA Megatron-Bridge docs/performance-guide.md (TP inside the NVLink
domain, then PP; CP for long sequences; ETP seldom); Calculon's calculon/llm/optimal_execution.py. Of all axes
(``Axes.ALL``) besides: switches of overlap, orders of ranks, copies of shards and recomputation of some
layers, each where the rules of the scenario's framework say that its users have it as an option
(``PresetRule.options``); and sizes that divide an NVLink domain of no power of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..scenario.checks import nvlink_domain
from ..scenario.finding import divisors
from ..scenario.machine import node_of
from ..scenario.software.rules import framework_of, rules_of
from .fields import field_value

if TYPE_CHECKING:
    from ..scenario.models import Scenario

Values = tuple[Any, ...]

LAYOUT = (
    "parallelism.tp",
    "parallelism.cp",
    "parallelism.pp",
    "parallelism.sequence_parallel",
    "parallelism.cp_a2a",
    "parallelism.ep",
    "parallelism.etp",
    "parallelism.stage_split",
    "parallelism.vpp",
    "schedule",
    "schedule_options.group",
    "schedule_options.memory_limit",
    "training.micro_batch",
    "parallelism.zero",
    "parallelism.fsdp_shard_size",
    "training.recompute",
    "training.activation_offload",
    "parallelism.order",
    "software.gradients.overlap_grad_reduce",
    "software.gradients.overlap_param_gather",
    "software.exchange.tp_comm_overlap",
    "software.exchange.moe_a2a_overlap",
)
"""The axes of a layout, in the order in which they are crossed: those that others depend on first."""

DP = "parallelism.dp"
"""No axis: it follows from the number of GPUs and from tp, cp and pp."""

LARGEST_MICRO_BATCH = 8
SHORTEST_SLICE = 1024
"""Tokens of a sequence that a rank of a cp group has at least: ring steps of fewer are all latency."""
LARGEST_CP = 64
LARGEST_ETP = 8


SHARD, ORDER, RECOMPUTE = "parallelism.fsdp_shard_size", "parallelism.order", "training.recompute"
GRAD_REDUCE = "software.gradients.overlap_grad_reduce"
PARAM_GATHER = "software.gradients.overlap_param_gather"
TP_OVERLAP = "software.exchange.tp_comm_overlap"
MOE_OVERLAP = "software.exchange.moe_a2a_overlap"
SWITCHES = (GRAD_REDUCE, PARAM_GATHER, TP_OVERLAP, MOE_OVERLAP)
"""Switches of overlap that are tried."""

ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
"""Replicas next to one another, or the ranks of a pipeline: the two that Megatron core has
(--use-tp-pp-dp-mapping)."""

QUARTERS = (1, 2, 3)
"""Of the layers of a virtual stage: as many of them are recomputed. Memory goes down about linearly with
them, and time up, so that a few tell where the limit of memory lies."""

EVERY = (2, 3, 4)
"""One of so many layers is recomputed."""


class Axes(StrEnum):
    """Which axes take several values: those of a usual search, or all that the framework has options for."""

    LAYOUT = "layout"
    ALL = "all"


def axes_named(name: str) -> Axes:
    """ValueError for a name that is none."""
    try:
        return Axes(name)
    except ValueError:
        raise ValueError(
            f"axes {name!r} is not known; known: {', '.join(one.value for one in Axes)}"
        ) from None


def layout_values(scenario: Scenario, axes: Axes = Axes.LAYOUT) -> dict[str, Values]:
    """The values of every axis of ``LAYOUT`` that are tried, the scenario's own first."""
    tried = _tried(scenario)
    if axes is Axes.ALL:
        for field, values in _tried_besides(scenario).items():
            tried[field] = [*tried.get(field, ()), *values]
    return {field: unique([field_value(scenario, field), *tried.get(field, ())]) for field in LAYOUT}


def domain_of(scenario: Scenario) -> int:
    """The GPUs that NVLink joins."""
    cluster = scenario.cluster
    hosts = node_of(cluster).hosts_per_domain
    return nvlink_domain(hosts, cluster.gpus_per_node, cluster.gpus_per_domain)


def _tried(scenario: Scenario) -> dict[str, list[Any]]:
    """Values worth trying, by field; where nothing is tried, only the scenario's own is."""
    model, training = scenario.model, scenario.training
    layers, moe, gpus = model.num_layers, model.moe, scenario.cluster.gpus
    return {
        "parallelism.tp": _powers(min(domain_of(scenario), gpus)),
        "parallelism.cp": _powers(_most_cp(scenario)),
        "parallelism.pp": [pp for pp in divisors(gpus) if pp <= layers + 2],
        "parallelism.sequence_parallel": [False, True],
        "parallelism.cp_a2a": [None],
        "parallelism.ep": [ep for ep in divisors(moe.num_experts) if ep <= gpus] if moe else [1],
        "parallelism.etp": _powers(min(gpus, LARGEST_ETP)) if moe else [1],
        "parallelism.stage_split": ["uniform", "embedding_and_loss_as_layers", *_stage_splits(scenario)],
        "parallelism.vpp": sorted({*divisors(layers), *divisors(layers + 2)}),
        "schedule": _schedules(scenario),
        "schedule_options.group": [None],
        "schedule_options.memory_limit": [None],
        "training.micro_batch": _powers(min(LARGEST_MICRO_BATCH, training.global_batch)),
        "parallelism.zero": [0, 1, 2, 3],
        SHARD: [None],
        RECOMPUTE: ["none", "selective", "full", *_modules(scenario)],
    }


def _tried_besides(scenario: Scenario) -> dict[str, list[Any]]:
    """What ``Axes.ALL`` tries besides. A stack of a user's own, of which no rules are known, may have all."""
    gpus, domain = scenario.cluster.gpus, domain_of(scenario)
    within = divisors(domain) if domain & (domain - 1) else []
    known = framework_of(scenario.software.name) is not None

    def options(field: str, otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
        found = [rule.options for rule in rules_of(scenario.software.name) if rule.path == field]
        return next(filter(None, found), () if known else otherwise)

    return {
        "parallelism.tp": [tp for tp in within if tp <= gpus],
        "parallelism.cp": [cp for cp in within if cp <= _most_cp(scenario)],
        ORDER: [*options(ORDER, ORDERS)],
        SHARD: [one for one in divisors(domain)[1:] if one < gpus] if options(SHARD, ("domain",)) else [],
        RECOMPUTE: [*_more_modules(scenario), *_some_layers(scenario, options(RECOMPUTE, ("block",)))],
        **{switch: [*options(switch, (False, True))] for switch in SWITCHES},
    }


def _most_cp(scenario: Scenario) -> int:
    return min(scenario.cluster.gpus, LARGEST_CP, scenario.training.seq_length // SHORTEST_SLICE)


def _some_layers(scenario: Scenario, ways: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Recomputation of some layers as a framework has it: so many of each virtual stage (``block``), those of
    the stages of all pipelines; or one of so many (``every``)."""
    layers = scenario.model.num_layers
    found: list[dict[str, Any]] = []
    if "block" in ways:
        stages = {-(-layers // chunks) for chunks in range(1, layers + 1)}
        stages |= {-(-(layers + 2) // chunks) for chunks in range(1, layers + 1)}
        counts = {count for held in stages for count in quarters(held)}
        found += [{"kind": "full", "layers": count, "method": "block"} for count in sorted(counts)]
    if "every" in ways:
        found += [{"kind": "full", "every": every} for every in EVERY if every <= layers]
    return found


def quarters(layers: int) -> list[int]:
    """A quarter, a half and three quarters of the layers of a virtual stage, none of them all or nothing.

    >>> [quarters(layers) for layers in (1, 2, 3, 8)]
    [[], [1], [1, 2], [2, 4, 6]]
    """
    found = {round(layers * one / 4) for one in QUARTERS}
    return sorted(one for one in found if 0 < one < layers)


def _recomputes(scenario: Scenario, kind: str) -> bool:
    """Whether the framework says that it recomputes so."""
    rules = (rule for rule in rules_of(scenario.software.name) if rule.path == RECOMPUTE)
    return any(kind in rule.among for rule in rules)


def _modules(scenario: Scenario) -> list[dict[str, Any]]:
    """Modules that are cheap to recompute, where the framework says that it can: norms, and what lies
    between the GEMMs of experts. Their outputs are dropped, which the next GEMM would keep (Megatron
    core transformer_config.py, recompute_modules).
    """
    modules = ["layernorm", "moe_act"] if scenario.model.moe else ["layernorm"]
    return [_of_modules(modules)] if _recomputes(scenario, "modules") else []


def _more_modules(scenario: Scenario) -> list[dict[str, Any]]:
    """Further modules in the order of what a byte that they free costs to compute again: the up-projections
    of latent attention (arXiv:2412.19437 section 3.2.3), the attention core, the feed-forward part as a
    whole. And all but some operators (op_selective), where the framework has that.
    """
    found: list[Any] = ["op_selective"] if _recomputes(scenario, "op_selective") else []
    if not _recomputes(scenario, "modules"):
        return found
    model = scenario.model
    rest = ["core_attn", "moe" if model.moe else "mlp"]
    chain = ["layernorm", "moe_act"] if model.moe else ["layernorm"]
    for module in ["mla_up_proj", *rest] if model.mla else rest:
        chain = [one for one in chain if module != "moe" or one != "moe_act"] + [module]
        found.append(_of_modules(chain))
    return found


def _of_modules(modules: list[str]) -> dict[str, Any]:
    return {"kind": "modules", "modules": modules}


def _schedules(scenario: Scenario) -> list[str]:
    """Schedules that the framework says it has; for a stack that says nothing, 1F1B and interleaved 1F1B."""
    for rule in rules_of(scenario.software.name):
        if rule.path == "schedule":
            return ["none", *(rule.among or (rule.always,))]
    return ["none", "1f1b", "interleaved"]


def _stage_splits(scenario: Scenario) -> list[str]:
    """The split of layers over stages that the framework always has, if it has one."""
    rules = (rule for rule in rules_of(scenario.software.name) if rule.path == "parallelism.stage_split")
    return [rule.always for rule in rules if isinstance(rule.always, str)]


def _powers(most: int) -> list[int]:
    """Powers of two up to ``most``, and 1."""
    return [1 << power for power in range(max(1, most).bit_length())]


def unique(values: Iterable[Any]) -> Values:
    """Each value once; lists and tables have no hash."""
    found: list[Any] = []
    for value in values:
        if not any(value == one and type(value) is type(one) for one in found):
            found.append(value)
    return tuple(found)
