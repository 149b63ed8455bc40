"""The JSON document and the tables say the same figures, and all of them."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import orjson
import pytest
from results import fake_result, published
from rich.console import Console

from stepsim.sim.report.tables import class_line, print_result
from stepsim.sim.result.result import Result

# the keys that programs may rely on
FIXED = {
    *("step_time_s", "mfu", "mfu_causal", "hfu", "tokens_per_second_per_gpu", "bubble_fraction"),
    *("exposed_communication_s", "memory_bytes_per_stage", "peak_memory_bytes", "fits", "assumptions"),
    *("timing", "classes", "events"),
}


def printed(result: Result, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_result(result, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_fixed_keys_are_there_and_plain() -> None:
    document = fake_result().to_dict()
    assert set(document) >= FIXED
    assert list(document["exposed_communication_s"]) == ["tp", "cp", "ep", "pp", "dp"]
    assert document["memory_bytes_per_stage"] == [31e9, 29e9, 27e9, 25e9]
    assert document["peak_memory_bytes"] == 31e9
    assert document["fits"] is True
    assert document["classes"] == 4
    assert document["ranks"] == 64
    assert document["assumptions"][1] == {
        "text": "all-reduce over 16 nodes",
        "source": "nccl-tests, table 3",
        "in_range": False,
        "note": False,
    }
    assert orjson.loads(orjson.dumps(document)) == document


def test_numpy_figures_come_out_as_plain_ones() -> None:
    import numpy as np

    result = replace(fake_result(), step_time_s=np.float64(0.36), bubble_per_stage=tuple(np.ones(4)))
    document = result.to_dict()
    assert type(document["step_time_s"]) is float
    assert type(document["mfu"]) is float
    assert all(type(share) is float for share in document["bubble_per_stage"])


def test_figures_follow_from_the_step() -> None:
    document = fake_result().to_dict()
    assert document["step_time_s"] == pytest.approx((8 + 3) * 0.030 + 0.030)
    assert document["bubble_fraction"] == pytest.approx(3 / 8)
    assert document["tokens_per_second_per_gpu"] == pytest.approx(2 * 8 * 8192 / 0.36 / 64)
    assert sum(part["seconds"] for part in document["critical_path"]) == pytest.approx(
        document["step_time_s"]
    )
    for stage in document["memory"]:
        assert math.fsum(stage["terms"].values()) == pytest.approx(stage["peak_bytes"])


def test_a_published_step_stands_beside_ours() -> None:
    result = fake_result(published=published(0.30, 0.5))
    document = result.to_dict()
    assert document["published"]["error"] == pytest.approx(0.36 / 0.30 - 1)
    assert document["published"]["source"] == "a paper, table 1"
    text = printed(result)
    assert "published 300.0 ms, error +20.0 % (a paper, table 1)" in text
    assert "published 50.0 %" in text
    shown = printed(fake_result(published=published(None, 0.5)))
    assert "published 50.0 % (a paper, table 1)" in shown
    assert fake_result(published=published(None, 0.5)).to_dict()["published"]["error"] is None
    assert fake_result().to_dict()["published"] is None
    assert "published" not in printed(fake_result())


def test_a_token_budget_becomes_days_gpu_hours_and_a_price() -> None:
    result = fake_result(tokens=131072 * 1e6, price_per_gpu_hour=2.5)
    training = result.to_dict()["training"]
    assert training["steps"] == pytest.approx(1e6)
    assert training["days"] == pytest.approx(1e6 * 0.36 / 86400)
    assert training["gpu_hours"] == pytest.approx(100 * 64)
    assert training["price"] == pytest.approx(100 * 64 * 2.5)
    text = printed(result)
    assert "4.2 days" in text
    assert "16.0 thousand" in text
    assert fake_result().to_dict()["training"] is None
    assert fake_result(tokens=1e9).to_dict()["training"]["price"] is None


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "shape",
    [{}, {"pp": 1}, {"pp": 16, "vpp": 8, "microbatches": 16, "dp": 128}, {"pp": 64, "microbatches": 64}],
)
def test_tables_hold_the_figures_within_the_width(shape: dict[str, Any], width: int) -> None:
    result = fake_result(**shape)
    text = printed(result, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text  # nothing is cut off
    for share in (result.mfu, result.mfu_causal, result.hfu, result.bubble_fraction):
        assert f"{share * 100:.1f} %" in text
    assert f"{result.peak_memory_bytes / 1e9:.1f}" in text
    for segment in result.critical_path:
        assert segment.name in text
    assert "OUTSIDE  all-reduce over 16 nodes (nccl-tests, table 3)" in text
    assert "1 inside the measured range, 1 outside, 1 without one" in text


def test_memory_rows_add_up_at_every_width() -> None:
    """Terms that find no room are in ``other``: a row sums to its peak."""
    result = fake_result(pp=4)
    for width in (60, 80, 100, 160):
        rows = [line.split() for line in printed(result, width).splitlines()]
        head = next(row for row in rows if row[:1] == ["pp"] and "peak" in row)
        for rank in range(4):
            row = next(r for r in rows[rows.index(head) :] if r[:1] == [str(rank)])
            peak = head.index("peak")
            assert sum(map(float, row[1:peak])) == pytest.approx(float(row[peak]), abs=0.06)
            assert float(row[peak]) == pytest.approx(result.memory[rank].peak_bytes / 1e9)


def test_out_of_memory_is_said_in_words() -> None:
    result = fake_result(capacity_bytes=28e9)
    assert result.to_dict()["fits"] is False
    text = printed(result)
    assert "DOES NOT FIT on 2 of 4 pipeline ranks" in text
    assert text.count("OOM") == 2
    assert "OOM" not in printed(fake_result())


def test_class_line_counts() -> None:
    assert class_line(fake_result(pp=16, vpp=8, microbatches=16, dp=128)) == (
        "16 classes stand for 16,384 ranks; 8,192 events in 0.03 s (0.06 s in all)"
    )


def test_markup_in_a_title_is_not_obeyed() -> None:
    assert "run [red]7[/red]" in printed(fake_result(title="run [red]7[/red]"))
