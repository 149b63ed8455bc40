"""The documentation as a reader has it: every command in it is one, links lead somewhere, the site builds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from checkout import ROOT
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.scenario.documents import scenario_names

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"```(?:sh|bash)?\n(.*?)```", re.DOTALL)
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
ANCHOR = re.compile(r"[^\w\- ]")


def commands() -> Iterator[tuple[str, str]]:
    """Every line of a fence that calls stepsim, with its page."""
    for page in PAGES:
        for block in FENCE.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                command = line.partition("  #")[0].strip()
                if command.startswith("stepsim ") and "SCENARIO" not in command and "..." not in command:
                    yield page.name, command


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_is_read_as_it_stands(page: str, line: str) -> None:
    """Options exist and have values of their kind; files of the reader's own need not be there."""
    words = shlex.split(line)[1:]
    group: Any = typer.main.get_command(app)
    if words[0].startswith("--"):
        assert any(words[0] in one.opts for one in group.params) or words[0] == "--help"
        return
    command = group.commands[words[0]]
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest, line
        command, rest = command.get_command(command.make_context(words[0], [*rest]), rest[0]), rest[1:]
        assert command is not None, line
    if "--help" not in rest:
        command.make_context(words[0], rest)
    shipped = [word for word in rest if re.fullmatch(r"[a-z]+[\d.]*-\d+\w*(-[\w.-]+)?", word)]
    assert set(shipped) <= {*scenario_names(), *shipped_names()}, line


@pytest.mark.parametrize(
    "line", sorted({line for _, line in commands() if line.startswith("stepsim schedule ")})
)
def test_a_schedule_of_the_pages_is_shown(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These need no file of the reader's, so that they run as they stand."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    if any(word.endswith(".csv") for word in words[1:2]):
        return
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


def shipped_names() -> set[str]:
    from stepsim.hardware.gpus import gpu_names
    from stepsim.hardware.interconnect import interconnect_names
    from stepsim.sim.scenario.model.catalogue import model_names
    from stepsim.sim.scenario.software.presets import software_names

    return {*gpu_names(), *interconnect_names(), *model_names(), *software_names()}


def headings(page: Path) -> set[str]:
    """Anchors of a page, as forges and mkdocs make them."""
    lines = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines()
    found = (line.lstrip("#").strip().lower().replace("`", "") for line in lines if line.startswith("#"))
    stated = re.findall(r'<a (?:id|name)="([^"]+)"', "\n".join(lines))
    return {*stated, *(ANCHOR.sub("", heading).replace(" ", "-") for heading in found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in headings(target), link


def test_every_page_has_its_place_in_the_site() -> None:
    named = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {page.name for page in PAGES[1:]} == named


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["reference_pages.py", "sources_page.py"])
def test_made_pages_are_what_the_program_says(maker: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "docs" / maker), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"run make docs: {ended.stdout}"


def test_json_has_its_page() -> None:
    import stepsim

    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    keys = set(re.findall(r"`(\w+)`", rows))
    assert keys == set(stepsim.simulate(stepsim.load_scenario("llama3-8b-h100")).to_dict())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs mkdocs-material")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["strict"]
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert (tmp_path / "site" / "index.html").is_file()
    fetched = re.findall(
        r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', (tmp_path / "site" / "index.html").read_text()
    )
    assert fetched == []  # a reader without a network has all of it
