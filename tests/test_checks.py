"""Hooks before a commit are the commands of ``make check``; the fast suite is the one without slow tests."""

from __future__ import annotations

import re

import yaml
from checkout import CONFIG, ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile, with the variables of the environment filled in."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    folder = re.search(r"^VENV := (.*)$", MAKEFILE, re.MULTILINE)
    assert folder
    assert "\nBIN := $(VENV)/bin\n" in MAKEFILE
    return [line.strip().replace("$(BIN)", f"{folder[1]}/bin") for line in found[1].splitlines()]


def test_hooks_before_a_commit_are_the_commands_of_make_check() -> None:
    (repository,) = HOOKS["repos"]
    assert repository["repo"] == "local"  # needs no network
    parts = re.search(r"^check: (.*)$", MAKEFILE, re.MULTILINE)
    assert parts
    commands = [line for part in parts[1].split() for line in recipe(part)]
    assert [hook["entry"] for hook in repository["hooks"]] == commands
    assert [hook["name"] for hook in repository["hooks"]] == [
        command.removeprefix(".venv/bin/") for command in commands
    ]


def test_hooks_run_on_the_whole_checkout_as_make_check_does() -> None:
    for hook in HOOKS["repos"][0]["hooks"]:
        assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True)


def test_the_fast_suite_leaves_out_slow_tests_alone() -> None:
    whole, fast = recipe("test"), recipe("test-fast")
    assert [f'{command} -m "not slow"' for command in whole] == fast
    assert any(marker.startswith("slow:") for marker in CONFIG["tool"]["pytest"]["ini_options"]["markers"])
