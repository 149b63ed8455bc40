"""``stepsim validate --nccl`` and ``calibrate collectives``: figures, pages, errors of the published logs."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from stepsim.calibration.validation.collective_grids import collectives_markdown, log_grid
from stepsim.calibration.validation.collectives import (
    CollectiveRow,
    by_log,
    collectives_document,
    compare,
    errors_by_size,
)
from stepsim.cli.collective_logs import read_logs
from stepsim.cli.main import app

BOUNDS = {
    # log: median error of sizes from 1 MiB on that is not to be exceeded
    "oci_a100_1n8g_allreduce": 0.09,
    "dgxc_h100_1n8g_allreduce": 0.04,
    "vultr_b200_1n8g_allreduce": 0.06,
    "vultr_b200_1n8g_allgather": 0.06,
    "vultr_b200_1n8g_reducescatter": 0.08,
    "vultr_b200_1n8g_alltoall": 0.07,
    "azure_ndv4_a100_2n16g_allreduce_hdr": 0.10,
    "h100_ib_2n16g_allreduce_issue309": 0.06,
    "h100_ib_2n16g_allreduce_ring_issue309": 0.08,
    "h100_ib_4n32g_allreduce_issue309": 0.08,
    "h100_ib_8n64g_allreduce_issue309": 0.14,
    "vultr_b200_2n16g_allreduce": 0.09,
    "vultr_b200_2n16g_alltoall": 0.08,
}


def row(log: str, size: float, error: float) -> CollectiveRow:
    return CollectiveRow(
        log=log, kind="all_reduce", bytes=size, measured_s=2e-3, predicted_s=2e-3 * (1 + error)
    )


ROWS = [row("a", 8, -0.5), row("a", 2.0**20, 0.1), row("a", 2.0**21, -0.3), row("b", 2.0**30, 0.2)]


def logs(shared: Path) -> list[Path]:
    return sorted((shared / "data" / "nccl_logs").glob("*.txt"))


# Figures -------------------------------------------------------------------------------------------


def test_figures_keep_small_and_large_sizes_apart() -> None:
    figures = by_log(ROWS)["a"]
    small, large = figures["small"], figures["large"]
    assert small is not None
    assert large is not None
    assert (small.rows, small.median, small.p90, small.signed_median) == pytest.approx((1, 0.5, 0.5, -0.5))
    assert (large.rows, large.median, large.p90, large.signed_median) == pytest.approx((2, 0.2, 0.28, -0.1))
    assert by_log(ROWS)["b"]["small"] is None


def test_all_logs_together_are_all_rows_together() -> None:
    large = errors_by_size(ROWS)["large"]
    assert large is not None
    assert large.median == pytest.approx(median([0.1, 0.3, 0.2]))


def test_the_document_has_every_row() -> None:
    document = collectives_document(ROWS)
    assert [set(one) for one in document["rows"]] == [
        {"log", "kind", "bytes", "measured_s", "predicted_s", "error"}
    ] * len(ROWS)
    assert [one["error"] for one in document["rows"]] == pytest.approx([-0.5, 0.1, -0.3, 0.2])
    assert set(document["summary"]["logs"]) == {"a", "b"}


def test_the_page_has_every_log_twice_and_names_what_no_fit_saw() -> None:
    page = collectives_markdown(ROWS, ROWS, ["b"])
    assert page.count("\n| a |") == page.count("\n| b |") == 2
    assert "are in no fit: `b`" in page
    assert page == collectives_markdown(ROWS, ROWS, ["b"])
    assert "left out of the fit" not in collectives_markdown(ROWS, None, [])


def test_the_grid_is_one_row_a_log_and_one_for_all() -> None:
    grid = log_grid(ROWS, "t")
    assert [cells[0] for cells in grid.rows] == ["a", "b", "all"]
    assert all(len(cells) == len(grid.columns) for cells in grid.rows)


# Published logs ------------------------------------------------------------------------------------


def test_the_shipped_constants_meet_the_targets(shared: Path) -> None:
    """15 % from 1 MiB on and 30 % below, in the median over all sizes of all logs."""
    cases = read_logs(logs(shared)).cases
    figures = errors_by_size(compare(cases))
    large, small = figures["large"], figures["small"]
    assert large is not None
    assert small is not None
    assert large.rows >= 350
    assert large.median <= 0.08
    assert small.median <= 0.08


@pytest.mark.parametrize("log", BOUNDS)
def test_published_logs_are_reproduced(shared: Path, log: str) -> None:
    cases = read_logs([shared / "data" / "nccl_logs" / f"{log}.txt"]).cases
    large = errors_by_size(compare(cases))["large"]
    assert large is not None
    assert large.rows >= 10
    assert large.median <= BOUNDS[log]


# Commands ------------------------------------------------------------------------------------------


def some(shared: Path) -> list[str]:
    names = ("dgxc_h100_1n8g_allreduce", "h100_ib_2n16g_allreduce_k8s", "nebius_h200_2n16g_allreduce")
    return [str(shared / "data" / "nccl_logs" / f"{name}.txt") for name in names]


def test_the_command_prints_rows_and_summary(shared: Path) -> None:
    done = CliRunner().invoke(app, ["validate", "--nccl", *some(shared), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert len(document["rows"]) == 32 + 5 + 5
    assert set(document["summary"]["all"]) == {"large", "small"}
    assert set(document["summary"]["all"]["large"]) == {"rows", "median", "p90", "signed_median"}


def test_left_out_logs_are_predicted_otherwise(shared: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [
        "validate",
        "--nccl",
        *some(shared),
        "--leave-out",
        "--jobs",
        "1",
        "--json",
        "--markdown",
        str(page),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    held_out = json.loads(done.stdout)["rows"]
    shipped = json.loads(CliRunner().invoke(app, ["validate", "--nccl", *some(shared), "--json"]).stdout)[
        "rows"
    ]
    assert [one["measured_s"] for one in held_out] == [one["measured_s"] for one in shipped]
    assert [one["predicted_s"] for one in held_out] != [one["predicted_s"] for one in shipped]
    assert page.read_text(encoding="utf-8").count("| dgxc_h100_1n8g_allreduce |") == 2


def test_the_fit_is_printed_with_its_residuals(shared: Path) -> None:
    command = ["calibrate", "collectives", *some(shared), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert {(one["tier"], one["ranks"]) for one in document["curves"]} == {("node", 8), ("infiniband", 16)}
    for curve in document["curves"]:
        assert curve["bytes_per_s"]["low"] <= curve["bytes_per_s"]["value"] <= curve["bytes_per_s"]["high"]
    assert "architectures.hopper.nvls_efficiency" in document["constants"]
    assert document["residuals"]["all"]["large"]["median"] < 0.15


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["validate", "--leave-out", "x.yaml"], "--leave-out needs --nccl"),
        (["validate", "--nccl", "no-such-log.txt"], "no-such-log.txt"),
    ],
)
def test_mistakes_are_named(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert says in done.stderr


def test_one_log_cannot_be_left_out_nor_two_share_a_name(shared: Path) -> None:
    one = some(shared)[0]
    alone = CliRunner().invoke(app, ["validate", "--nccl", one, "--leave-out"])
    assert (alone.exit_code, "needs two logs" in alone.stderr) == (2, True)
    twice = CliRunner().invoke(app, ["validate", "--nccl", one, one])
    assert (twice.exit_code, "two logs are named dgxc_h100_1n8g_allreduce" in twice.stderr) == (2, True)
