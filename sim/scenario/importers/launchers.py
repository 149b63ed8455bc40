"""Which of several scripts of a run starts the others, and the launch that all of them together say.

Does not know what a training script's options mean.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....hardware.shown import clipped
from .arguments import Launch, launch_of
from .draft import Draft
from .settings import Given
from .sources import SourceFile


def launch_among(first: SourceFile, files: Sequence[SourceFile], given: Given, draft: Draft) -> Launch:
    """The launch of the scripts among ``files``: that of the one which no other names.

    ``first`` is the one that an importer knows. YAML files are there for scripts that read them.

    Raises:
        ValueError: a script cannot be read, or scripts that do not belong together.
    """
    scripts = [one for one in files if one.kind == "shell"]
    top = first if first.kind == "arguments" else _top(scripts)
    others = {one.name: one.text for one in files if one is not top}
    documents = {one.name: one.document for one in files if isinstance(one.document, dict)}
    launch = launch_of(top, given.values, others, documents)
    texts = [one.text for one in files]
    given.used.update(name for name in given.values if any(_names(name, text) for text in texts))
    if len(files) > 1 and len(launch.trainings) > 1:
        lines = ", ".join(map(str, launch.trainings))
        raise ValueError(f"{top.name}: starts several trainings (lines {lines}); leave one of them in")
    for file in launch.sourced:
        draft.note(
            f"{clipped(file, 100)} is sourced and was not given; give it as another file if it sets options"
        )
    return launch


def _names(name: str, text: str) -> bool:
    """Whether a script takes, or sets, the variable of that name; in arithmetic it has no dollar sign."""
    sets = re.search(rf"^\s*(?:export\s+)?{re.escape(name)}=", text, re.MULTILINE)
    return f"{{{name}" in text or f"${name}" in text or sets is not None


def _top(scripts: Sequence[SourceFile]) -> SourceFile:
    """The script that no other one names."""
    tops = [
        one for one in scripts if not any(one.name in other.text for other in scripts if other is not one)
    ]
    if len(tops) > 1:
        names = " and ".join(one.name for one in tops)
        raise ValueError(f"{names}: no other script starts or sources these; give the files of one run")
    return tops[0] if tops else scripts[0]
