"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .report.result import PathSegment, RankClass, Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .scenario.models import Scenario
    from .step.lower import Lowered


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    Raises:
        NotSupported: a legal scenario that the simulator cannot express; names the field.
    """
    from .engine.replay import replay
    from .step.lower import lower

    say = progress or (lambda _: None)
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    say("building the cluster")
    cluster = build_cluster(scenario)
    timing = {"build_s": lap()}
    say("lowering")
    lowered = lower(scenario, cluster, profile=profile)
    timing["lower_s"] = lap()
    timing["fold_s"] = 0.0  # structural: one class per pipeline rank, found while lowering
    say(f"replaying {len(lowered.programs.classes)} classes of {scenario.cluster.gpus:,} ranks")
    record = replay(lowered.programs)
    timing["replay_s"] = lap()
    return read_result(lowered, record, timing, clock[0])


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names, in closed form."""
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import Fabric, default_fabric
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import get_interconnect

    spec = scenario.cluster
    interconnect = get_interconnect(spec.interconnect)
    fabric = default_fabric(interconnect)
    if spec.fabric.model_fields_set and interconnect.connects_hosts:
        fabric = Fabric(kind=spec.fabric.kind, oversubscription=spec.fabric.oversubscription)
    return Cluster(
        gpu=get_gpu(spec.gpu),
        gpus=spec.gpus,
        gpus_per_node=spec.gpus_per_node,
        interconnect=interconnect,
        fabric=fabric,
    )


def read_result(lowered: Lowered, record: Record, timing: dict[str, float], began: float) -> Result:
    """Figures of a replayed step."""
    from .assumptions import assumptions
    from .engine.accounting import action_spans, iter_spans, rank_time
    from .engine.critical_path import critical_path
    from .model.sizes import model_flops, recomputed_flops
    from .step.memory import memory_of

    scenario, cluster = lowered.scenario, lowered.cluster
    actions = action_spans(record)
    times = [rank_time(record, r) for r in range(len(record.programs.classes))]
    model, batch, length = scenario.model, scenario.training.global_batch, scenario.training.seq_length
    needed = model_flops(model, batch, length)
    full = sum(stage.recomputed for stage in lowered.stages)
    attention = model.num_layers - full if scenario.training.recompute == "selective" else 0
    busy_s = sum(t.busy_s for t in times)
    exposed = {
        axis: sum(t.exposed.get(axis, 0.0) for t in times) / len(times)
        for axis in ("tp", "cp", "ep", "pp", "dp")
    }
    timing["total_s"] = time.perf_counter() - began
    return Result(
        scenario=scenario,
        step_time_s=record.makespan_s,
        tokens_per_step=float(scenario.training.global_batch * scenario.training.seq_length),
        model_flops=needed,
        model_flops_causal=model_flops(model, batch, length, causal=True),
        hardware_flops=needed
        + recomputed_flops(model, batch, length, full_layers=full, attention_layers=attention),
        peak_flops_per_gpu=cluster.gpu.peak_flops[_peak_dtype(scenario.training.precision)],
        ranks=_rank_classes(lowered),
        actions=actions,
        # A rank without layers (more stages than layers) idles all along: over the others' mean busy time.
        bubble_per_stage=tuple(t.bubble_s / (t.busy_s or busy_s / len(times)) for t in times),
        bubble_fraction=sum(t.bubble_s for t in times) / busy_s,
        exposed_communication_s=exposed,
        memory=memory_of(lowered, actions),
        critical_path=tuple(PathSegment(name=n, seconds=s) for n, s in critical_path(record).items()),
        assumptions=assumptions(lowered),
        timing=timing,
        events=record.events,
        spans_source=lambda: iter_spans(record),
    )


def _peak_dtype(precision: str) -> str:
    return "tf32" if precision == "fp32" else precision


def _rank_classes(lowered: Lowered) -> tuple[RankClass, ...]:
    groups = lowered.groups
    return tuple(
        RankClass(name=f"pp {r}", pp=r, count=groups.ranks_per_stage, first_rank=first)
        for r, first in enumerate(groups.first_rank)
    )
