"""README and docs repeat what the program says: blocks of output, figures, tables of defaults."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from checkout import ROOT

from stepsim.sim.scenario.faults.detection import Detection, HealthCheck, Watchdog

SPEC = importlib.util.spec_from_file_location("remake", ROOT / "docs" / "remake.py")
assert SPEC is not None
assert SPEC.loader is not None
remake: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(remake)

PAGES = remake.pages()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_says_what_the_program_says(page: Any) -> None:
    text = page.read_text(encoding="utf-8")
    assert remake.remade(text, quick=True) == text, "out of date: run make docs"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_marker_is_read_and_breaks_no_paragraph(page: Any) -> None:
    """A line that begins with a comment ends its paragraph, by CommonMark's rule for HTML blocks."""
    text = page.read_text(encoding="utf-8")
    assert len(re.findall("<!-- made by:", text)) == len(remake.BLOCK.findall(text))
    assert len(re.findall("<!--=", text)) == len(remake.FIGURE.findall(text))
    assert not re.search(r"^\s{0,3}<!--[=/]", text, re.MULTILINE)


def test_stale_text_is_made_anew() -> None:
    figure = "<!--= stepsim.sim.network.token_exchange.DEEPEP_SMS :: d -->{}<!--/-->"
    assert remake.remade(figure.format("19")) == figure.format("20")
    block = "<!-- made by: stepsim list gpus; until: B200-SXM -->\n{}\n<!-- end -->"
    anew = remake.remade(block.format("old"))
    assert "\nH100-SXM5-80GB " in anew
    assert "B200" not in anew.split("\n", 1)[1]
    assert remake.remade(anew) == anew
    measured = "<!-- made by: stepsim validate {shared}/x; from: GPU -->\nold\n<!-- end -->"
    assert remake.remade(measured, quick=True) == measured


@pytest.mark.parametrize(
    "marker",
    [
        "<!-- made by: stepsim list gpus; until: no such line -->\n\n<!-- end -->",
        "<!-- made by: rm -rf x -->\n\n<!-- end -->",
        "<!-- made by: stepsim list planets -->\n\n<!-- end -->",
        "<!--= accuracy: no such row, median :: d -->1<!--/-->",
    ],
)
def test_a_marker_that_finds_nothing_is_an_error(marker: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        remake.remade(marker)


def test_the_kinds_of_faults_are_noticed_as_the_page_says() -> None:
    said = {
        "check of GPUs, {} s": HealthCheck().gpu,
        "check of hosts, {} s": HealthCheck().host,
        "check of NICs, {} s": HealthCheck().nic,
        "check of switches, {} s": HealthCheck().switch,
        "the watchdog, {} s": Watchdog().timeout,
        "its error, {} s": Detection().error,
    }
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    for words, seconds in said.items():
        found = re.findall(re.escape(words).replace(r"\{\}", r"([\d.]+)"), page)
        assert found, words
        assert {float(number) for number in found} == {seconds}, words


def test_the_page_counts_the_compositions_that_are_drawn() -> None:
    tests = (ROOT / "tests" / "test_composition.py").read_text(encoding="utf-8")
    drawn = re.search(r"^DRAWS = (\d+)", tests, re.MULTILINE)
    page = (ROOT / "docs" / "composition.md").read_text(encoding="utf-8")
    assert drawn
    assert f"draws {drawn[1]} legal combinations" in page


def test_the_list_of_decisions_has_every_one_with_its_title_and_status() -> None:
    folder = ROOT / "docs" / "decisions"
    table = (folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\((.*)\) \| (.*) \|$", table, re.MULTILINE)
    pages = sorted(folder.glob("[0-9]*.md"))
    assert [name for _, _, name, _ in listed] == [page.name for page in pages]
    for page, (number, title, _, status) in zip(pages, listed, strict=True):
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {number}. {title}\n\n")
        assert int(number) == int(page.name[:4])
        assert ("superseded" in status) == ("Superseded" in text)
        marked = text.split("\n\n")[1].startswith("**Superseded**")
        assert marked == status.startswith("superseded by")


def test_links_between_pages_lead_to_pages() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / "decisions").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
