"""A plan's best layout in a framework's own words, for people: what changes in the file, and the file.

Knows texts alone; who writes them is in sim/scenario/importers.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import ndiff
from typing import TYPE_CHECKING

from ...figures import count
from ...plan.search.layout_plan import LayoutPlan
from ...scenario.errors import ScenarioError
from ...scenario.importers.registry import EXPORTERS

if TYPE_CHECKING:
    from rich.console import Console

REASONS = 3


def heading(plan: LayoutPlan) -> str:
    """A line that names the framework whose options follow."""
    assert plan.wishes.emission is not None
    version = plan.wishes.emission.version_for(plan.best)
    return f"In {EXPORTERS.get(plan.wishes.emission.framework).title}{f' {version}' if version else ''}"


def changed_lines(plan: LayoutPlan) -> list[str]:
    """Lines that go (``-``) and that come (``+``), from the layout as it was given to the best.

    Empty where nothing changes, or where the framework cannot say what was given.
    """
    emission = plan.wishes.emission
    assert emission is not None
    try:
        before = emission.text(plan.scenario)
    except ScenarioError:
        return []
    after = plan.emitted or ""
    lines = ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line.startswith(("- ", "+ "))]


def passed_over(plan: LayoutPlan) -> str:
    """In one sentence, which layouts were better than the last choice but cannot be written in the
    framework's words; empty where there are none."""
    if not plan.passed_over or plan.wishes.emission is None:
        return ""
    title = EXPORTERS.get(plan.wishes.emission.framework).title
    return (
        f"{count(sum(plan.passed_over.values()))} layouts were passed over, which {title} cannot say: "
        f"{_most(plan.passed_over)}"
    )


def _most(reasons: Mapping[str, int]) -> str:
    most = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
    return "; ".join(f"{fields} ({count(number)})" for fields, number in most)


def print_emitted(plan: LayoutPlan, console: Console, *, whole: bool) -> None:
    """Print what changes, and the ``whole`` text; nothing where nothing was asked for or fits."""
    from rich.text import Text

    text = plan.emitted
    if text is None:
        return
    console.print()
    console.print(Text(heading(plan), style="bold"))
    changed = changed_lines(plan)
    for line in changed:
        console.print(line, soft_wrap=True)
    if whole:
        if changed:
            console.print()
        console.print(text.rstrip("\n"), soft_wrap=True)
    for note in filter(None, [passed_over(plan), *plan.not_emitted]):
        console.print()
        console.print(note, soft_wrap=True)
