"""The kinds of GPUs that a job runs on: for each its cluster, its profile, and the kernels that were priced.

A job of one kind has one machine. Knows scenarios and catalogues; knows no ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...hardware.calibrated.overlay import calibrated_profile
from ..scenario.machine import gpus_of_kinds
from ..scenario.refusal import NotSupported
from ..scenario.schedules import schedule_named
from .communication import Communication
from .layers.precision import recipe_of
from .refuse import refuse_unsupported

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...hardware.gpu import Gpu
    from ...hardware.profile import GpuProfile
    from ..scenario.models import Scenario
    from .layers.layer_builder import Kernel

FIELD = "cluster.other_gpus"


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """The cluster as if all its GPUs were of one kind, their profile, and the seconds of kernels that were
    priced on them."""

    cluster: Cluster
    profile: GpuProfile
    kernels: dict[Kernel, float] = field(default_factory=dict, repr=False)


def machines_of(scenario: Scenario, cluster: Cluster, profile: GpuProfile) -> tuple[GpuKind, ...]:
    """The kinds of GPUs in the cluster; the first is ``cluster.gpu``, with ``profile``."""
    own = GpuKind(cluster=cluster, profile=profile)
    if not scenario.cluster.other_gpus:
        return (own,)
    others = (
        GpuKind(cluster=replace(cluster, gpu=gpu), profile=_profile(gpu, scenario.calibration))
        for gpu in gpus_of_kinds(scenario.cluster)[1:]
    )
    return (own, *others)


def _profile(gpu: Gpu, entries: tuple[str, ...]) -> GpuProfile:
    """The shipped profile of a GPU; the entries of a scenario are of its first kind."""
    if entries:
        raise NotSupported("calibration", f"{entries[0]} is of one kind of GPU; leave it or other_gpus out")
    return calibrated_profile(gpu, ())


def communication_of(scenario: Scenario, machines: tuple[GpuKind, ...]) -> Communication:
    """What collectives and messages cost among GPUs of each kind, and across kinds."""
    each = [
        Communication(
            cluster=machine.cluster,
            curves=machine.profile.collectives,
            factors=machine.profile.steps,
            measured=scenario.cluster.measured_network,
            nccl=scenario.software.exchange.nccl,
            checked=scenario.software.host.collective_checks,
        )
        for machine in machines
    ]
    return replace(each[0], others=tuple(each[1:]))


def refuse_different(scenario: Scenario, machines: tuple[GpuKind, ...]) -> None:
    """Raise NotSupported where kinds of GPUs would run different programs, and not only the same program at
    different speeds."""
    if len(machines) == 1:
        return
    if schedule_named(scenario.schedule).uses_costs:
        raise NotSupported(FIELD, f"{scenario.schedule} plans by one cost of all stages; choose another")
    recipes = {recipe_of(scenario, machine.cluster.gpu.architecture) for machine in machines}
    if len(recipes) > 1:
        raise NotSupported(
            "training.precision",
            f"kinds of GPUs scale {scenario.training.precision} in different ways; set bf16",
        )
    for machine, other in zip(machines[1:], scenario.cluster.other_gpus or (), strict=True):
        cluster = scenario.cluster.model_copy(update={"gpu": other.gpu, "other_gpus": None})
        refuse_unsupported(scenario.model_copy(update={"cluster": cluster}), machine.profile)
