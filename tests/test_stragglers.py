"""``stepsim stragglers`` on logs made by hand: who was slowed is found, and what is no log is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fuzz.corpus import FOLDER
from small_jobs import command

LOG = FOLDER / "operations.csv"
"""Two replicas of two stages, two microbatches, two steps; replica 1's first forward of stage 0 is slow."""


def log(**columns: Any) -> pd.DataFrame:
    return pd.read_csv(LOG).assign(**columns)


def told(path: Path, *more: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("stragglers", path, *more, "--json"))
    return found


def stored(table: pd.DataFrame, path: Path) -> Path:
    table.to_csv(path, index=False)
    return path


def even() -> pd.DataFrame:
    """The log of replica 0 for both: nobody is slow."""
    table = log()
    first = table[table.dp_rank == 0]
    return pd.concat([first, first.assign(dp_rank=1, rank=first["rank"] + 1)], ignore_index=True)


def test_replicas_that_are_alike_lose_nothing_to_each_other(tmp_path: Path) -> None:
    found = told(stored(even(), tmp_path / "log.csv"))
    assert found["slowdown"] == pytest.approx(1.0, abs=1e-9)
    assert found["by_replica"] == pytest.approx([1.0, 1.0], abs=1e-9)


@pytest.mark.parametrize("slow", [(1, 0), (1, 1)])
def test_the_slowed_worker_is_found(slow: tuple[int, int], tmp_path: Path) -> None:
    """Its backward passes take a second more; the order of operations is read off the other replica."""
    table = even()
    replica, stage = slow
    for step in (0, 1):
        rows = (table.step == step) & (table.optype == "backward-compute")
        own = rows & (table.dp_rank == replica) & (table.stage == stage)
        table.loc[own, "duration"] += 1.0
    found = told(stored(table, tmp_path / "log.csv"))
    assert (found["worst_worker"]["replica"], found["worst_worker"]["stage"]) == slow
    assert found["slowdown"] > 1.05
    assert found["by_worker"][1 - replica][stage] == pytest.approx(
        min(min(row) for row in found["by_worker"]), rel=0.1
    )


def test_a_picture_and_a_layout(tmp_path: Path) -> None:
    layout = tmp_path / "meta.yaml"
    layout.write_text("dp_size: 2\npp_size: 2\n")
    picture = tmp_path / "map.svg"
    assert told(LOG, "--layout", layout, "--heat-map", picture)["steps"] == 2
    assert "<svg" in picture.read_text()
    assert command("stragglers", LOG)
    layout.write_text("dp_size: 4\npp_size: 2\n")
    assert "dp_size" in command("stragglers", LOG, "--layout", layout, code=2)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    table = log()
    twice = pd.concat([table, table.iloc[[3]]])
    for name, wrong, what in (
        ("column.csv", table.drop(columns="stage"), "stage"),
        ("kind.csv", table.assign(optype="sleep"), "sleep"),
        ("time.csv", table.assign(duration=-1.0), "duration"),
        ("twice.csv", twice, "twice.csv"),
        ("lacks.csv", table.drop(index=4), "lacks.csv"),
        ("empty.csv", table.iloc[:0], "empty.csv"),
    ):
        assert what in command("stragglers", stored(wrong, tmp_path / name), code=2)
    (tmp_path / "no.parquet").write_bytes(b"PAR2")
    assert "no.parquet" in command("stragglers", tmp_path / "no.parquet", code=2)
