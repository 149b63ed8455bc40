"""Settings that an importer has not read: harmless ones are listed, all that may matter are refused.

Which names are harmless is data (harmless.yaml), one list for all frameworks: they name data, logs,
checkpoint files and learning rates much alike. What only some frameworks have stands in ignored.yaml, and
what is harmless at some values alone in other_values.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from ....hardware.files import load_yaml
from .plain_names import plain_name
from .settings import GIVEN, Setting, Settings

_UNKNOWN = (
    "this setting is not known, and its name says that it may touch parallelism, recomputation, precision,"
    " overlap or the model; leave it out, or say what it means in a scenario"
)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = "harmless.yaml"
    table = load_yaml((files(__package__) / name).read_text(encoding="utf-8"), name)
    harmless = "|".join(re.sub(r"\s", "", text).strip("|") for text in table["harmless"].values())
    return re.compile(rf"(?:{harmless})\Z"), re.compile(re.sub(r"\s", "", table["touching"]))


def is_harmless(name: str) -> bool:
    """Whether a setting of that plain name changes neither step time nor memory."""
    return _patterns()[0].match(name.rpartition(".")[2]) is not None


@cache
def _ignored(lists: tuple[str, ...]) -> re.Pattern[str]:
    name = "ignored.yaml"
    table = load_yaml((files(__package__) / name).read_text(encoding="utf-8"), name)
    return re.compile("|".join(re.sub(r"\s", "", table[one]).strip("|") for one in lists), re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class OtherValue:
    """What another value than one of ``same`` means: a refusal, or else a note."""

    pattern: re.Pattern[str]
    same: tuple[Any, ...]
    refuse: str | None
    note: str | None


@cache
def _other_values(lists: tuple[str, ...]) -> tuple[OtherValue, ...]:
    name = "other_values.yaml"
    table = load_yaml((files(__package__) / name).read_text(encoding="utf-8"), name)
    return tuple(
        OtherValue(
            pattern=re.compile(pattern, re.IGNORECASE),
            same=tuple(entry.get("same", ())),
            refuse=entry.get("refuse"),
            note=entry.get("note"),
        )
        for one in ("all", *lists)
        for pattern, entry in table.get(one, {}).items()
    )


def settle(settings: Settings, *lists: str) -> None:
    """List or refuse every setting that nobody has read; ``lists`` are those of ignored.yaml that hold."""
    own, draft = _ignored(lists), settings.draft
    for name, one in settings.unread():
        other = _other_value(name, one, lists)
        if other is not None and other.refuse:
            one.refuse(draft, other.refuse)
            continue
        if other is not None:
            draft.note(f"{one.name}: {other.note}")
        if own.fullmatch(name) or is_harmless(name) or _off(one):
            draft.ignored.append(one.name)
        elif _patterns()[1].search(name):
            one.refuse(draft, _UNKNOWN + _nearest(one, settings.read))
        else:
            draft.ignored.append(one.name)
            hint = _nearest(one, settings.read)
            draft.note(f"{one.name} is not known; nothing in its name touches step time or memory{hint}")
    for name in settings.given.unused():
        draft.refuse(f"{GIVEN} {name}", "nothing in the files or the import asks for this name; leave it out")


def _nearest(setting: Setting, known: Iterable[str]) -> str:
    """The one of the ``known`` names of which this is a slip, as a question; nothing where none is near."""
    near = get_close_matches(plain_name(setting.name), known, n=1, cutoff=0.85)
    if not near:
        return ""
    name = f"--{near[0].replace('_', '-')}" if setting.name.startswith("--") else near[0]
    return f". Did you mean {name}?"


def _other_value(name: str, setting: Setting, lists: tuple[str, ...]) -> OtherValue | None:
    """What a setting means that has none of its harmless values; None where it has, or where all are."""
    plain = name.rpartition(".")[2]
    for one in _other_values(lists):
        if one.pattern.fullmatch(name) or one.pattern.fullmatch(plain):
            harmless = setting.value in one.same or (setting.value is not True and _is_off(setting, one))
            return None if harmless else one
    return None


def _is_off(setting: Setting, other: OtherValue) -> bool:
    """Whether the setting is off; a switch that is harmless when it is on is not, when it is off."""
    return _off(setting) and not (True in other.same and setting.value is False)


def _off(setting: Setting) -> bool:
    return setting.value in (None, False, "", "null", "none", "None", [], {})
