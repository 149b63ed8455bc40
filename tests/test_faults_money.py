"""What weeks cost in money: sums that close, and spares that are paid while they wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stepsim.cli.main import app


def told(tmp_path: Path, *options: str, **cluster: Any) -> dict[str, Any]:
    document = {
        "name": "priced",
        "step_time": "10 s",
        "cluster": {"gpus": 256, "gpus_per_node": 8, **cluster},
        "faults": {"processes": [{"kind": "node_down", "scope": "node", "rate_per_unit_day": 0.05}]},
        "checkpoint": {"storage": {"every": "10 min", "stall": "30 s", "load": "30 s"}},
        "recovery": {"spares": {"warm": 2, "cold": 2}},
        "run": {"horizon": "3 d"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    ran = CliRunner().invoke(app, ["faults", str(path), "--json", "-n", "2", *options])
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_the_parts_are_the_whole(tmp_path: Path) -> None:
    found = told(tmp_path, price_per_gpu_hour=2.0)
    money, hours = found["money"], found["wall_s"]["mean"] / 3600
    assert money["total"] == pytest.approx(2.0 * (256 + 4 * 8) * hours)
    assert sum(money["parts"].values()) == pytest.approx(money["total"])
    assert money["parts"]["spares"] == pytest.approx(2.0 * 32 * hours)
    assert money["per_useful_gpu_hour"] == pytest.approx(2.0 / found["ettr_held"]["mean"])


def test_without_a_price_there_is_none(tmp_path: Path) -> None:
    assert told(tmp_path)["money"] is None
