"""A scenario as a plain document again: what YAML, JSON and the loader take.

Knows how to leave out what says nothing, and that quantities carry their unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...hardware.quantities import format_quantity
from .optimizers import OptimizerSpec
from .software.presets import get_software, software_names

if TYPE_CHECKING:
    from .models import Scenario
    from .software.software import Software

_FAULT_BLOCKS = ("step_time", "faults", "detection", "recovery", "checkpoint", "run")
"""Written as they were given: some of their fields stand for others."""


def document_of(scenario: Scenario) -> dict[str, Any]:
    """Dicts, lists, text and numbers; ``scenario_from_document`` gives an equal scenario back."""
    document: dict[str, Any] = scenario.model_dump(
        mode="json", exclude_none=True, exclude={"software", *_FAULT_BLOCKS}
    )
    model = scenario.model
    if model.model_copy(update={"padded_vocab_size": None}).padded_for(scenario.parallelism.tp) == model:
        document["model"].pop("padded_vocab_size", None)  # it follows, also where tp is changed
    if scenario.training.optimizer == OptimizerSpec():
        del document["training"]["optimizer"]
    document["software"] = _software(scenario.software)
    if scenario.step_time is not None:
        document["step_time"] = format_quantity(scenario.step_time, "seconds")
    for name in _FAULT_BLOCKS[1:]:
        block = getattr(scenario, name)
        if block is not None:
            document[name] = block.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return document


def _software(software: Software) -> dict[str, Any]:
    """The preset and what differs from it; all fields of a stack that is no preset."""
    fields = software.model_dump()
    if software.name not in software_names():
        return fields
    preset = get_software(software.name).model_dump()
    changed = {key: value for key, value in fields.items() if value != preset[key]}
    return {"preset": software.name, **changed}
