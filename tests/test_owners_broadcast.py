"""ZeRO-1 whose ranks own whole parameters: gradients all-reduced, what owners updated broadcast in turn."""

from __future__ import annotations

from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import every_op, lowered, parameters_of_ranks, scenario

from stepsim.sim.lowering.tensors import tensor_count
from stepsim.sim.network.transfer import several
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Collective
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario

OWNERS = {"zero1_reduce_scatters": False, "zero1_broadcasts": True}


def job(dp: int = 4, zero: int = 1, **fields: Any) -> Scenario:
    gradients = {"overlap_param_gather": False, **fields.pop("gradients", OWNERS)}
    software = {"preset": "generic-megatron", "gradients": gradients}
    return scenario(**{"software": software, "dp": dp, "zero": zero, "tied_embeddings": False} | fields)


def collectives(run: Scenario, named: str) -> list[Collective]:
    programs = lowered(run).programs.classes
    found = [op.work for op, _ in every_op(programs[0]) if op.name == named]
    return [work for work in found if isinstance(work, Collective)]


def broadcasts(run: Scenario) -> list[Collective]:
    return collectives(run, "parameter broadcast")


def test_every_owner_broadcasts_its_share() -> None:
    run = job()
    (held,) = parameters_of_ranks(run)
    (work,) = broadcasts(run)
    plan = lowered(run).plan
    assert (work.kind, work.calls) == ("broadcast", 4)
    one = plan.communication.collective("broadcast", 2.0 * held / 4, plan.groups["dp"])
    assert work.transfer == several(one, 4)
    assert not collectives(run, "parameter all_gather")
    assert not collectives(run, "gradient reduce_scatter")
    assert collectives(run, "gradient all_reduce")


def test_there_are_no_more_owners_than_tensors() -> None:
    run = job(dp=64, num_layers=2)
    plan = lowered(run).plan
    tensors = tensor_count(plan, plan.held_stages(0))
    assert tensors < 64
    (work,) = broadcasts(run)
    assert work.calls == tensors


def test_a_part_has_its_share_of_the_broadcasts() -> None:
    ahead = job(gradients=OWNERS | {"overlap_param_gather": True, "bucket_elements": 1.0})
    parts = broadcasts(ahead)
    assert len(parts) > 1
    assert all(work.calls >= 1 for work in parts)
    assert sum(work.calls for work in parts) <= 4 + len(parts)
    assert max(work.calls for work in parts) < 4


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_only_zero1_has_owners(zero: int) -> None:
    with pytest.raises(ScenarioError) as refusal:
        job(zero=zero)
    assert {problem.path for problem in refusal.value.problems} == {"software.gradients.zero1_broadcasts"}
    assert not broadcasts(job(zero=zero, gradients=OWNERS | {"zero1_broadcasts": False}))


def test_a_plan_takes_what_is_of_zero1_back_for_layouts_of_other_stages() -> None:
    run = job().with_({"cluster.gpus": 4})
    layouts = space_of(run, fix={"parallelism.tp": 1, "parallelism.pp": 1})
    made = [layouts.scenario_of(number) for number in range(len(layouts))]
    owned = {(one.parallelism.zero, one.software.gradients.zero1_broadcasts) for one in made}
    assert {(1, True), (3, False)} <= owned
    assert (3, True) not in owned
    for number, one in enumerate(made):
        assert run.with_(layouts.settings(number)) == one  # what is printed to run it makes the same


def test_sizes_in_which_the_own_layout_is_none_have_layouts_of_owners() -> None:
    run = job(tp=4, dp=1).with_({"cluster.gpus": 4})
    layouts = space_of(run, vary={"cluster.gpus": [2]})
    assert len(layouts) > 0
    assert not any("zero1_broadcasts" in reason for reason in layouts.refused)


def test_tensors_of_experts_own_no_part_of_the_others() -> None:
    """Of two layers with many experts all else is fewer tensors than ranks."""
    dense = job(dp=64, num_layers=2)
    moe = {"num_experts": 64, "topk": 2, "expert_ffn_hidden_size": 256}
    by_group = {work.communicator: work.calls for work in broadcasts(job(dp=64, num_layers=2, moe=moe))}
    (alone,) = broadcasts(dense)
    mlp, router = 2 * 2, 1  # two matrices with their biases
    assert by_group["dp"] == alone.calls + 2 * (router - mlp) < 64
    assert by_group["edp"] == 64


def test_experts_have_owners_of_their_own() -> None:
    run = with_experts(ep=8, **OWNERS, overlap_param_gather=False)
    by_group = {work.communicator: work.calls for work in broadcasts(run)}
    assert by_group == {"dp": 16, "edp": 2}


def test_parts_of_experts_have_shares_of_what_their_owners_broadcast() -> None:
    """Of four layers a quarter of eight owners each; experts are most of the model."""
    run = with_experts(ep=2, **OWNERS, overlap_param_gather=True, bucket_elements=1.0)
    assert [work.calls for work in broadcasts(run) if work.communicator == "edp"] == [2] * 4


def test_nanotrons_parameters_have_no_owners() -> None:
    with pytest.raises(ScenarioError, match="nanotron-buckets"):
        job(gradients=OWNERS | {"reduction": "nanotron-buckets"})
