"""SMs that exchanges have to themselves, and weight gradients in eight bits at a rate of their own."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import every_op, lowered

from stepsim.sim.program.program import Collective, Compute, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

DUALPIPE = {"pp": 2, "ep": 2, "schedule": "dualpipe", "moe_dispatcher": "deepep"}


def pairs(run: Scenario) -> list[tuple[str, Any]]:
    """Name and work of every op of a block that runs a layer forward beside one backward."""
    rows = [op.work.row for op in lowered(run).programs.classes[0].ops if isinstance(op.work, RepeatedBlocks)]
    blocks = {block for row in rows for block in row if "beside" in block.name}
    assert blocks
    return [(op.name, op.work) for block in blocks for op in block.ops]


def test_kernels_beside_exchanges_have_the_rest() -> None:
    """20 of 132 SMs: compute takes 132/112 as long, memory's own kernels as before, exchanges hold none."""
    plain, apart = (pairs(with_experts(**DUALPIPE, exchange_sms=sms)) for sms in (0, 20))
    by_name = {name: work for name, work in plain if isinstance(work, Compute)}
    for name, work in apart:
        if isinstance(work, Collective) and work.communicator == "ep":
            assert work.transfer.sms == 0
        elif isinstance(work, Compute):
            slower = 1.0 if work.kind in ("memory-bound", "fixed") else 132 / 112
            assert work.seconds == pytest.approx(slower * by_name[name].seconds)


def test_a_partition_is_never_faster_than_sharing() -> None:
    shared, apart = (simulate(with_experts(**DUALPIPE, exchange_sms=sms)).step_time_s for sms in (0, 20))
    assert apart >= shared * (1 - 1e-9)


def test_elsewhere_it_changes_nothing() -> None:
    times = [simulate(with_experts(pp=2, ep=2, exchange_sms=sms)).step_time_s for sms in (0, 20)]
    assert times[0] == times[1]


@pytest.mark.parametrize(("precision", "slower"), [("fp8", 2.0), ("bf16", 1.0)])
def test_weight_gradients_in_eight_bits(precision: str, slower: float) -> None:
    def seconds(rate: float) -> dict[str, float]:
        run = with_experts(precision=precision, fp8_wgrad_rate=rate)
        ops = every_op(lowered(run).programs.classes[0])
        return {op.name: op.work.seconds for op, _ in ops if isinstance(op.work, Compute)}

    usual, half = seconds(1.0), seconds(0.5)
    for name in usual:
        quantised = name.endswith("wgrad") and not name.startswith(("router", "logits"))
        assert half[name] == pytest.approx(usual[name] * (slower if quantised else 1.0)), name
