"""Experts whose layers keep what exchanges gave, and exchange nothing again when they are recomputed."""

from __future__ import annotations

from collections import Counter
from math import comb
from typing import Any

import pytest
from refusals import refused_at
from small_experts import with_experts
from small_scenarios import every_op, lowered

from stepsim.calibration.cases.framework_text import fields_said
from stepsim.sim.lowering.layers.recompute import FULL, NOTHING
from stepsim.sim.lowering.state.activations import layer_bytes
from stepsim.sim.scenario.models import Scenario


def run_of(replays: bool, **fields: Any) -> Scenario:
    given = {"ep": 4, "microbatches": 1, "recompute": "full", **fields}
    return with_experts(replays_exchanges=replays, **given)


def times_of(run: Scenario) -> Counter[str]:
    found: Counter[str] = Counter()
    for op, count in every_op(lowered(run).programs.classes[0]):
        found[op.name] += count
    return found


def kept(run: Scenario) -> float:
    """Bytes that a layer keeps of a microbatch, in rows of hidden states of its tokens."""
    local = lowered(run).plan.local
    one = layer_bytes(local, run.software, FULL).kept
    return one / (local.norm_tokens * local.hidden * local.element_bytes)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_a_recomputation_exchanges_nothing_again(dispatcher: str, early: bool) -> None:
    both = [
        run_of(replays, moe_dispatcher=dispatcher).with_({"software.kernels.recompute_stops_early": early})
        for replays in (False, True)
    ]
    again, replayed = map(times_of, both)
    layers = both[0].model.num_layers
    assert replayed["dispatch"] == replayed["combine"] == layers
    assert again["dispatch"] == 2 * layers
    assert again["combine"] == (layers if early and dispatcher == "deepep" else 2 * layers)
    for name in ("dispatch backward", "combine backward", "expert fc1", "router"):
        assert replayed[name] == again[name] > 0


def test_a_recomputation_asks_nobody_again_how_many_rows_will_come() -> None:
    """The numbers of rows came with the forward's exchange: one exchange of counts a layer, with its
    kernels, in place of two."""
    again, replayed = (times_of(run_of(replays, moe_dispatcher="alltoall")) for replays in (False, True))
    layers = run_of(True).model.num_layers
    ops_of_an_exchange = 2  # the collective, and the kernels that read what it brought
    assert replayed["token counts"] == ops_of_an_exchange * layers
    assert again["token counts"] == 2 * ops_of_an_exchange * layers


def test_nccl_leaves_the_rows_that_came_and_those_that_came_home() -> None:
    run = run_of(True, moe_dispatcher="alltoall")
    assert run.model.moe is not None
    assert kept(run) - kept(run_of(False, moe_dispatcher="alltoall")) == pytest.approx(2 * run.model.moe.topk)


def test_deepep_leaves_a_token_of_each_rank_that_it_visits_and_the_sum_that_came_home() -> None:
    run = run_of(True, moe_dispatcher="deepep")
    moe, ep = run.model.moe, run.parallelism.ep
    assert moe is not None
    missed = comb(moe.num_experts - moe.num_experts // ep, moe.topk) / comb(moe.num_experts, moe.topk)
    more = kept(run) - kept(run_of(False, moe_dispatcher="deepep"))
    assert more == pytest.approx(ep * (1 - missed) + 1)


def test_what_is_not_recomputed_or_not_exchanged_keeps_no_more() -> None:
    for run in (run_of(True, ep=1), run_of(False)):
        assert kept(run) == 1
    plan = lowered(run_of(True)).plan
    without = plan.scenario.with_({"software.exchange.replays_exchanges": False}).software
    told = [layer_bytes(plan.local, one, NOTHING) for one in (plan.scenario.software, without)]
    assert told[0] == told[1]


def test_exchanges_are_replayed_where_whole_layers_are_recomputed_one_by_one() -> None:
    for fields in ({"recompute": "none"}, {"moe_a2a_overlap": True}):
        with refused_at("software.exchange.replays_exchanges"):
            lowered(run_of(True, **fields))


def test_halo_replays_exchanges_by_its_name_in_a_case() -> None:
    said = fields_said("software", "Halo (Transformers; deepep; replayed exchanges)")
    assert said["replays_exchanges"] is True
