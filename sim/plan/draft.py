"""A layout before it is checked: the blocks of a scenario with other values, for rules that read a few.

Checking a whole scenario takes a millisecond, a draft some microseconds. It promises nothing: what does not
fit together in it is what the rules of ``legality.py`` are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ...hardware.fields import FROM_DOCUMENT
from ..scenario.errors import Mark, Problem, ScenarioError
from ..scenario.schedules import schedule_named

if TYPE_CHECKING:
    from ..scenario.models import Scenario


def draft_of(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """A copy of ``scenario`` with the typed ``values`` of dotted fields (``typed``), unchecked.

    Its vocabulary is padded for its tp, as that of a scenario is.
    """
    changes: dict[str, dict[str, Any]] = {}
    whole: dict[str, Any] = {}
    for field, value in values.items():
        block, _, name = field.partition(".")
        if name:
            changes.setdefault(block, {})[name] = value
        else:
            whole[block] = value
    for block, fields in changes.items():
        whole[block] = _changed(getattr(scenario, block), fields)
    if "parallelism" in whole:
        whole["model"] = scenario.model.padded_for(whole["parallelism"].tp)
    return scenario.model_copy(update=whole)


def _changed(part: BaseModel, fields: Mapping[str, Any]) -> BaseModel:
    """A copy of a block with other values of its fields, and of those of its groups of fields."""
    update = {name: value for name, value in fields.items() if "." not in name}
    for field, value in fields.items():
        group, _, name = field.partition(".")
        if name:
            known = update.get(group, getattr(part, group))
            update[group] = known.model_copy(update={name: value})
    return part.model_copy(update=update)


def unpadded(scenario: Scenario) -> Scenario:
    """``scenario`` with its vocabulary as it was before its layout padded it."""
    plain = scenario.model.model_copy(update={"padded_vocab_size": None})
    follows = plain.padded_for(scenario.parallelism.tp) == scenario.model
    return scenario.model_copy(update={"model": plain}) if follows else scenario


def typed(scenario: Scenario, field: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The ``values`` of a field of a layout as a scenario holds them.

    Raises ScenarioError naming the field and the value, for what is none of the field's type.
    """
    return tuple(_typed(scenario, field, value) for value in values)


def _typed(scenario: Scenario, field: str, value: Any) -> Any:
    block, _, name = field.rpartition(".")
    try:
        if not block:
            schedule_named(value)
            return value
        part: Any = scenario
        for one in block.split("."):
            part = getattr(part, one)
        return getattr(type(part).model_validate({**dict(part), name: value}, context=FROM_DOCUMENT), name)
    except ValidationError as failure:
        message = "; ".join(error["msg"] for error in failure.errors(include_url=False))
    except ValueError as refusal:
        message = str(refusal)
    raise ScenarioError([Problem(mark=Mark(file=scenario.name), path=field, message=message, value=value)])
