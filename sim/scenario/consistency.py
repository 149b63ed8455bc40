"""Every inconsistency within and between the parts of a scenario, in the order in which it is reported.

Knows which rule needs which parts, and which mistakes make others not worth reporting. The rules themselves
are in checks.py and the files beside it. A part that could not be read is None; what needs it is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checks import (
    batch_divides,
    documents_fit,
    domains_are_whole_hosts,
    experts_fit,
    fabric_is_sound,
    hardware_exists,
    heads_exchange,
    hosts_are_full,
    layout_is_sound,
    loss_scale_fits,
    placed_by_speed_alone,
    routing_fits,
    sequence_divides,
    shards_fit,
    tensor_parallel_divides,
    world_size_matches,
)
from .checks_neighbours import neighbours_fit
from .checks_other_gpus import other_gpus_fit
from .checks_pipeline import layers_fit_stages, schedule_accepts_shape, schedule_fits_layout
from .checks_recompute import recompute_fits
from .checks_software import (
    columns_are_summed_apart,
    compiler_leaves_biases,
    heads_are_turned_in_their_product,
    logits_are_held_of_torchs_loss,
    metrics_copy_logits_that_are_there,
    operators_of_experts,
    owners_hold_whole_parameters,
    weights_are_cast_before_they_are_gathered,
    z_loss_within_a_loss_with_sums,
)
from .frameworks import lookup_in, refused_by_framework
from .schedules import traits_of

if TYPE_CHECKING:
    from .blocks import ClusterSpec, Parallelism, ScheduleOptions, Training
    from .faults.faults import Faults
    from .finding import Finding
    from .model.model import Model
    from .software.software import Software


@dataclass(frozen=True, kw_only=True)
class ScenarioParts:
    """The blocks of a scenario that were read; None stands for one that was not."""

    model: Model | None = None
    cluster: ClusterSpec | None = None
    parallelism: Parallelism | None = None
    training: Training | None = None
    schedule: str | None = None
    options: ScheduleOptions | None = None
    faults: Faults | None = None
    software: Software | None = None


def findings(parts: ScenarioParts) -> list[Finding]:
    """Every inconsistency within and between the given parts."""
    found, wrong_sizes, cluster = _of_single_parts(parts), _wrong_sizes(parts), parts.cluster
    if parts.model and parts.parallelism:
        found += _of_model(parts, parts.model, parts.parallelism)
    if cluster and not any(one.path == ("cluster", "gpus") for one in wrong_sizes):  # once is enough
        found += [*hosts_are_full(cluster), *domains_are_whole_hosts(cluster)]
    if wrong_sizes:  # what follows from tp, dp or gpus would say nothing new
        return wrong_sizes + found
    if cluster:
        _add_of_cluster(found, parts, cluster)
    if parts.parallelism and parts.training:
        found += sequence_divides(parts.parallelism, parts.training)
    if cluster and parts.parallelism:
        found += shards_fit(parts.model, parts.parallelism)
        if parts.training:
            _add_of_batch(found, parts, parts.parallelism, parts.training)
    return found


def _of_single_parts(parts: ScenarioParts) -> list[Finding]:
    """What is wrong with the software, the hardware, the faults or the layout, each by itself."""
    found: list[Finding] = []
    if parts.software:
        blocks = {name: getattr(parts, name) for name in ("model", "parallelism", "training", "schedule")}
        found += refused_by_framework(parts.software.name, lookup_in(blocks))
    if parts.cluster:
        found += hardware_exists(parts.cluster)
    if parts.training:
        found += documents_fit(parts.training)
    if parts.faults:
        from .checks_faults import presets_exist

        found += presets_exist(parts.faults)
    if parts.parallelism:
        found += layout_is_sound(parts.parallelism)
        found += schedule_fits_layout(parts.schedule, parts.parallelism) if parts.schedule else ()
    return found


def _wrong_sizes(parts: ScenarioParts) -> list[Finding]:
    """What tp does not divide; if it divides all, whether the layout has as many ranks as there are GPUs."""
    if parts.parallelism is None:
        return []
    shared = parts.software is not None and parts.software.exchange.shared_kv_heads
    wrong = (
        list(tensor_parallel_divides(parts.model, parts.parallelism, heads_are_shared=shared))
        if parts.model
        else []
    )
    return wrong or (list(world_size_matches(parts.cluster, parts.parallelism)) if parts.cluster else [])


def _of_model(parts: ScenarioParts, model: Model, parallelism: Parallelism) -> Iterator[Finding]:
    """Whether the layout, and the work of a step, fit the model."""
    yield from experts_fit(model, parallelism)
    yield from layers_fit_stages(model, parallelism)
    if parts.training:
        yield from recompute_fits(model, parallelism, parts.training, parts.schedule)
        yield from loss_scale_fits(parts.training, parts.schedule)
        yield from routing_fits(model, parts.training)
    if parts.software:
        yield from compiler_leaves_biases(model, parts.software)
        yield from operators_of_experts(model, parts.software)
        yield from owners_hold_whole_parameters(parts.software)
        yield from logits_are_held_of_torchs_loss(parts.software)
        yield from metrics_copy_logits_that_are_there(parts.software)
        yield from z_loss_within_a_loss_with_sums(parts.software)
        yield from columns_are_summed_apart(parts.software)
        yield from heads_are_turned_in_their_product(model, parts.software)
        if parts.training:
            yield from weights_are_cast_before_they_are_gathered(parts.software, parallelism, parts.training)
    yield from heads_exchange(model, parallelism)


def _add_of_cluster(found: list[Finding], parts: ScenarioParts, cluster: ClusterSpec) -> None:
    """Add what is wrong with the fabric and what is on it; once something is, little else can be said."""

    def is_sound() -> bool:
        return not any(one.path[0] == "cluster" for one in found)

    found += fabric_is_sound(cluster) if is_sound() else ()
    found += neighbours_fit(cluster) if is_sound() else ()
    found += [*other_gpus_fit(cluster, parts.training), *placed_by_speed_alone(cluster)]
    if parts.faults and is_sound():
        from .checks_faults import machine_of, targets_exist

        counts = machine_of(cluster, parts.parallelism, parts.faults.domains).counts
        found += targets_exist(parts.faults, counts)


def _add_of_batch(
    found: list[Finding], parts: ScenarioParts, parallelism: Parallelism, training: Training
) -> None:
    """Add what is wrong with the batch, and with its microbatches in the schedule."""
    schedule, options = parts.schedule, parts.options
    grouped = schedule and traits_of(schedule).grouped and not (options and options.group)
    wrong_batch = list(batch_divides(parallelism, training, schedule if grouped else None))
    found += wrong_batch
    placed = not any(one.path in (("schedule",), ("parallelism", "vpp")) for one in found)
    if schedule and placed and not wrong_batch:
        found += schedule_accepts_shape(schedule, parallelism, training, options)
