"""What a preset implies for a scenario: the rules of its framework, read from frameworks/*.yaml.

Knows how a rule is written, which presets it is for, and which framework a preset belongs to. Does not know
what a scenario is: a rule names its fields by their dotted paths, and sim/scenario/frameworks.py holds them
against one. A preset under a name of the user's own is no preset any more, and has no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ....hardware.catalogue import read
from ....hardware.files import read_text

Severity = Literal["", "note", "error"]


@dataclass(frozen=True, kw_only=True)
class PresetRule:
    """One behaviour of a framework.

    ``path`` is the field of a scenario that it fixes; without one it is a fact that no field states. ``when``
    says where it holds: products of fields, each with ``>n``, a value, or a list of values. Of the ways to
    fix a field a rule has one: ``always`` this value; ``among`` these values; ``multiple_of`` a product.
    Names of fields among the values stand for what the fields hold. ``default`` is what the field is where
    nobody states it; ``always`` is a default, too. ``severity`` says what becomes of a scenario that states
    otherwise: ``error`` where the framework runs something else under the same name or refuses, ``note``
    where it lacks what the scenario has, or has it behind an option; empty where any value is its own.
    ``options`` are what its users may set the field to: ``stepsim plan --axes all`` tries these values, or
    those that such a word stands for (sim/plan/axes.py).
    """

    topic: str
    says: str
    source: str
    path: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    always: Any = None
    default: Any = None
    among: tuple[Any, ...] = ()
    multiple_of: tuple[Any, ...] = ()
    options: tuple[Any, ...] = ()
    severity: Severity = ""

    @property
    def fills(self) -> Any:
        """What the field is where nobody states it; None where the rule does not say."""
        return self.default if self.always is None else self.always


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework as one preset has it."""

    name: str
    title: str
    rules: tuple[PresetRule, ...]


_FOLDER = Path(str(files(__package__))) / "frameworks"


@cache
def _document(name: str) -> dict[str, Any]:
    """The file of a framework."""
    return read(_FOLDER / f"{name}.yaml")


@cache
def _texts() -> dict[str, str]:
    """The text of every file of a framework; a file that does not mention a preset is not parsed for it."""
    return {path.stem: read_text(path) for path in sorted(_FOLDER.glob("*.yaml"))}


def _rules(name: str, preset: str) -> tuple[PresetRule, ...]:
    """Rules of the file ``name`` for ``preset``, then those of its basis on other topics."""
    document = _document(name)
    own = [entry for entry in document["rules"] if preset in entry.get("presets", [preset])]
    rules = [_rule(entry) for entry in own]
    if "basis" in document:
        # The basis is the state of one of its presets: as_of says of which.
        inherited = _rules(document["basis"], document["as_of"])
        topics = {rule.topic for rule in rules}
        rules += [rule for rule in inherited if rule.topic not in topics]
    return tuple(rules)


def _rule(entry: Mapping[str, Any]) -> PresetRule:
    known = {one.name for one in fields(PresetRule)}
    stated: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    assert set(stated) - {"presets"} <= known, f"unknown keys in {entry}"
    return PresetRule(**{key: value for key, value in stated.items() if key != "presets"})


@cache
def framework_of(preset: str) -> Framework | None:
    """The framework of a preset; None for a stack of the user's own."""
    for name, text in _texts().items():
        if preset in text and preset in _document(name)["presets"]:
            return Framework(name=name, title=_document(name)["title"], rules=_rules(name, preset))
    return None


def rules_of(preset: str) -> tuple[PresetRule, ...]:
    """What the preset of that name implies; nothing for a stack of the user's own."""
    framework = framework_of(preset)
    return framework.rules if framework else ()
