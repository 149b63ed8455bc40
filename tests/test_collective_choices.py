"""``stepsim collective``: its refusals list what it takes, and it takes names as users write them."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from stepsim.calibration.validation.collective_grids import collectives_markdown
from stepsim.calibration.validation.collectives import CollectiveRow
from stepsim.cli.main import app
from stepsim.hardware.collective_kinds import KINDS
from stepsim.sim.network.selection import known_names


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["collective", *arguments])
    return done.exit_code, done.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", ["8", "64"])
def test_a_refused_choice_lists_all_that_are_accepted(kind: str, gpus: str) -> None:
    code, told = run(kind, "--gpus", gpus, "--protocol", "LL256")
    assert code == 2
    listed = dict(re.findall(r"(\S+) with ([^;\n]+)", told.split("there are: ")[1]))
    accepted = {name for name in known_names() if run(kind, "--gpus", gpus, "--algorithm", name)[0] == 0}
    assert listed.keys() == accepted
    for algorithm, protocols in listed.items():
        for protocol in protocols.split(", "):
            assert run(kind, "--gpus", gpus, "--algorithm", algorithm, "--protocol", protocol)[0] == 0


@pytest.mark.parametrize(
    ("written", "kind"),
    [("all-reduce", "all_reduce"), ("reduce-scatter", "reduce_scatter"), ("all-to-all", "all_to_all"),
     ("all_to_all", "all_to_all"), ("send-recv", "sendrecv")],
)  # fmt: skip
def test_kinds_as_others_write_them(written: str, kind: str) -> None:
    assert run(written, "--json") == run(kind, "--json")
    assert run(written)[0] == 0


def row(log: str, size: float, predicted_s: float) -> CollectiveRow:
    return CollectiveRow(log=log, kind="all_reduce", bytes=size, measured_s=1.0, predicted_s=predicted_s)


def test_the_page_names_logs_above_their_target() -> None:
    """15 % from 1 MiB on, 30 % below, each table by its own errors."""
    sizes = {"a": (1.16, 1.29), "b": (0.86, 0.69), "c": (1.14, 1.0)}
    rows = [row(log, size, s) for log, two in sizes.items() for size, s in zip((2e6, 8.0), two, strict=True)]
    page = collectives_markdown([row("a", 2e6, 1.0)], rows, [])
    lead = "Logs whose own median is above its target: "
    above = [line.removeprefix(lead) for line in page.splitlines() if line.startswith(lead)]
    large, small = "in sizes of 1 MiB and more (target 15 %)", "in sizes below 1 MiB (target 30 %)"
    assert above == [f"none {large}; none {small}.", f"`a` (16.0 %) {large}; `b` (31.0 %) {small}."]
