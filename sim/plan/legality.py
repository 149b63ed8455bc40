"""Which layouts are legal: the checks of a scenario, each asked once for each value of what it reads.

Knows no rule itself: they are those of sim/scenario and of sim/lowering, with the fields of a layout that
each of them reads. So a rule stands once, and a hundred thousand layouts cost as much as a few hundred
checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...schedules.p2p.point_to_point import check_messages
from ..lowering.common_to_layouts import runs_pairs
from ..lowering.lower import step_orders
from ..lowering.plan import point_to_point_rule
from ..lowering.refuse import REFUSALS, LayoutRefusal
from ..scenario import checks
from ..scenario.checks_pipeline import layers_fit_stages, schedule_accepts_shape, schedule_fits_layout
from ..scenario.checks_recompute import recompute_fits
from ..scenario.frameworks import broken_value, lookup_in, reads
from ..scenario.refusal import NotSupported
from ..scenario.schedules import schedule_named, traits_of
from ..scenario.sharding import sharding_rule
from ..scenario.software.rules import rules_of
from .axes import DP, LAYOUT, RECOMPUTE, SHARD, Axes
from .same_twice import CP, EP, ETP, PP, SAME, SP, SPLIT, TP, VPP, ZERO, LayoutRule, of_all_axes

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.schedule import Schedule, Shape
    from ..scenario.finding import Finding
    from ..scenario.models import Scenario
    from ..scenario.software.rules import PresetRule

SCHEDULE, MICRO_BATCH, CP_A2A = "schedule", "training.micro_batch", "parallelism.cp_a2a"
OPTIONS = ("schedule_options.group", "schedule_options.memory_limit")


def rules(scenario: Scenario, profile: GpuProfile, axes: Axes = Axes.LAYOUT) -> list[LayoutRule]:
    """All rules that can make a layout of ``scenario`` illegal, or that leave one out because its software
    does not have it or because it equals another layout."""
    found = [*_consistency(), *_framework(scenario), *_unsupported(profile), _messages(), *SAME]
    return [*found, *of_all_axes(scenario)] if axes is Axes.ALL else found


def _consistency() -> Iterable[LayoutRule]:
    """The rules of sim/scenario/checks*.py that read a layout."""

    def rule(
        reason: str, reads: tuple[str, ...], check: Callable[[Scenario], Iterable[Finding]]
    ) -> LayoutRule:
        return LayoutRule(reads=reads, breaks=lambda draft: reason if any(True for _ in check(draft)) else "")

    return (
        rule("gpus", (TP, CP, PP), lambda one: checks.world_size_matches(one.cluster, _filled(one))),
        rule("tp", (TP,), _tensor_parallel),
        rule("axes", (TP, SP, "parallelism.order"), lambda one: checks.layout_is_sound(one.parallelism)),
        rule("experts", (TP, SP, EP, ETP), lambda one: checks.experts_fit(one.model, one.parallelism)),
        rule("cp_a2a", (TP, CP, CP_A2A), lambda one: checks.heads_exchange(one.model, one.parallelism)),
        rule("seq_length", (TP, CP, SP), lambda one: checks.sequence_divides(one.parallelism, one.training)),
        rule("layers", (PP, VPP, SPLIT), lambda one: layers_fit_stages(one.model, one.parallelism)),
        rule(
            "schedule", (PP, VPP, SCHEDULE), lambda one: schedule_fits_layout(one.schedule, one.parallelism)
        ),
        rule("loss_scale", (SCHEDULE,), lambda one: checks.loss_scale_fits(one.training, one.schedule)),
        rule(
            "recompute",
            (PP, VPP, SPLIT, SCHEDULE, RECOMPUTE),
            lambda one: recompute_fits(one.model, one.parallelism, one.training, one.schedule),
        ),
        rule(
            "shards",
            (TP, CP, DP, EP, ETP, ZERO, SHARD),
            lambda one: checks.shards_fit(one.model, one.parallelism),
        ),
        rule("global_batch", (PP, DP, SCHEDULE, MICRO_BATCH, *OPTIONS[:1]), _batch),
        rule("microbatches", (PP, VPP, DP, SCHEDULE, MICRO_BATCH, *OPTIONS), _shape),
    )


def _filled(draft: Scenario) -> Any:
    """A draft with the data-parallel size that follows from its GPUs and the other sizes."""
    par = draft.parallelism
    return par.model_copy(update={"dp": draft.cluster.gpus // (par.tp * par.cp * par.pp)})


def _tensor_parallel(draft: Scenario) -> Iterable[Finding]:
    shared = draft.software.exchange.shared_kv_heads
    return checks.tensor_parallel_divides(draft.model, draft.parallelism, heads_are_shared=shared)


def _batch(draft: Scenario) -> Iterable[Finding]:
    grouped = traits_of(draft.schedule).grouped and not draft.schedule_options.group
    return checks.batch_divides(draft.parallelism, draft.training, draft.schedule if grouped else None)


def _shape(draft: Scenario) -> Iterable[Finding]:
    return schedule_accepts_shape(draft.schedule, draft.parallelism, draft.training, draft.schedule_options)


def _framework(scenario: Scenario) -> Iterable[LayoutRule]:
    """The rules of the preset's framework: errors make a layout illegal, and notes say that the framework has
    no such layout."""
    return (
        LayoutRule(
            reads=tuple(sorted(reads(rule) & {*LAYOUT, DP})),
            breaks=_against(rule, f"software: {rule.path}"),
            about=rule.path if rule.severity == "note" else "",
        )
        for rule in rules_of(scenario.software.name)
        if rule.severity and rule.path in LAYOUT
    )


def _against(rule: PresetRule, reason: str) -> Callable[[Scenario], str]:
    return lambda draft: "" if broken_value(rule, lookup_in(draft)) is None else reason


def _unsupported(profile: GpuProfile) -> Iterable[LayoutRule]:
    """What lowering refuses."""

    def rule(reads: Iterable[str], refuse: Callable[[Scenario], object]) -> LayoutRule:
        def breaks(draft: Scenario) -> str:
            try:
                refuse(draft)
            except NotSupported as refusal:
                return f"not modelled: {refusal.field}"
            return ""

        return LayoutRule(reads=tuple(reads), breaks=breaks)

    yield rule((PP, ZERO), sharding_rule)
    for one in REFUSALS:
        found = rule(one.reads, partial(_asked, one, profile))
        yield replace(found, concerns=one.concerns, concerned_by=one.concerned_by)


def refuse_any_layout(scenario: Scenario, profile: GpuProfile) -> None:
    """Raise NotSupported for what lowering refuses of a scenario whatever its layout."""
    for one in REFUSALS:
        if not one.reads:
            one.refuse(scenario, profile)


def _asked(one: LayoutRefusal, profile: GpuProfile, draft: Scenario) -> None:
    one.refuse(draft, profile)


def _messages() -> LayoutRule:
    """Orders whose pairs wait for one another, or that the software's rule of messages does not know.

    A few microbatches tell; of plain 1F1B and its like nothing needs to be asked.
    """
    known: dict[object, str] = {}

    def breaks(draft: Scenario) -> str:
        schedule, shape = schedule_named(draft.schedule), draft.pipeline_shape
        paired = runs_pairs(draft)
        several = shape.chunks > 1 and (not schedule.grouped or shape.group is not None)
        if shape.ranks == 1 or not (
            schedule.two_way or schedule.splits_backward or schedule.overlaps or several
        ):
            return ""
        if not (schedule.two_way or schedule.splits_backward or several or paired):
            return ""
        shape = replace(shape, microbatches=_few(schedule, shape))
        key = draft.schedule, shape, paired
        if key not in known:
            known[key] = _refused_messages(draft, schedule, shape)
        return known[key]

    reads = (PP, VPP, DP, EP, SCHEDULE, MICRO_BATCH, *OPTIONS, "software.exchange.moe_a2a_overlap")
    return LayoutRule(reads=reads, breaks=breaks)


def _few(schedule: Schedule, shape: Shape) -> int:
    """As few microbatches as tell what many do, where the schedule takes so few."""
    unit = shape.group or shape.ranks
    few = min(shape.microbatches, 4 * unit + shape.microbatches % unit)
    try:
        schedule.check(replace(shape, microbatches=few))
    except ValueError:
        return shape.microbatches
    return few


def _refused_messages(draft: Scenario, schedule: Schedule, shape: Shape) -> str:
    try:
        orders = step_orders(draft, schedule, shape)
        rule = point_to_point_rule(draft.software, schedule, shape, orders)
        check_messages(orders, shape, schedule.rank_of, rule)
    except NotSupported as refusal:
        return f"not modelled: {refusal.field}"
    except ValueError:
        return "not modelled: software.point_to_point"
    return ""
