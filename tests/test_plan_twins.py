"""Layouts that are twins take the same step and the same memory, and none else count as twins."""

from __future__ import annotations

import numpy as np
import pytest
from small_plans import FIX, small

from stepsim.sim.lowering.layers.stages import build_stages
from stepsim.sim.plan.search.judged import ReplayOf
from stepsim.sim.plan.search.plan import candidates_of


@pytest.mark.slow
@pytest.mark.parametrize("software", ["torchtitan-2024", "deepspeed-zero3-2021"])
def test_a_twin_takes_the_same_step_and_the_same_memory(software: str) -> None:
    layouts = candidates_of(small(software=software), FIX, {}, lambda _: None)[0].layouts
    zero = layouts.columns["parallelism.zero"]
    twins = [(i, layouts.twin(i)) for i in range(len(layouts)) if layouts.twin(i) != i]
    assert all(1 <= zero[j] < zero[i] for i, j in twins)
    assert all(layouts.twin(j) == j for _, j in twins)
    assert twins or software == "deepspeed-zero3-2021"
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory) == (other.step_time_s, other.memory)


@pytest.mark.slow
def test_orders_of_ranks_that_place_all_groups_alike_are_twins() -> None:
    orders = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
    run, vary = small(cluster__gpus=32), {"parallelism.order": orders}
    layouts = candidates_of(run, {**FIX, "parallelism.zero": 1}, vary, lambda _: None)[0].layouts
    order, pp, dp = (layouts.columns[f"parallelism.{name}"] for name in ("order", "pp", "dp"))
    second = np.flatnonzero((order == orders[1]) & (pp > 1) & (dp > 1)).tolist()
    twins = [(i, layouts.twin(i)) for i in second if layouts.twin(i) != i]
    assert 0 < len(twins) < len(second)  # whole hosts in one place or the other, or parts of hosts
    assert all(order[j] == orders[0] and layouts.twin(j) == j for _, j in twins)
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory, one.parts) == (other.step_time_s, other.memory, other.parts)


@pytest.mark.slow
def test_splits_that_give_each_stage_as_many_layers_are_twins() -> None:
    splits = ["uniform", "embedding_and_loss_as_layers", "uneven_unspecified", "flops_balanced"]
    fix = {**FIX, "parallelism.zero": 1, "parallelism.tp": 2, "training.micro_batch": 2}
    del fix["parallelism.stage_split"]
    run = small(model__num_layers=6, model__vocab_size=128000)
    layouts = candidates_of(run, fix, {"parallelism.stage_split": splits}, lambda _: None)[0].layouts
    settings = [layouts.settings(i) for i in range(len(layouts))]
    split = [one.pop("parallelism.stage_split") for one in settings]
    pairs = [(i, j) for j in range(len(layouts)) for i in range(j) if settings[i] == settings[j]]
    stages = [build_stages(layouts.scenario_of(i)) for i in range(len(layouts))]
    same = [(i, j) for i, j in pairs if stages[i] == stages[j]]
    assert {split[i] for pair in same for i in pair} >= set(splits[:3])
    assert len(same) < len(pairs)
    assert all((layouts.twin(i) == layouts.twin(j)) == ((i, j) in same) for i, j in pairs)
    assert all(layouts.twin(layouts.twin(i)) == layouts.twin(i) for i in range(len(layouts)))
    for i, j in same[:: max(1, len(same) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory, one.parts) == (other.step_time_s, other.memory, other.parts)


def test_orders_of_ranks_that_are_placed_in_several_ways_are_no_twins() -> None:
    """Here rank 0 and as many groups of each axis sit alike under both orders, and other ranks do not."""
    where = [15, 4, 7, 1, 12, 3, 10, 5, 0, 14, 11, 13, 8, 9, 6, 2]
    fields = {"gpus": 16, "gpus_per_node": 4, "placement": {"kind": "explicit", "gpus": where}}
    run = small(**{f"cluster__{name}": value for name, value in fields.items()})
    fix = {**FIX, "parallelism.zero": 1, "parallelism.pp": 2, "parallelism.tp": 2, "parallelism.vpp": 1}
    fix |= {"training.micro_batch": 2, "parallelism.ep": 1, "schedule": "1f1b"}
    vary = {"parallelism.order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]}
    layouts = candidates_of(run, fix, vary, lambda _: None)[0].layouts
    one, other = (ReplayOf()(layouts.scenario_of(number)).step_time_s for number in range(len(layouts)))
    assert one != other
    assert [layouts.twin(number) for number in range(len(layouts))] == [0, 1]
