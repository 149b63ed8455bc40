"""What a scenario's software preset implies for its other blocks: defaults, refusals, notes.

Knows how a rule of software/rules.py is held against a scenario, or against a document that is not one
yet. Does not know the rules: they are data, one file a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from .finding import Finding, choices, neighbours
from .schedules import is_table
from .software.rules import PresetRule, rules_of
from .software.software import Software

Lookup = Callable[[str], Any]
"""The value of a field by its dotted path; None where it is not there."""


def with_defaults_of(
    preset: str, block: str, fields: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, Any]:
    """``fields`` of a block with what the preset's framework makes of those that nobody states.

    ``others`` are the blocks and fields that conditions may read besides, as far as they could be read.
    """
    filled = dict(fields)
    lookup = lookup_in({**others, block: filled})
    for rule in rules_of(preset):
        owner, _, name = rule.path.partition(".")
        if owner == block and name not in filled and rule.fills is not None and applies(rule, lookup):
            filled[name] = rule.fills
    return filled


def with_own_defaults(software: Software, stated: Lookup) -> Software:
    """``software`` with what its framework makes of it under the scenario's other blocks, as gradients of 16
    bits under FP16. What the scenario itself states stays; ``stated`` finds that, and the other blocks."""
    fills = {
        rule.path.rpartition(".")[2]: rule.fills
        for rule in rules_of(software.name)
        if rule.path.startswith("software.")
        and rule.fills is not None
        and stated(rule.path) is None
        and applies(rule, stated)
    }
    return software.with_fields(**fills) if fills else software


def contradictions(preset: str, lookup: Lookup, severity: str) -> Iterator[tuple[PresetRule, Any]]:
    """Rules of that severity that the scenario breaks, with the value that breaks them."""
    for rule in rules_of(preset):
        if rule.severity == severity and (value := broken_value(rule, lookup)) is not None:
            yield rule, value


def broken_value(rule: PresetRule, lookup: Lookup) -> Any:
    """The value of a scenario that breaks the rule; None where it holds, or is about something else."""
    if not rule.path or not applies(rule, lookup):
        return None
    value = _plain(lookup(rule.path))
    return None if value is None or _stands(rule, value, lookup) else value


def reads(rule: PresetRule) -> set[str]:
    """The fields of a scenario that the rule looks at, by their dotted paths."""
    named = [one for one in (*rule.among, *rule.multiple_of) if isinstance(one, str) and "." in one]
    return {name for path in (rule.path, *rule.when, *named) for name in path.split("*") if name}


def refused_by_framework(preset: str, lookup: Lookup) -> Iterator[Finding]:
    """What the preset's framework cannot do, and what would be valid."""
    for rule, value in contradictions(preset, lookup, "error"):
        name = rule.path.rpartition(".")[2]
        yield Finding(
            path=tuple(rule.path.split(".")),
            message=f"{_shown(value)} is not what {preset} does: it {rule.says}; {name} can be"
            f" {_valid(rule, value, lookup)}. See stepsim list software {preset}; a stack that does it"
            f" wants a name of its own, as in software: {{preset: {preset}, name: mine}}",
        )


def notes_of(preset: str, lookup: Lookup) -> Iterator[tuple[str, str]]:
    """What the framework has not, or not by default, in a sentence; and the source of that."""
    for rule, value in contradictions(preset, lookup, "note"):
        yield f"{rule.path} {_shown(value)} is not as {preset} has it: it {rule.says}", rule.source


def lookup_in(scenario: Mapping[str, Any] | BaseModel) -> Lookup:
    """Fields of a scenario, or of blocks of which some may be documents still."""

    def lookup(path: str) -> Any:
        found: Any = scenario
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        return found

    return lookup


def applies(rule: PresetRule, lookup: Lookup) -> bool:
    """Whether the rule's conditions hold; where a field cannot be read they do not."""
    return all(_holds(_product(path, lookup), wanted) for path, wanted in rule.when.items())


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and wanted.startswith(">"):
        return isinstance(value, int | float) and value > float(wanted[1:])
    return bool(value == wanted)


def _product(path: str, lookup: Lookup) -> Any:
    """The product of fields joined by ``*``; fields of a layout that nobody states are 1."""
    names = path.split("*")
    if len(names) == 1:
        value = lookup(path)
        return 1 if value is None and path.startswith("parallelism.") else value
    product = 1.0
    for name in names:
        value = _product(name, lookup)
        if not isinstance(value, int | float):
            return None
        product *= value
    return product


def _stands(rule: PresetRule, value: Any, lookup: Lookup) -> bool:
    if rule.always is not None:
        return bool(value == rule.always)
    if rule.among:
        return value in _values(rule.among, lookup)
    if rule.multiple_of:
        divisor = _divisor(rule, lookup)
        return not isinstance(value, int) or divisor is None or value % divisor == 0
    return True


def _plain(value: Any) -> Any:
    """A choice by its name, a block by its kind; None for lists and tables, which are free."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", value)
    return None if isinstance(kind, tuple | list) or is_table(kind) else kind


def _values(among: tuple[Any, ...], lookup: Lookup) -> list[Any]:
    """Values, and what the fields named among them hold."""
    return [lookup(one) if isinstance(one, str) and "." in one else one for one in among]


def _divisor(rule: PresetRule, lookup: Lookup) -> int | None:
    product = 1
    for one in rule.multiple_of:
        value = _product(one, lookup) if isinstance(one, str) else one
        if not isinstance(value, int):
            return None
        product *= value
    return product


def _shown(value: Any) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _valid(rule: PresetRule, value: Any, lookup: Lookup) -> str:
    """What the field can be, in words."""
    if rule.always is not None:
        return _shown(rule.always)
    if rule.among:
        return choices(dict.fromkeys(_values(rule.among, lookup)))
    divisor = _divisor(rule, lookup)
    return neighbours(value, divisor) if divisor else ""
