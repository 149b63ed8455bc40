"""The bubble rates of the zero-bubble paper (Qi et al. 2023, table 4), from the authors' own evaluator.

Rates are 1 - m(tF + tB + tW)/T, T the longest span. The columns of schedules that search are elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asap
import pytest

from stepsim.schedules.orders.action import Action, ActionKind
from stepsim.schedules.orders.schedule import Costs, Shape
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.pipeline import get

TO_FOUR_DIGITS = partial(pytest.approx, abs=0.5001e-4)

LISTS = pytest.mark.parametrize(("name", "rows", "doubled"), [("iclr", 6, 1), ("arxiv", 5, 2)])
"""The arxiv rows give times of half a rank (a chunk of ZB-V); a rank with one chunk takes twice as long."""


def table(shared: Path, name: str, rows: int) -> list[dict[str, Any]]:
    text = (shared / "data" / "goldens" / "zb_paper_bubble_rates.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)[name]
    assert len(found) == rows
    return found


def whole_rank(row: dict[str, Any], doubled: int) -> Costs:
    f, b, w = (doubled * row[name] for name in ("tF", "tB", "tW"))
    return Costs(forward=f, input_grad=b, weight_grad=w, latency=row["tC"])


def rate(row: dict[str, Any], costs: Costs, span: float) -> float:
    return 1 - row["m"] * (costs.forward + costs.input_grad + costs.weight_grad) / span


@pytest.mark.slow
@LISTS
@pytest.mark.parametrize(("column", "schedule"), [("1F1B", "1f1b"), ("ZB-H1", "zb-h1"), ("ZB-H2", "zb-h2")])
def test_one_chunk_per_rank(
    shared: Path, name: str, rows: int, doubled: int, column: str, schedule: str
) -> None:
    for row in table(shared, name, rows):
        shape, costs = Shape(ranks=row["p"], microbatches=row["m"]), whole_rank(row, doubled)
        span = timeline(get(schedule).orders(shape), shape, costs).max_span
        assert rate(row, costs, span) == TO_FOUR_DIGITS(row[column]), row


@pytest.mark.slow
@LISTS
def test_interleaved_and_the_mistake_in_its_column(shared: Path, name: str, rows: int, doubled: int) -> None:
    """One layer per chunk. The rates published are too low by p latencies of the step.

    The authors' evaluator has the gradients that go from rank 0 round to rank p-1 awaited by the first
    microbatch of a group alone. The true step is that of the closed form.
    """
    for row in table(shared, name, rows):
        p, v = row["p"], row["layers"] // row["p"]
        shape, costs = Shape(ranks=p, microbatches=row["m"], chunks=v), whole_rank(row, doubled)
        orders = get("interleaved").orders(shape)
        # Times of a chunk are no whole numbers: count in units of 1/v.
        step = timeline(orders, shape, replace(costs, latency=v * costs.latency)).makespan / v
        actions = costs.forward + costs.input_grad + costs.weight_grad
        closed_form = row["m"] * actions + (p - 1) * actions / v + 2 * costs.latency * (p * v - 1)
        assert step == pytest.approx(closed_form, rel=1e-12)
        assert rate(row, costs, step) > row["1F1B-I"] + 5e-4
        assert rate(row, costs, step - p * costs.latency) == TO_FOUR_DIGITS(row["1F1B-I"]), row


def test_the_published_rates_leave_out_awaited_gradients(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving those gradients out of what is awaited gives the rates that were published."""
    awaited = asap._inputs_of
    for row in table(shared, "iclr", 6)[:4]:
        p, v = row["p"], row["layers"] // row["p"]

        def inputs(action: Action, stages: int, p: int = p) -> Iterator[tuple[str, int, int]]:
            for need in awaited(action, stages):
                round_trip = action.kind is ActionKind.BACKWARD and need[0] == "gradient" and need[1] % p == 0
                if not (round_trip and action.microbatch % p):
                    yield need

        monkeypatch.setattr(asap, "_inputs_of", inputs)
        shape, costs = Shape(ranks=p, microbatches=row["m"], chunks=v), whole_rank(row, 1)
        times = asap.Times(
            forward=costs.forward / v,
            input_grad=costs.input_grad / v,
            weight_grad=costs.weight_grad / v,
            latency=costs.latency,
        )
        step = asap.asap(get("interleaved").orders(shape), shape.stages, times).makespan
        assert rate(row, costs, step) == TO_FOUR_DIGITS(row["1F1B-I"]), row
