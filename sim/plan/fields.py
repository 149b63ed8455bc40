"""Fields of a scenario by their dotted names: which there are, and what they are in a document.

Knows blocks as data alone; what a value means, scenarios check.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ...hardware.catalogue import unknown_name
from ..scenario.build import fields_by_block
from ..scenario.errors import Mark, Problem, ScenarioError
from ..scenario.explain import unknown_key

if TYPE_CHECKING:
    from ..scenario.models import Scenario


def field_value(scenario: Scenario, field: str) -> Any:
    """The value of a dotted field of ``scenario``, as a document has it; None too where a block above it was
    left out, or stands there by its name alone."""
    found: Any = scenario
    for name in field.split("."):
        if not isinstance(found, BaseModel):
            return None
        found = getattr(found, name, None)
    if isinstance(found, BaseModel):
        return found.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return list(found) if isinstance(found, tuple) else found


def refuse_unknown(scenario: Scenario, field: str) -> None:
    """ScenarioError for a field that no scenario has."""
    block, _, rest = field.partition(".")
    fields = type(scenario).model_fields
    part = getattr(scenario, block, None) if block in fields else None
    inner = getattr(type(part), "model_fields", None)
    if block in fields and (not rest or inner is None or rest.partition(".")[0] in inner):
        return
    if inner:
        message = str(unknown_name("field", field, [f"{block}.{one}" for one in inner]))
    else:
        message = unknown_key(block, list(fields), fields_by_block())
    raise ScenarioError([Problem(mark=Mark(file=scenario.name), path=field, message=message)])


def slip(wrong: ScenarioError, fields: Collection[str]) -> ScenarioError | None:
    """What is wrong with a value of one of ``fields`` whatever the others are, which no layout can mend; None
    where each of them may be what it is."""
    starts = tuple(start for field in fields for start in (f"{field}.", f"{field}["))
    own = [one for one in wrong.problems if one.path in fields or one.path.startswith(starts)]
    found = [one for one in own if not one.between]
    return ScenarioError(found) if found else None
