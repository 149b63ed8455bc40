"""``stepsim schedule``: what it prints, what its JSON holds, and how it ends."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Literal, cast

import pytest
from rich.console import Console
from schedule_shapes import parse
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.schedules.orders.schedule import Shape, loop_placement
from stepsim.schedules.pipeline import get, names
from stepsim.sim.report.schedules.document import schedule_document
from stepsim.sim.report.schedules.tables import print_schedule
from stepsim.sim.report.schedules.timed import TimedSchedule, timed_table

KEYS = {
    "schedule",
    "p",
    "m",
    "v",
    "stage_to_rank",
    "actions",
    "makespan",
    "max_span",
    "bubble_rate",
    "bubble_rate_makespan",
    "peak_activation_chunks",
}
"""The interface of `schedule NAME --json`, which keeps from version to version."""

ROW_KEYS = {
    "schedule",
    "title",
    "v",
    "makespan",
    "max_span",
    "bubble_rate",
    "bubble_rate_makespan",
    "peak_activations",
    "messages_per_microbatch",
    "p2p_volume",
    "weights",
    "refused",
}


class Ran:
    """What `stepsim schedule ...` left: exit code, stdout, stderr."""

    def __init__(self, *arguments: object) -> None:
        done = CliRunner().invoke(app, ["schedule", *map(str, arguments)])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr


def document(*arguments: object) -> dict:
    ran = Ran(*arguments, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_json_keeps_its_interface() -> None:
    found = document("1f1b", "-p", 4, "-m", 8)
    assert found.keys() == KEYS
    assert (found["schedule"], found["p"], found["m"], found["v"]) == ("1f1b", 4, 8, 1)
    assert found["stage_to_rank"] == [0, 1, 2, 3]
    assert found["actions"][3][:4] == ["3F0", "3B0", "3F1", "3B1"]
    assert parse(found["actions"]) == get("1f1b").orders(Shape(ranks=4, microbatches=8))
    assert found["peak_activation_chunks"] == [4, 3, 2, 1]


def test_figures_are_those_of_the_literature() -> None:
    """Makespan (m + p - 1)(tf + tb + tw) + 2 tc (m + p - 2 - (m + p - 2) // p)."""
    found = document("1f1b", "-p", 4, "-m", 8, "--tf", 10, "--tb", 11, "--tw", 7, "--tc", 2)
    assert found["makespan"] == found["max_span"] == 11 * 28 + 2 * 2 * (10 - 2)
    assert found["bubble_rate"] == found["bubble_rate_makespan"] == 1 - 8 * 28 / found["makespan"]


def test_times_are_those_of_a_chunk() -> None:
    """(m·v + p - 1)(f + bf) of a chunk, and the work counts all chunks."""
    found = document("interleaved", "-p", 4, "-m", 8, "-v", 3, "--tf", 2, "--tb", 3, "--tw", 1)
    assert found["makespan"] == (8 * 3 + 3) * 6
    assert found["bubble_rate_makespan"] == pytest.approx(3 / 27)
    assert found["stage_to_rank"] == [0, 1, 2, 3] * 3


def test_the_group_reaches_the_schedule() -> None:
    orders = get("interleaved").orders(Shape(ranks=2, microbatches=8, chunks=2, group=4))
    found = document("interleaved", "-p", 2, "-m", 8, "-v", 2, "--group", 4)
    assert parse(found["actions"]) == orders


def test_the_terminal_shows_the_order() -> None:
    """Piped, so without colour: letters and numbers, dots where a rank idles."""
    ran = Ran("gpipe", "-p", 2, "-m", 2)
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if line.startswith("rank")]
    assert [re.findall(r"[FB]\d", line) for line in lines] == [["F0", "F1", "B0", "B1"]] * 2
    rows = [line.split(maxsplit=2)[2] for line in lines]
    assert len({len(row) for row in rows}) == 1
    # A third of the ideal time is lost, a quarter of the makespan: 3 of 9 units on each rank.
    assert [row.count("·") / len(row) for row in rows] == [3 / 9, 3 / 9]
    assert "33.3 %" in ran.out
    assert "makespan" in ran.out


@pytest.mark.parametrize(("p", "m"), [(1, 1), (3, 200), (64, 64)])
def test_the_terminal_is_never_too_narrow(p: int, m: int) -> None:
    ran = Ran("1f1b", "-p", p, "-m", m)
    assert ran.code == 0
    assert len([line for line in ran.out.splitlines() if line.startswith("rank")]) == p
    assert max(map(len, ran.out.splitlines())) <= 120


def test_chunks_can_be_told_apart_without_colour() -> None:
    ran = Ran("interleaved", "-p", 2, "-m", 2, "-v", 2)
    assert re.search(r"rank 0 .*F0.*F1.*f0.*f1", ran.out)
    assert "small letters on odd chunks" in ran.out


def test_files_lie_where_they_were_asked_for(tmp_path: Path) -> None:
    svg, table = tmp_path / "new" / "s.svg", tmp_path / "new" / "s.csv"
    ran = Ran("1f1b", "-p", 2, "-m", 3, "--svg", svg, "--csv", table, "--json")
    assert json.loads(ran.out)["schedule"] == "1f1b"
    assert "<svg" in svg.read_text()
    assert list(csv.reader(table.read_text().splitlines())) == json.loads(ran.out)["actions"]
    assert str(svg) in ran.err
    assert str(table) in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["1f1b"], "-p (ranks) and -m (microbatches)"),
        (["1f2b", "-p", "2", "-m", "2"], "Did you mean 1f1b? Known: 1f1b"),
        (["1f1b", "-p", "2", "-m", "2", "-v", "2"], "one chunk per rank, not 2"),
        (["1f1b", "-p", "2", "-m", "2", "--memory-limit", "3"], "memory limit of 3 means nothing"),
        (["1f1b", "-p", "0", "-m", "2"], "-p 0: expected at least 1"),
        (["1f1b", "-p", "2", "-m", "2", "--tf", "-1"], "--tf"),
        (["1f1b", "-p", "2", "-m", "2", "--tw", "1.5"], "--tw"),
        (["1f1b", "-p", "2", "-m", "2", "--tf", "0", "--tb", "0", "--tw", "0"], "--tf, --tb and --tw"),
        (["1f1b", "-p", "2", "-m", "2", "--svg", "picture.pdf"], "must end in .svg or .png"),
        (["mine.csv", "-p", "2"], "leave out -p"),
        (["compare", "-p", "2"], "-m (microbatches)"),
        (["compare", "-p", "2", "-m", "2", "-v", "0"], "-v"),
        (["gallery", "page.html"], "must end in .md"),
    ],
)
def test_mistakes_name_the_option_and_end_with_2(arguments: list[str], says: str) -> None:
    ran = Ran(*arguments)
    assert ran.code == 2
    assert says in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_help_lists_the_names() -> None:
    ran = Ran("--help")
    assert ran.code == 0
    assert all(name in ran.out for name in (*names(), "compare", "gallery"))
    assert "--memory-limit" in Ran("1f1b", "--help").out


# Compare ---------------------------------------------------------------------------------------------


def test_compare_has_a_row_for_every_schedule() -> None:
    rows = document("compare", "-p", 4, "-m", 8)
    assert sorted(row["schedule"] for row in rows) == sorted(names())
    assert all(row.keys() == ROW_KEYS for row in rows)
    done = [row["makespan"] for row in rows if row["refused"] is None]
    assert done == sorted(done)


def test_compare_is_fair() -> None:
    """The same work for a rank: bubble (p - 1)(tf + tb + tw), a v-th of it interleaved, work as long."""
    times = ["--tf", 3, "--tb", 4, "--tw", 2]
    rows = {row["schedule"]: row for row in document("compare", "-p", 4, "-m", 8, "-v", 4, *times)}
    work = 8 * 9
    assert rows["1f1b"]["makespan"] == work + 3 * 9
    assert rows["interleaved"]["v"] == 4
    assert rows["interleaved"]["makespan"] == work + 3 * 9 / 4
    for row in rows.values():
        if row["refused"] is None:
            assert row["bubble_rate_makespan"] == pytest.approx(1 - work / row["makespan"])
            assert row["bubble_rate"] == pytest.approx(1 - work / row["max_span"])


def test_compare_counts_messages_and_activations() -> None:
    rows = {row["schedule"]: row for row in document("compare", "-p", 4, "-m", 8)}
    assert rows["gpipe"]["peak_activations"] == 8
    assert rows["1f1b"]["messages_per_microbatch"] == 6
    assert rows["1f1b"]["p2p_volume"] == 1
    assert rows["interleaved"]["peak_activations"] == (2 * 3 + 4 + 1) / 2
    assert rows["interleaved"]["messages_per_microbatch"] == 2 * (2 * 4 - 1)
    assert {rows[name]["weights"] for name in ("gpipe", "1f1b", "interleaved")} == {1}


def test_compare_gives_the_reason_of_a_refusal() -> None:
    rows = {row["schedule"]: row for row in document("compare", "-p", 1, "-m", 2)}
    assert "needs 2 or more ranks" in rows["interleaved"]["refused"]
    assert rows["interleaved"]["makespan"] is None
    assert rows["1f1b"]["refused"] is None
    ran = Ran("compare", "-p", 1, "-m", 2)
    assert rows["interleaved"]["refused"] in " ".join(ran.out.split())


def test_compare_latency_is_not_divided() -> None:
    rows = {row["schedule"]: row for row in document("compare", "-p", 4, "-m", 8, "--tf", 9, "--tc", 2)}
    assert rows["1f1b"]["makespan"] == 11 * 11 + 2 * 2 * (10 - 2)


def test_compare_names_those_over_the_limit() -> None:
    ran = Ran("compare", "-p", 4, "-m", 8, "--memory-limit", 6)
    assert ran.code == 0
    assert re.search(r"over the memory limit of 6: .*gpipe", " ".join(ran.out.split()))


def test_compare_draws(tmp_path: Path) -> None:
    ran = Ran("compare", "-p", 2, "-m", 4, "--svg", tmp_path / "all.svg", "--json")
    assert ran.code == 0
    assert (tmp_path / "all.svg").read_text().startswith("<?xml")


def test_list_shows_titles() -> None:
    done = CliRunner().invoke(app, ["list", "schedules"])
    assert get("gpipe").title in done.stdout


@pytest.mark.parametrize("colours", ["standard", "256", "truecolor"])
def test_kinds_differ_in_colour_on_any_terminal(colours: Literal["standard", "256", "truecolor"]) -> None:
    """Where a terminal has few colours, shades of ours would become one grey."""
    console = Console(file=StringIO(), force_terminal=True, color_system=colours, width=100)
    print_schedule(split_in_two(), console)
    written = cast(StringIO, console.file).getvalue()
    styles = {kind: set(re.findall(rf"\x1b\[([\d;]+)m{kind}0", written)) for kind in "FIW"}
    assert all(len(found) == 1 for found in styles.values())
    assert len(set.union(*styles.values())) == 3


def split_in_two() -> TimedSchedule:
    """One rank, one microbatch, its backward in two."""
    orders = parse([["0F0", "0I0", "0W0"]])
    return timed_table("mine", orders, Shape(ranks=1, microbatches=1), loop_placement)


def test_a_table_of_ones_own_is_timed_and_shown() -> None:
    """As read from a file: the same figures as a registered schedule."""
    found = schedule_document(split_in_two())
    assert found.keys() == KEYS
    assert (found["schedule"], found["makespan"], found["bubble_rate"]) == ("mine", 3, 0)


def test_a_table_that_cannot_run_is_refused_by_rank_and_action() -> None:
    orders = parse([["0B0", "0F0"]])
    with pytest.raises(ValueError, match=r"rank 0, action 0 \(0B0\)"):
        timed_table("mine", orders, Shape(ranks=1, microbatches=1), loop_placement)


def test_what_csv_writes_can_be_shown_again(tmp_path: Path) -> None:
    """A table has the shape, the placement and, under the same times, the figures of its schedule."""
    path, times = tmp_path / "mine.csv", ["--tf", 3, "--tb", 4, "--tw", 2, "--tc", 1]
    registered = document("zb-v", "-p", 3, "-m", 6, *times, "--csv", path)
    assert document(path, *times) == {**registered, "schedule": "mine"}


def test_a_table_of_both_ways_has_no_placement(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    found = document("dualpipe", "-p", 4, "-m", 8, "--csv", path)
    assert found["stage_to_rank"] is None
    assert document(path) == {**found, "schedule": "mine"}


def test_compare_counts_what_is_kept_of_the_weights() -> None:
    """DualPipe has two copies of the model, PipeDream's first rank p versions of its stage."""
    rows = {row["schedule"]: row["weights"] for row in document("compare", "-p", 4, "-m", 8)}
    assert (rows["dualpipe"], rows["dualpipev"], rows["pipedream"], rows["zb-v"]) == (2, 1, 4, 1)
