"""The blocks of a scenario that are of weeks with faults, loaded where a document has one of them.

A step has none, and loading their 38 models makes a fourteenth of all calls until a plan has its layouts.
Knows where each block is; what is in it is known there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

FAULT_BLOCKS = ("faults", "detection", "recovery", "checkpoint", "run")
"""Names of the blocks in a document."""


def fault_blocks() -> dict[str, type[BaseModel]]:
    """The model of each block by its name."""
    from .faults.detection import Detection
    from .faults.faults import Faults
    from .faults.recovery import Checkpoint, Recovery, Run

    models = Faults, Detection, Recovery, Checkpoint, Run
    return dict(zip(FAULT_BLOCKS, models, strict=True))
