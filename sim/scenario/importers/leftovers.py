"""Settings that an importer has not read: harmless ones are listed, all that may matter are refused.

Which names are harmless is data (harmless.yaml), one list for all frameworks: they name data, logs,
checkpoint
files and learning rates much alike. What only some frameworks have stands in ignored.yaml.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from ....hardware.files import load_yaml
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


def settle(settings: Settings, *lists: str) -> None:
    """List or refuse every setting that nobody has read; ``lists`` are those of ignored.yaml that hold."""
    own, draft = _ignored(lists), settings.draft
    for name, one in settings.unread():
        if own.fullmatch(name) or is_harmless(name) or _off(one):
            draft.ignored.append(one.name)
        elif _patterns()[1].search(name):
            draft.refuse(one.name, _UNKNOWN, line=_line(one), value=one.value)
        else:
            draft.ignored.append(one.name)
            draft.note(f"{one.name} is not known; nothing in its name touches step time or memory")
    for name in settings.given.unused():
        draft.refuse(f"{GIVEN} {name}", "nothing in the files or the import asks for this name; leave it out")


def _off(setting: Setting) -> bool:
    return setting.value in (None, False, "", "null", "none", "None", [], {})


def _line(setting: Setting) -> int:
    return 0 if setting.file == GIVEN else setting.line
