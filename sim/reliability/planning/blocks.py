"""The fault blocks of a loaded document, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...scenario.faults.detection import Detection
from ...scenario.faults.faults import Faults
from ...scenario.faults.recovery import Checkpoint, Recovery, Run

if TYPE_CHECKING:
    from ...scenario.faults.bare import Bare
    from ...scenario.faults.machine import Machine
    from ...scenario.models import Scenario
    from ...scenario.price import GpuHourPrice


@dataclass(frozen=True, kw_only=True)
class CampaignBlocks:
    """The fault blocks of a document, defaults filled in. ``scenario`` is None in a bare campaign, ``price``
    that of a GPU-hour where there is one.
    """

    name: str
    title: str
    scenario: Scenario | None
    machine: Machine
    step_time: float | None
    faults: Faults
    detection: Detection
    recovery: Recovery
    checkpoint: Checkpoint
    run: Run
    price: GpuHourPrice | None = None


def blocks_of(loaded: Scenario | Bare) -> CampaignBlocks:
    """The blocks of a loaded document. ValueError for a scenario that says nothing of faults."""
    from ...scenario.checks_faults import bare_machine, machine_of
    from ...scenario.faults.bare import Bare
    from ...scenario.price import price_of

    if isinstance(loaded, Bare):
        machine = bare_machine(loaded.cluster, loaded.faults.domains, loaded.recovery.elastic.replicas)
        return CampaignBlocks(
            name=loaded.name,
            title=loaded.title,
            scenario=None,
            machine=machine,
            step_time=loaded.step_time,
            faults=loaded.faults,
            detection=loaded.detection,
            recovery=loaded.recovery,
            checkpoint=loaded.checkpoint,
            run=loaded.run,
            price=_stated(loaded.cluster.price_per_gpu_hour),
        )
    if loaded.faults is None:
        raise ValueError(
            f"{loaded.name}: this scenario has no block faults; give it one, as in "
            "--set 'faults.presets=[llama3-2024]' --set checkpoint.storage.every=30min"
        )
    return CampaignBlocks(
        name=loaded.name,
        title=loaded.title,
        scenario=loaded,
        machine=machine_of(loaded.cluster, loaded.parallelism, loaded.faults.domains),
        step_time=loaded.step_time,
        faults=loaded.faults,
        detection=loaded.detection or Detection(),
        recovery=loaded.recovery or Recovery(),
        checkpoint=loaded.checkpoint or Checkpoint(),
        run=loaded.run or Run(),
        price=price_of(loaded.cluster),
    )


def _stated(price: float | None) -> GpuHourPrice | None:
    from ...scenario.price import GpuHourPrice

    if price is None:
        return None
    return GpuHourPrice(amount=price, currency="USD", source="cluster.price_per_gpu_hour")
