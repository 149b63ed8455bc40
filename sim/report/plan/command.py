"""How a choice is run again: the command to copy, and the scenario file to keep.

Knows how values are written on a command line and in a file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....hardware.files import make_folder_of, write_text
from ...figures import gigabytes, seconds
from ...plan.fields import field_value
from ...plan.search.layout_in_words import short
from ...plan.search.layout_plan import LayoutPlan, written
from ...plan.search.shown import Choice
from ...scenario.errors import ScenarioError
from ...scenario.models import Scenario

_NOT_OF_FILES = re.compile(r"[^\w.-]+")
"""What a scenario may be called by and a file had better not: with a slash it would lie in another folder."""


def command(
    source: str, overrides: Sequence[str], scenario: Scenario, choice: Choice, beside: Sequence[str] = ()
) -> str:
    """``stepsim run`` of a choice, as a shell takes it; options ``beside`` say how the source is read."""
    lines = [*overrides, *(f"{name}={_value(value)}" for name, value in changes(scenario, choice).items())]
    words = ["stepsim run", *map(shlex.quote, (source, *beside))]
    return " ".join([*words, *(f"--set {shlex.quote(line)}" for line in lines)])


def changes(scenario: Scenario, choice: Choice) -> Mapping[str, Any]:
    """The settings that turn the scenario into the choice: only those that differ, if these are enough.

    A field that the scenario leaves out follows from others; where it would follow to another value, all
    settings are stated.
    """
    settings = written(choice.settings)
    few = {name: value for name, value in settings.items() if value != field_value(scenario, name)}
    try:
        enough = _untitled(scenario.with_(few)) == _untitled(choice.scenario)
    except ScenarioError:
        enough = False
    return few if enough else settings


def _untitled(scenario: Scenario) -> Scenario:
    """The scenario without what it is called and what was published of it, which no step depends on."""
    return scenario.model_copy(update={"title": None, "published": None})


def save_choices(plan: LayoutPlan, folder: Path) -> list[Path]:
    """Write each choice as a scenario file into ``folder``; the files, best first."""
    import yaml

    paths = []
    for rank, choice in enumerate(plan.choices, 1):
        name = f"{plan.scenario.name}-{rank}"
        path = folder / f"{_NOT_OF_FILES.sub('-', name).lstrip('.-')}.yaml"
        make_folder_of(path)
        document = {**choice.scenario.to_document(), "name": name}
        figures = choice.figures
        head = (
            f"# Choice {rank} of {len(plan.choices)} of stepsim plan: {short(choice.settings)}\n"
            f"# predicted: {seconds(figures.step_time_s)} a step, {gigabytes(figures.peak_memory_bytes)}\n"
        )
        write_text(path, head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
        paths.append(path)
    return paths


def _value(value: Any) -> str:
    """A value as one line of YAML (JSON is YAML)."""
    return value if isinstance(value, str) else json.dumps(value)
