"""A campaign without a model: the step time, and everything else, given directly."""

from __future__ import annotations

from pydantic import Field

from ....hardware.fields import Gpus, Price, SecondsAboveZero, Text
from .detection import Detection
from .faults import Faults
from .fields import FaultsBlock
from .recovery import Checkpoint, Recovery, Run


class BareCluster(FaultsBlock):
    """As much of a cluster as failures need. ``gpu`` and ``interconnect`` say what it is, and change
    nothing.
    """

    gpu: Text = ""
    interconnect: Text = ""
    gpus: Gpus = 8
    gpus_per_node: Gpus = 8
    price_per_gpu_hour: Price | None = None

    @property
    def nodes(self) -> int:
        """Hosts of the job; the last one may not be full."""
        return -(-self.gpus // self.gpus_per_node)


class Bare(FaultsBlock):
    """What stands in a document whose step time is given: no model, no layout, no software."""

    name: Text
    title: Text = ""
    step_time: SecondsAboveZero = Field(description="of a fault-free step", examples=["10 s"])
    cluster: BareCluster = BareCluster()
    faults: Faults = Faults()
    detection: Detection = Detection()
    recovery: Recovery = Recovery()
    checkpoint: Checkpoint = Checkpoint()
    run: Run = Run()
