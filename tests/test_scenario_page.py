"""docs/scenario.md is what the models say, whole and with links that lead somewhere."""

from __future__ import annotations

import re

from checkout import ROOT
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.page import blocks, scenario_page
from stepsim.sim.scenario.software.software import GROUPS

PAGE = scenario_page()


def test_the_page_is_up_to_date() -> None:
    """``stepsim schema --markdown > docs/scenario.md`` writes it."""
    assert (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8") == PAGE
    assert CliRunner().invoke(app, ["schema", "--markdown"]).output == PAGE


def test_every_field_has_a_row() -> None:
    sections = dict(zip(*[iter(re.split(r"^## (.*)\n", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))
    for path, model in blocks():
        rows = re.findall(r"^\| `(\w+)` \|", sections[path or "The file"], flags=re.MULTILINE)
        assert set(model.model_fields) <= set(rows), path
    assert len(sections) > 30
    assert next(model for _, model in blocks()) is Scenario


def test_links_lead_to_sections() -> None:
    anchors = {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
               for title in re.findall(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)}  # fmt: skip
    assert set(re.findall(r"\(#([^)]*)\)", PAGE)) <= anchors


def test_fields_of_software_say_what_they_are() -> None:
    said = {name: info.description for kind in GROUPS.values() for name, info in kind.model_fields.items()}
    assert all(said.values())
    assert len(said) == sum(len(kind.model_fields) for kind in GROUPS.values())  # each in one group


def test_what_newcomers_look_for_is_there() -> None:
    for words in ("stage_split", "uneven_unspecified", "US dollars", "token budget", "num_moe_experts"):
        assert words in PAGE
