"""docs/architecture.md is true: its floors are those of the layer test, and what it names is there."""

from __future__ import annotations

import ast
import re

import pytest
from checkout import ROOT
from floors import FLOORS

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.(?:py|yaml))(?:: (\w+))?`", PAGE)))
MOST_WORDS = 12
LONGEST_WALK = 10


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The first cell of each row of a table, its head left out."""
    return [row.split("|")[1].strip() for row in re.findall(r"(?m)^\|.*\|$", text)[2:]]


def test_the_table_is_the_floors() -> None:
    rows = [re.findall(r"`([\w/]+)`", cell) for cell in first_cells(section("Floors"))]
    floors = [line.replace(".", "/").split() for line in FLOORS.strip().splitlines()]
    assert rows == floors


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_is_named_is_there(file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file()
    if name:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined


def test_the_glossary_is_short() -> None:
    words = first_cells(section("Words of our own"))
    assert 0 < len(words) <= MOST_WORDS
    assert len(set(words)) == len(words)


def test_walks_are_short_and_lead_somewhere() -> None:
    walks = re.split(r"\n(?=\w[^\n]*\?\n)", section("Walks"))[0:]
    walks = [walk for walk in walks if walk.strip()]
    assert len(walks) >= 5
    for walk in walks:
        lines = [line for line in walk.strip().splitlines() if line]
        assert len(lines) <= LONGEST_WALK + 1, walk  # the question is a line of its own
        assert NAMED_IN.search(walk), walk


NAMED_IN = re.compile(r"`[\w/]+\.(?:py|yaml)")


def test_the_picture_shows_every_floor_from_the_top_down() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    places = {
        words: float(y)
        for y, words in re.findall(r'<text[^>]*class="folder"[^>]* y="([\d.]+)">([^<]*)<', picture)
    }
    floors = [line.replace(".", "/").split() for line in FLOORS.strip().splitlines()]
    heights = [{places[name] for name in floor} for floor in floors]
    assert all(len(height) == 1 for height in heights)
    flat = [height.pop() for height in heights]
    assert flat == sorted(flat)
