"""One option, one meaning: the same name takes the same thing in every command, and all print JSON alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from all_commands import GROUP, commands
from typer.core import TyperArgument, TyperOption

from stepsim.cli.output import PICTURE_NAME

COMMANDS = {
    words: command
    for words, command in commands(GROUP).items()
    if not words.startswith("schedule ") or words in ("schedule compare", "schedule gallery", "schedule 1f1b")
}
"""Of the commands for one schedule each, all alike, the first."""

TAKES_ANOTHER = {
    "--budget": "dollars of a run in plan, time of a measurement in calibrate",
    "--gpu": "several where calibrate steps fits several",
    "--kernels": "a file, or that the files are kernels",
    "--log": "one for collective, several for residuals",
    "--markdown": "a page to write, or to print what is on a page",
    "--nccl": "that files are nccl-tests logs, or the version whose choice is asked for",
    "--out": "by what the command writes",
    "--save": "scenarios in a folder, or a fit in a file",
    "--set": "sweep takes several values",
    "--interconnect": "a network's name, or its description where a collective is priced on it",
    "--software": "several where calibrate steps fits several",
    "--sweep": "a field's range in faults, all sizes in collective",
}
"""Options that take another thing in some commands, and why none of both should change its name."""

PRINTS_NO_JSON = {
    "calibrate report": "",
    "export": "prints the other framework's file",
    "import": "prints a scenario",
    "init": "writes a scenario",
    "schedule gallery": "writes a page",
    "schema": "prints JSON",
    "serve": "prints an address",
}


def options() -> dict[str, dict[tuple[Any, ...], list[str]]]:
    """Every long option: what it takes, and in which commands."""
    found: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, command in COMMANDS.items():
        for one in command.params:
            for name in one.opts if one.param_type_name == "option" else ():
                takes = (getattr(one, "metavar", None), one.multiple, getattr(one, "is_flag", False))
                if name.startswith("--"):
                    found[name][takes].append(words)
    return found


def test_whole_numbers_end_somewhere() -> None:
    """No slip of the keyboard becomes a list of 1e30 entries, or as many processes."""
    endless = {
        (words, option.name)
        for words, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, TyperArgument | TyperOption)
        and (option.type_descriptor.annotation, option.max) == (int, None)
    }
    assert endless == set()


def test_an_option_takes_the_same_in_every_command() -> None:
    differ = {name for name, ways in options().items() if len(ways) > 1}
    assert differ == set(TAKES_ANOTHER)


def test_a_short_option_stands_for_one_long_one() -> None:
    long: dict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for one in command.params:
            for short in (name for name in one.opts if len(name) == 2 and one.param_type_name == "option"):
                long[short] |= {name for name in one.opts if name.startswith("--")}
    assert {short: names for short, names in long.items() if len(names) != 1} == {}


def test_whatever_answers_answers_in_json_too() -> None:
    without = {
        words
        for words, command in COMMANDS.items()
        if not any("--json" in one.opts for one in command.params)
    }
    assert without <= set(PRINTS_NO_JSON)


PICTURES = [
    (words, one)
    for words, command in COMMANDS.items()
    for one in command.params
    if getattr(one, "metavar", None) == PICTURE_NAME
]


@pytest.mark.parametrize(("words", "option"), PICTURES, ids=[f"{w} {o.opts[0]}" for w, o in PICTURES])
def test_pictures_are_named_alike(words: str, option: Any) -> None:
    assert option.opts[0] in ("--picture", "--timeline", "--topology", "--waterfall", "--heat-map")


def test_there_are_pictures() -> None:
    assert len(PICTURES) >= 14
    assert not any(getattr(one, "metavar", "") == "FILE.svg" for c in COMMANDS.values() for one in c.params)
