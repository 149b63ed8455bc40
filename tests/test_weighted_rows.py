"""Rows of experts that are weighted by operators of torch when they are home: what these move, keep and make
again."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import moe_run, with_experts
from small_scenarios import every_op, lowered

from stepsim.sim.lowering.state.activations import activation_bytes
from stepsim.sim.program.program import Compute


def test_rows_that_are_weighted_at_home_come_home_again() -> None:
    """Their gradient reads them, so that recomputation runs to the exchange that brings them, unless kept."""

    def of_names(weighted: bool, *names: str, keep: tuple[str, ...] = ("mm",), **fields: Any) -> int:
        recompute = {"kind": "operators", "keep": list(keep)}
        run = with_experts(recompute=recompute, weighted_rows=weighted, **fields)
        return sum(n for op, n in every_op(lowered(run).programs.classes[0]) if op.name in names)

    combines = of_names(False, "combine")
    assert of_names(True, "combine") == 2 * combines
    assert of_names(True, "combine", keep=("mm", "all_to_all")) == combines
    weighted = ("weight rows", "rows in FP32 again", "weight rows backward")
    assert of_names(False, *weighted) == 0
    assert of_names(True, *weighted) == 3 * combines
    assert of_names(True, *weighted, moe_dispatcher="hybridep") == 0


WEIGHTING = ("weight rows", "weight rows, cast back", "weight rows backward", "row weights' gradient")


def test_weighted_rows_move_56_bytes_an_element_more() -> None:
    """In 16 bits: cast 6, weighted 8, cast back 6; in backward 6, 8, 16 for the weights' gradient, 6."""

    def moved(weighted: bool) -> float:
        ops = every_op(lowered(moe_run("none", weighted_rows=weighted)).programs.classes[0])
        return sum(
            n * op.work.bytes for op, n in ops if isinstance(op.work, Compute) and op.name in WEIGHTING
        )

    run = moe_run("none")
    elements = run.training.seq_length * 2 * run.model.hidden_size  # of two rows a token
    steps = run.model.num_layers * run.num_microbatches
    assert moved(True) - moved(False) == steps * elements * (20 + 36)


@pytest.mark.parametrize(
    ("recompute", "kept", "working"),
    [
        ("none", 1, 0),
        ("full", 0, 1),
        ({"kind": "operators", "keep": ["mm"]}, 0, 1),
        ({"kind": "modules", "modules": ["moe"]}, 0, 1),
    ],
)
def test_weighted_rows_stay_in_32_bits_until_backward(recompute: Any, kept: int, working: int) -> None:
    """torch's product of rows and weights saves both: two rows a token here, unless they are made again."""

    def held(weighted: bool) -> tuple[float, float]:
        plan = lowered(moe_run(recompute, weighted_rows=weighted)).plan
        one = activation_bytes(plan.local, plan.scenario.software).layer(plan.stages[0].runs[0])
        return one.kept, one.working

    run = moe_run("none")
    rows = 4.0 * 2 * run.training.seq_length * run.training.micro_batch * run.model.hidden_size
    (plain, plain_working), (more, more_working) = held(False), held(True)
    assert (more - plain, more_working - plain_working) == (kept * rows, working * rows)


def test_weighted_rows_are_operators_of_torch_and_made_again_by_one_cast() -> None:
    """Forward two casts and a product; backward two casts, two products, a sum; one cast to 32 bits."""
    run = moe_run({"kind": "operators", "keep": ["mm"]}, weighted_rows=True, host_s_per_kernel=1e-6)
    ops = {op.name: op for op, _ in every_op(lowered(run).programs.classes[0])}
    names = (*WEIGHTING, "rows in FP32 again")
    assert [ops[name].host_s for name in names] == pytest.approx([2e-6, 1e-6, 2e-6, 3e-6, 1e-6])
    again = ops["rows in FP32 again"].work
    assert isinstance(again, Compute)
    assert again.bytes == 6 * 2 * run.training.seq_length * run.training.micro_batch * run.model.hidden_size


def test_deepeps_rows_are_weighted_where_their_experts_are() -> None:
    """In 16 bits: a product forward, two backward and a sum."""

    def of(weighted: bool) -> dict[str, list[Compute]]:
        found: dict[str, list[Compute]] = {}
        run = moe_run("none", weighted_rows=weighted, moe_dispatcher="deepep")
        for op, _ in every_op(lowered(run).programs.classes[0]):
            if isinstance(op.work, Compute):
                found.setdefault(op.name, []).append(op.work)
        return found

    run = moe_run("none")
    elements = run.training.seq_length * run.training.micro_batch * 2 * run.model.hidden_size
    plain, weighted = of(False), of(True)
    names = {"weight rows": 4, "weight rows backward": 4, "row weights' gradient": 8}
    assert weighted.keys() - plain.keys() == names.keys()
    assert {name: weighted[name][0].bytes / elements for name in names} == names


def test_deepeps_rows_are_kept_in_16_bits_and_made_again_by_the_second_product() -> None:
    def held(weighted: bool, recompute: Any) -> float:
        run = moe_run(recompute, weighted_rows=weighted, moe_dispatcher="deepep")
        plan = lowered(run).plan
        return activation_bytes(plan.local, plan.scenario.software).layer(plan.stages[0].runs[0]).kept

    run = moe_run("none")
    rows = 2 * run.training.seq_length * run.training.micro_batch * run.model.hidden_size
    assert held(True, "none") - held(False, "none") == 2 * rows
    by_operators = {"kind": "operators", "keep": ["every_second_mm"]}
    assert held(True, by_operators) == held(False, by_operators)

    def products(weighted: bool) -> int:
        again = with_experts(recompute=by_operators, weighted_rows=weighted, moe_dispatcher="deepep")
        return sum(n for op, n in every_op(lowered(again).programs.classes[0]) if op.name == "expert fc2")

    assert products(True) == 2 * products(False)
