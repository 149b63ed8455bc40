"""What a prediction rests on: calibrated curves, software facts, network figures, each with its source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...hardware.step_factors import CAUSES
from ...kernels.cost import in_range
from ...kernels.kernel import Attention, Gemm, Kernel
from ..lowering.communication import CollectiveRequest, nearest_curve
from ..lowering.layers.routing import dropped_share, rank_loads
from ..result.step import Assumption
from ..scenario.frameworks import lookup_in, notes_of
from .placement_facts import placement_facts

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile, Provenance
    from ..lowering.plan import StepPlan
    from ..scenario.routing import RoutingSpec


SHARDING = {
    "distributed-optimizer": "Megatron-LM core/distributed (whole parameters, sharded state)",
    "fsdp1": "torch/distributed/fsdp/_runtime_utils.py",
    "fsdp2": "torch/distributed/fsdp/_fully_shard; torchtitan infra/parallelize.py, apply_fsdp",
    "deepspeed": "deepspeed/runtime/zero/partitioned_param_coordinator.py, stage3.py",
    "megatron-fsdp": "megatron/core/distributed/fsdp",
    "xla": "openxla/xla xla/service/gpu/gpu_latency_hiding_scheduler.cc, xla/service/collective_utils.h",
}
"""Where each implementation's rule is read off (sim/scenario/sharding.py)."""


NO_PRESET = "no preset; what the scenario says of it, and defaults of no trainer"


def assumptions(plan: StepPlan) -> tuple[Assumption, ...]:
    """Every fact that the step time depends on and that a user could doubt."""
    profile, software = plan.profile, plan.scenario.software
    gemms = [k for k in plan.kernels if isinstance(k, Gemm)]
    fused = [k for k in plan.kernels if isinstance(k, Attention)]
    found = [
        _curve("GEMM shapes", profile.gemm.provenance, gemms, profile),
        *(_rate(profile, dtype) for dtype in sorted({k.dtype for k in gemms})),
    ]
    if fused:
        curve = next(c for c in profile.attention if c.implementation == fused[0].implementation)
        found.append(_curve(f"attention {curve.implementation}", curve.provenance, fused, profile))
    found.append(
        Assumption(
            text=f"HBM: pointwise kernels reach {profile.memory.pointwise_efficiency:.0%} of peak",
            source=profile.memory.provenance.source,
        )
    )
    found.append(
        Assumption(
            text=f"sustained clock {profile.clock_fraction:.3g} of the best measured rate",
            source=profile.step_time_fit,
        )
    )
    found += [*_own_steps(profile), *_launches(plan)]
    found += _own_products(plan)
    found.append(
        Assumption(text=f"software {software.name}: {software.title or NO_PRESET}", source=software.source)
    )
    found += [*_framework(plan), *_sharding(plan), *_network(plan), *_own_collectives(plan)]
    found += _hardware(plan)
    found += [*_router(plan), *placement_facts(plan)]
    found.append(
        Assumption(
            text="ranks with equal programs, groups and links do the same at the same time",
            source="folding is exact: --no-fold replays every rank",
        )
    )
    return tuple(found)


def _own_products(plan: StepPlan) -> list[Assumption]:
    """What GEMMs on the cluster's own GPUs sustain under their power limit, over what is predicted for their
    type."""
    power = plan.scenario.cluster.power
    if power is None or power.measured_products is None:
        return []
    text = f"long GEMMs reach {power.measured_products:.3g} times the rate told of {plan.cluster.gpu.name}"
    return [Assumption(text=text, source="cluster.power.measured_products")]


def _own_steps(profile: GpuProfile) -> list[Assumption]:
    """How the user's own measured steps change the durations that this step is made of."""
    own = profile.steps
    if not own.runs:
        return []
    factors = ", ".join(f"{cause} x {getattr(own, cause):.3g}" for cause in CAUSES)
    names = ", ".join(run.name for run in own.runs)
    return [Assumption(text=f"durations by own steps: {factors}", source=f"measured steps: {names}")]


def _launches(plan: StepPlan) -> list[Assumption]:
    """How much longer launches take than on the hosts on which they were timed."""
    node = plan.cluster.node
    if node.launch_factor == 1.0:
        return []
    text = f"launches take {node.launch_factor:.3g} times as long as on x86: {node.cpus}"
    return [Assumption(text=text, source="cluster.node.launch_factor" if plan.cluster.host else node.source)]


def _framework(plan: StepPlan) -> list[Assumption]:
    """What of the scenario its framework has not, or not by default, and how the vocabulary is padded."""
    scenario = plan.scenario
    found = [
        Assumption(text=text, source=source, note=True)
        for text, source in notes_of(scenario.software.name, lookup_in(scenario))
    ]
    model = scenario.model
    if model.embedding_rows != model.vocab_size:
        text = f"vocabulary of {model.vocab_size:,} padded to {model.embedding_rows:,} rows"
        source = "model.padded_vocab_size; FLOPs and MFU count the padded rows, as Megatron-LM does"
        found.append(Assumption(text=text, source=source))
    return found


def _router(plan: StepPlan) -> list[Assumption]:
    """How evenly the router spreads tokens, and what a capacity drops."""
    scenario = plan.scenario
    if scenario.model.moe is None:
        return []
    routing, loads = scenario.training.routing, rank_loads(scenario)
    dropped = dropped_share(scenario)
    text = f"the busiest rank's experts get {max(loads):.3g} times the mean"
    if scenario.model.moe.capacity_factor is not None:
        text = f"experts are padded to their capacity; {dropped:.1%} of the copies of tokens are dropped"
    return [Assumption(text=text, source=f"training.routing: {_spread(routing)}")]


def _spread(routing: str | RoutingSpec) -> str:
    """A phrase for how tokens are spread over experts."""
    if isinstance(routing, str):
        return routing
    if routing.tokens is not None:
        return f"{routing.tokens} different tokens, each with experts drawn at random"
    return routing.file or f"Zipf, exponent {routing.exponent}"


def _sharding(plan: StepPlan) -> list[Assumption]:
    """Whose rule gathers parameters and reduces gradients under ZeRO-2 and ZeRO-3, and what offload costs."""
    run, found = plan.scenario, []
    if run.parallelism.zero >= 2:
        name = run.software.sharding.implementation
        found.append(Assumption(text=f"ZeRO-{run.parallelism.zero} as {name} does it", source=SHARDING[name]))
    if run.training.offloads_state:
        text = "the CPU's update reaches half of the host memory's rate"
        if run.software.host.update_threads is not None:
            text += ", or what its threads move"
        found.append(
            Assumption(text=text, source="unverified (sim/lowering/updates/offload.py)", in_range=False)
        )
    return found


def _curve(name: str, provenance: Provenance, kernels: Iterable[Kernel], profile: GpuProfile) -> Assumption:
    shapes = list(kernels)
    inside = sum(in_range(kernel, profile) for kernel in shapes)
    how = "carried from other GPUs" if provenance.carried else "measured"
    return Assumption(
        text=f"{name}: {how}; {inside} of {len(shapes)} shapes inside the measured range",
        source=provenance.source,
        in_range=inside == len(shapes) and not provenance.carried,
    )


def _rate(profile: GpuProfile, dtype: str) -> Assumption:
    name = dtype if any(rate.dtype == dtype for rate in profile.gemm.rates) else "bf16"
    rate = next(rate for rate in profile.gemm.rates if rate.dtype == name)
    text = f"{dtype} GEMM: best shape reaches {rate.fraction:.0%} of peak"
    return Assumption(text=text, source=rate.provenance.source, in_range=not rate.provenance.carried)


def _network(plan: StepPlan) -> list[Assumption]:
    interconnect = plan.cluster.interconnect
    if plan.cluster.nodes == 1:
        return []
    source = "; ".join(interconnect.sources.values())
    found = [Assumption(text=f"interconnect {interconnect.name}", source=source)]
    if plan.scenario.cluster.measured_network is not None:
        text = "bandwidth of collectives scaled by the job's own measurement"
        found.append(Assumption(text=text, source="cluster.measured_network"))
    return found


def _hardware(plan: StepPlan) -> list[Assumption]:
    """A machine that is no part of the catalogue: what of its description was left out, and taken from
    where."""
    gpu, network = plan.cluster.gpu, plan.cluster.interconnect
    found = []
    if gpu.same_kernels:
        text = f"GPU {gpu.name}: kernels are those of {gpu.profile_of}, whose figures that decide them it has"
        found.append(Assumption(text=text, source="cluster.gpu"))
    elif gpu.own:
        text = f"GPU {gpu.name}: never measured; kernels run at the efficiencies of {gpu.profile_of}"
        found.append(Assumption(text=text, source="cluster.gpu", in_range=False))
    elif gpu.announced:
        text = f"{gpu.name} is announced, not sold: its figures may change"
        found.append(Assumption(text=text, source=gpu.sources["peaks"], in_range=False))
    for other in plan.scenario.cluster.other_gpus or ():
        where = "a host" if len(other.hosts) == 1 else f"{len(other.hosts)} hosts"
        text = f"{other.gpu} in {where}: the interval is that of {gpu.name}"
        found.append(Assumption(text=text, source="cluster.other_gpus", in_range=False))
    away = plan.cluster.nodes > 1
    for what, carried in (("gpu", gpu.carried), ("interconnect", network.carried if away else ())):
        for one in carried:
            wide = f", which spreads by {one.sigma:.0%} among its relatives" if one.sigma else ""
            text = f"{what}.{one.field} {one.value}: as {one.relative}{wide}"
            found.append(Assumption(text=text, source=f"cluster.{what} leaves it out", in_range=False))
    return found


def _own_collectives(plan: StepPlan) -> list[Assumption]:
    """What the user's own curves say of the communications of this step; a line for each kind and group."""
    if not plan.profile.collectives:
        return []
    groups: dict[tuple[str, int, int], list[CollectiveRequest]] = {}
    for asked in plan.communication.asked:
        groups.setdefault((asked.kind, asked.ranks, asked.domains), []).append(asked)
    found = []
    for (kind, ranks, domains), members in sorted(groups.items()):
        name = f"{kind} of {ranks} ranks in {domains} NVLink domain{'s' if domains > 1 else ''}"
        curve = nearest_curve(plan.profile.collectives, kind, ranks, domains)
        if curve is None:
            found.append(Assumption(text=f"{name}: not among the own measurements", source="as shipped"))
            continue
        same = (curve.ranks, curve.domains) == (ranks, domains)
        inside = sum(curve.covers(asked.bytes) for asked in members)
        how = "own measurements" if same else f"carried from {curve.ranks} ranks, own measurements"
        text = f"{name}: {how}; {inside} of {len(members)} sizes inside the measured range"
        within = same and inside == len(members)
        found.append(Assumption(text=text, source=curve.provenance.source, in_range=within))
    return found
