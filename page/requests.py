"""What the page may ask, field by field.

Knows the shape of each request and its limits. Does not know the language of scenarios, whose documents they
carry.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST_EVENTS = 1_000_000
"""Events of a replay that the page asks for: about two minutes (sim/estimate.py). Shipped scenarios take up
to 410,000."""

Lines = Annotated[list[Annotated[str, Field(max_length=400)]], Field(max_length=64)]
Values = Annotated[list[Any], Field(min_length=1, max_length=64)]


class CatalogueRequest(BaseModel):
    """What there is to choose from: nothing is asked."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PageRequest(CatalogueRequest):
    """The body of every other request: the scenario's document."""

    document: dict[str, Any]


class PredictRequest(PageRequest):
    """One step, with ``faults`` as lines of ``--fault``; its ``schedule`` as boxes, and pictures."""

    faults: Lines = []
    schedule: bool = True
    timeline: bool = False
    topology: bool = False


class MemoryRequest(PageRequest):
    """The memory bill."""


class PlanRequest(PageRequest):
    """The best layouts; fields as ``stepsim plan`` has them. ``points``: layouts that are sent at most.

    With ``find`` one number is sought in their place: the fewest gpus, the longest seq_length, ...
    """

    fix: dict[str, Any] = {}
    vary: Annotated[dict[str, Values], Field(max_length=8)] = {}
    top: Annotated[int, Field(ge=1, le=50)] = 10
    objective: str = "step-time"
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    budget: Annotated[float, Field(gt=0)] | None = None
    fits: float = 0.9
    axes: str = "layout"
    find: Annotated[str, Field(max_length=20)] | None = None
    points: Annotated[int, Field(ge=0, le=20_000)] = 4_000


class FaultsRequest(PageRequest):
    """Weeks of the run, with further faults as ``lines``."""

    lines: Lines = []
    replications: Annotated[int, Field(ge=1, le=1_000)] | None = None
    what_if: bool = False


class SweepRequest(PageRequest):
    """One or two fields over ranges, as ``--sweep`` has them: ``checkpoint.storage.every=5min..2h``."""

    axes: Annotated[list[Annotated[str, Field(max_length=400)]], Field(min_length=1, max_length=2)]
    replications: Annotated[int, Field(ge=1, le=200)] = 8


class StreamsRequest(PageRequest):
    """What runs on every stream within ``window``, first and last second."""

    window: Annotated[list[float], Field(min_length=2, max_length=2)]
    faults: Lines = []


class TraceRequest(PageRequest):
    """The step as a trace for Perfetto."""


class ExportRequest(PageRequest):
    """The scenario in other words: ``yaml``, or the flags or file of a framework."""

    to: Annotated[str, Field(max_length=40)]
