"""What each axis of a layout may be where nobody says: the values that a search tries.

Knows which values are worth trying; which of them fit one another is ``legality.py``'s. The scenario's own
value of every axis is always among them.

Sources for what is worth trying: NVIDIA Megatron-Bridge docs/performance-guide.md (TP inside the NVLink
domain, then PP; CP for long sequences; ETP seldom); Calculon's calculon/llm/optimal_execution.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..scenario.checks import nvlink_domain
from ..scenario.finding import divisors
from ..scenario.machine import node_of
from ..scenario.software.rules import rules_of
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


def layout_values(scenario: Scenario) -> dict[str, Values]:
    """The values of every axis of ``LAYOUT`` that are tried, the scenario's own first."""
    tried = _tried(scenario)
    return {field: unique([field_value(scenario, field), *tried.get(field, ())]) for field in LAYOUT}


def _tried(scenario: Scenario) -> dict[str, list[Any]]:
    """Values worth trying, by field; where nothing is tried, only the scenario's own is."""
    model, cluster, training = scenario.model, scenario.cluster, scenario.training
    layers, moe, gpus = model.num_layers, model.moe, cluster.gpus
    domain = nvlink_domain(node_of(cluster).hosts_per_domain, cluster.gpus_per_node, cluster.gpus_per_domain)
    return {
        "parallelism.tp": _powers(min(domain, gpus)),
        "parallelism.cp": _powers(min(gpus, LARGEST_CP, training.seq_length // SHORTEST_SLICE)),
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
        "parallelism.fsdp_shard_size": [None],
        "training.recompute": ["none", "selective", "full", *_modules(scenario)],
    }


def _modules(scenario: Scenario) -> list[dict[str, Any]]:
    """Modules that are cheap to recompute, where the framework says that it can: norms, and what lies
    between the products of experts. Their outputs are dropped, which the next product would keep (Megatron
    core transformer_config.py, recompute_modules).
    """
    modules = ["layernorm", "moe_act"] if scenario.model.moe else ["layernorm"]
    for rule in rules_of(scenario.software.name):
        if rule.path == "training.recompute" and "modules" in (rule.among or ()):
            return [{"kind": "modules", "modules": modules}]
    return []


def _schedules(scenario: Scenario) -> list[str]:
    """Schedules that the framework says it has; for a stack that says nothing, 1F1B and interleaved 1F1B."""
    for rule in rules_of(scenario.software.name):
        if rule.path == "schedule":
            return ["none", *(rule.among or (rule.always,))]
    return ["none", "1f1b", "interleaved"]


def _stage_splits(scenario: Scenario) -> list[str]:
    """The one that the framework always has."""
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
