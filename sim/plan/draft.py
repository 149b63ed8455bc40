"""A layout before it is checked: the blocks of a scenario with other values, for rules that read a few.

Checking a whole scenario takes a millisecond, a draft some microseconds. It promises nothing: what does not
fit together in it is what the rules of ``legality.py`` are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from ...hardware.explain import errors_of
from ...hardware.fields import FROM_DOCUMENT
from ..scenario.errors import Mark, Problem, ScenarioError
from ..scenario.explain import explained
from ..scenario.schedules import schedule_named

if TYPE_CHECKING:
    from ..scenario.model.model import Model
    from ..scenario.models import Scenario

Block = TypeVar("Block", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """Copies of ``base`` with other values of dotted fields, by their places in ``values``; unchecked.

    Blocks of which drafts have the same fields are one object, made once. The vocabulary of a draft is padded
    for its tp, as that of a scenario is.
    """

    base: Scenario
    values: Mapping[str, Sequence[Any]]
    _blocks: dict[tuple[str, ...], tuple[_Block, ...]] = field(default_factory=dict, repr=False)
    _models: dict[int, Model] = field(default_factory=dict, repr=False)

    def of(self, fields: tuple[str, ...], codes: Sequence[int]) -> Scenario:
        """The draft whose ``fields`` have the values of these ``codes``."""
        if fields not in self._blocks:
            self._blocks[fields] = _blocks_of(fields)
        whole: dict[str, Any] = {}
        for block in self._blocks[fields]:
            own = tuple([codes[place] for place in block.places])
            if own not in block.known:
                values = [self.values[fields[place]][codes[place]] for place in block.places]
                block.known[own] = block.changed(getattr(self.base, block.name), values)
            whole[block.name] = block.known[own]
        if "parallelism" in whole:
            whole["model"] = self._model(whole["parallelism"].tp)
        return _copied(self.base, whole)

    def _model(self, tp: int) -> Model:
        if tp not in self._models:
            self._models[tp] = self.base.model.padded_for(tp)
        return self._models[tp]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A block of a scenario, or a field outside of all blocks. ``names`` are the fields that drafts change,
    each with the name of a field inside of it, or an empty one; ``places`` are their places among all changed
    fields; ``known`` holds the blocks made so far, by the codes of their values.
    """

    name: str
    names: tuple[tuple[str, str], ...]
    places: tuple[int, ...]
    known: dict[tuple[int, ...], Any] = field(default_factory=dict)

    def changed(self, part: Any, values: Sequence[Any]) -> Any:
        """A copy of the block, or of the field, with other values."""
        update: dict[str, Any] = {}
        for (name, inner), value in zip(self.names, values, strict=True):
            if not name:
                return value
            if inner:
                update[name] = _copied(update.get(name, getattr(part, name)), {inner: value})
            else:
                update[name] = value
        return _copied(part, update)


def _copied(block: Block, update: Mapping[str, Any]) -> Block:
    """``block.model_copy(update=update)`` of a frozen block, which has nothing else to copy: enumerating
    100,000 layouts makes some 30,000 copies, and pydantic's takes three times as long."""
    made = type(block).__new__(type(block))
    for name, value in (
        ("__dict__", {**block.__dict__, **update}),
        ("__pydantic_fields_set__", block.__pydantic_fields_set__ | update.keys()),
        ("__pydantic_extra__", block.__pydantic_extra__),
        ("__pydantic_private__", block.__pydantic_private__),
    ):
        object.__setattr__(made, name, value)
    return made


def _blocks_of(fields: Sequence[str]) -> tuple[_Block, ...]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(fields):
        places.setdefault(name.partition(".")[0], []).append(place)
    split = [name.partition(".")[2].partition(".") for name in fields]
    return tuple(
        _Block(name=block, names=tuple((split[one][0], split[one][2]) for one in own), places=tuple(own))
        for block, own in places.items()
    )


def unpadded(scenario: Scenario) -> Scenario:
    """``scenario`` with its vocabulary as it was before its layout padded it."""
    plain = scenario.model.model_copy(update={"padded_vocab_size": None})
    follows = plain.padded_for(scenario.parallelism.tp) == scenario.model
    return scenario.model_copy(update={"model": plain}) if follows else scenario


def typed(scenario: Scenario, name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The ``values`` of a field of a layout as a scenario holds them.

    Raises ScenarioError naming the field and the value, for what is none of the field's type.
    """
    return tuple(_typed(scenario, name, value) for value in values)


def _typed(scenario: Scenario, dotted: str, value: Any) -> Any:
    block, _, name = dotted.rpartition(".")
    try:
        if not block:
            schedule_named(value)
            return value
        part: Any = scenario
        for one in block.split("."):
            part = getattr(part, one)
        return getattr(type(part).model_validate({**dict(part), name: value}, context=FROM_DOCUMENT), name)
    except ValidationError as failure:
        message = "; ".join(explained(error, type(part), {}) for error in errors_of(failure))
    except ValueError as refusal:
        message = str(refusal)
    raise ScenarioError([Problem(mark=Mark(file=scenario.name), path=dotted, message=message, value=value)])
