"""Experts: bytes of their exchanges, groups, gradients, uneven routers, and what overlaps."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from refusals import refused_at
from small_experts import LATENT, expert_collectives, expert_layouts, with_experts
from small_scenarios import every_op, lowered

from stepsim.sim.lowering.layers.routing import (
    LEVELS,
    distinct_loads,
    dropped_share,
    expert_shares,
    rank_loads,
)
from stepsim.sim.lowering.optimizers import updated_parameters
from stepsim.sim.lowering.process_groups import ProcessGroups
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.token_exchange import DEEPEP_SMS, HYBRIDEP_SMS, Router, visits
from stepsim.sim.program.program import Collective, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

ZIPF = {"kind": "zipf", "exponent": 0.8}


def _moved(run: Scenario, axis: str) -> float:
    """Payload bytes of all collectives of an axis in a step, first class."""
    works = [op.work for op in expert_collectives(lowered(run), axis)]
    return sum(work.transfer.bytes for work in works if isinstance(work, Collective))


# Bytes ---------------------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2]),
    st.sampled_from([1.0, 2.0, None]),
)
@settings(max_examples=20, deadline=None)
def test_bytes_of_nccls_exchange_are_the_closed_form(
    tp: int, ep: int, micro_batch: int, capacity: float | None
) -> None:
    """Two exchanges forward and two backward, each of topk copies of this rank's tokens; with one of them
    each way a weight of 4 bytes for each copy, since the experts' activation applies it."""
    fields = {} if capacity is None else {"capacity_factor": capacity}
    run = with_experts(tp=tp, ep=ep, micro_batch=micro_batch, **fields)
    copies = 2 * (capacity or 1.0)
    tokens = micro_batch * 512 / tp
    # Without a capacity all ranks first tell one another how many tokens go to each of 16 experts.
    counts = 0 if capacity else 4 * run.num_microbatches * ep * 16 * 8
    passes = 4 * run.num_microbatches
    expected = passes * tokens * copies * (4 * 256 * 2 + 2 * 4)
    assert _moved(run, "ep") == expected + counts
    assert _moved(with_weights_at_home(run), "ep") == expected + counts - passes * tokens * copies * 2 * 4


def with_weights_at_home(run: Scenario) -> Scenario:
    """The run with rows that are weighted when they are back, as before Megatron core 0.13."""
    return run.with_({"software.kernels.weighted_activation": False})


def test_weights_of_rows_travel_with_ranks_that_share_an_expert_too() -> None:
    """Those gather them with the rows, and add up their gradients; DeepEP and HybridEP carry both in one."""

    def weights(**fields: Any) -> Counter[str]:
        found = lowered(with_experts(**fields)).programs.classes[0]
        return Counter(
            op.name for op, count in every_op(found) for _ in range(count) if " weights" in op.name
        )

    shared = weights(tp=2, etp=2, ep=4)
    assert shared["dispatch weights"] == shared["dispatch backward weights"] > 0
    assert shared["expert weights all_gather"] == shared["dispatch weights"]
    assert shared["expert weights reduce_scatter"] == shared["dispatch weights"]
    assert not weights(moe_dispatcher="deepep")
    assert not weights(moe_dispatcher="hybridep")
    assert not weights(ep=1)


def test_deepep_sends_a_token_once_to_each_host() -> None:
    run = with_experts(ep=16, moe_dispatcher="deepep")
    exchange = next(op.work for op in expert_collectives(lowered(run), "ep"))
    assert isinstance(exchange, Collective)
    weights = dict(exchange.transfer.weights)
    # Two of 16 experts on two hosts: both on one's own host, or one or both on the other.
    on_other = 1 - math.comb(8, 2) / math.comb(16, 2)
    assert exchange.transfer.bytes == 512 * 256 * 2
    assert weights["nic.out"] == pytest.approx(on_other)


def test_hybridep_sends_what_deepep_does() -> None:
    """At the pace of its own kernels on Blackwell, on more SMs."""
    fields: dict[str, Any] = {"ep": 16, "gpu": "B200-SXM-180GB"}
    deep, hybrid = (
        next(op.work for op in expert_collectives(lowered(with_experts(moe_dispatcher=way, **fields)), "ep"))
        for way in ("deepep", "hybridep")
    )
    assert isinstance(deep, Collective)
    assert isinstance(hybrid, Collective)
    assert hybrid.transfer.bytes == deep.transfer.bytes
    assert hybrid.transfer.weights == deep.transfer.weights
    assert (deep.transfer.sms, hybrid.transfer.sms) == (DEEPEP_SMS, HYBRIDEP_SMS)
    assert hybrid.transfer.ceiling_bytes_per_s <= deep.transfer.ceiling_bytes_per_s


def test_kernels_that_apply_the_activation_read_and_write_less() -> None:
    fields: dict[str, Any] = {"gpu": "B200-SXM-180GB", "precision": "mxfp8", "grouped_gemm": "one-kernel"}
    fields |= {"cuda_graphs": True}  # kernels, and not the host's calls, are what is compared
    apart, fused = (simulate(with_experts(fused_grouped_mlp=flag, **fields)) for flag in (False, True))
    assert fused.step_time_s < apart.step_time_s
    assert fused.model_flops == apart.model_flops
    wide = [
        simulate(with_experts(**{**fields, "precision": "bf16"}, fused_grouped_mlp=flag)).step_time_s
        for flag in (False, True)
    ]
    assert wide[0] == wide[1]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.integers(1, 8))
def test_visits_are_the_expectation(domains: int, local: int, held: int, topk: int) -> None:
    placement = GroupPlacement(ranks=domains * local, domains=domains)
    experts = placement.ranks * held
    router = Router(experts=experts, topk=min(topk, experts), copies=topk)
    found = visits(router, placement)
    assert 1 <= found.domains <= min(domains, router.topk) + 1e-9
    assert found.domains <= found.gpus + 1e-9 <= min(placement.ranks, router.topk) + 2e-9
    limited = visits(Router(experts=experts, topk=router.topk, copies=topk, node_limit=1), placement)
    assert limited.domains <= max(1, math.ceil(router.topk / (experts / domains)))
    assert limited.domains <= found.domains + 1e-9


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]))
@settings(max_examples=12, deadline=None)
def test_gradients_of_experts_are_reduced_among_those_that_hold_the_same(tp: int, etp: int, ep: int) -> None:
    run = with_experts(tp=tp, etp=etp, ep=ep, overlap_grad_reduce=False)
    plan = lowered(run).plan
    held = 4 * (16 // ep) * 3 * 256 * 512 / etp
    assert plan.held_elements(0).experts == held
    assert plan.groups["edp"].ranks == 16 // (ep * etp)
    if plan.groups["edp"].ranks > 1:
        reduced = [op for op in expert_collectives(lowered(run), "edp") if "gradient" in op.name]
        sizes = [op.work.transfer.bytes for op in reduced if isinstance(op.work, Collective)]
        assert sum(sizes) == pytest.approx(held * plan.local.grad_bytes)
    assert updated_parameters(plan, 0) == pytest.approx(
        plan.held_elements(0).shared / plan.groups["dp"].ranks + held / plan.groups["edp"].ranks
    )


# Groups ----------------------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
)
@settings(deadline=None)
def test_expert_groups_cut_every_stage_anew(tp: int, pp: int, etp: int, ep: int, order: str) -> None:
    par = with_experts(tp=tp, pp=pp, etp=etp, ep=ep, order=order).parallelism
    groups = ProcessGroups(parallelism=par)
    grid, experts = groups.stages, groups.grids["experts"]
    assert experts.shape[0] == pp
    assert experts.shape[3:] == (ep, etp)
    for stage in range(pp):
        assert sorted(experts[stage].ravel()) == sorted(grid[stage].ravel())


# Uneven routers ------------------------------------------------------------------------------------------


def test_loads_have_the_mean_of_a_balanced_router(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    counts.write_text(str([float(1 + i % 5) for i in range(16)]), encoding="utf-8")
    for routing in (ZIPF, {"kind": "counts", "file": str(counts)}):
        loads = rank_loads(with_experts(routing=routing))
        assert sum(loads) / len(loads) == pytest.approx(1)
        assert len(set(loads)) > 1
    assert rank_loads(with_experts(routing={"kind": "zipf", "exponent": 0.0})) == pytest.approx((1.0,) * 8)


def test_large_groups_have_few_levels_of_load_and_the_same_sum() -> None:
    few = {"num_experts": 64, "ep": 64, "gpus": 64}
    run = with_experts(routing=ZIPF, **few)
    loads, shares = rank_loads(run), expert_shares(run)
    assert len(distinct_loads(run)) == LEVELS
    assert max(loads) == max(shares)
    assert sum(loads) == pytest.approx(sum(shares))
    assert all(a >= b for a, b in pairwise(loads))


def test_a_capacity_makes_ranks_equal_and_drops_tokens() -> None:
    run = with_experts(routing=ZIPF, capacity_factor=1.0)
    assert distinct_loads(run) == (1.0,)
    assert 0.1 < dropped_share(run) < 0.5
    assert dropped_share(with_experts(routing=ZIPF)) == 0


@pytest.mark.parametrize("fields", [{}, {"tp": 2}, {"pp": 2}, {"tp": 2, "etp": 2}, {"moe_a2a_overlap": True}])
def test_unequal_ranks_unfold_and_equal_ones_stay_folded(fields: dict[str, int]) -> None:
    run = with_experts(**{"ep": 4, "routing": ZIPF, "microbatches": 2, **fields})
    folded, each = simulate(run), simulate(run, fold=False)
    assert folded.step_time_s == pytest.approx(each.step_time_s, rel=1e-9)
    assert len(distinct_loads(run)) <= len(folded.ranks) < len(each.ranks)
    assert sum(one.count for one in folded.ranks) == 16


def test_an_uneven_router_costs_time_and_memory() -> None:
    even, uneven = (
        simulate(with_experts(routing=r, seq_length=2048, host_s_per_kernel=0.0)) for r in ("balanced", ZIPF)
    )
    assert uneven.step_time_s > even.step_time_s
    assert uneven.memory[0].terms["activations"] > even.memory[0].terms["activations"]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    counts = tmp_path / "counts.txt"
    counts.write_text("1\n2\n3\n", encoding="utf-8")
    with refused_at("training.routing.file", str(counts), "3 counts", "16 experts"):
        lowered(with_experts(routing={"kind": "counts", "file": str(counts)}))
    with refused_at("training.routing.file", str(tmp_path / "none.txt")):
        lowered(with_experts(routing={"kind": "counts", "file": str(tmp_path / "none.txt")}))
    with refused_at("training.routing", "zipf", "exponent"):
        with_experts(routing={"kind": "zipf"})
    with refused_at("training.routing", "dense", "model.moe"):
        with_experts(moe=None, ep=1, routing=ZIPF)
    with refused_at("parallelism.sequence_parallel", "sequence_parallel: true"):
        with_experts(tp=2, sequence_parallel=False)
    with refused_at("software.exchange.moe_a2a_overlap", "1f1b", "interleaved"):
        lowered(with_experts(pp=2, schedule="1f1b", moe_a2a_overlap=True))
    with refused_at("software.exchange.moe_a2a_overlap", "DeepSpeed", "megatron-fsdp"):
        lowered(with_experts(zero=3, moe_a2a_overlap=True, implementation="deepspeed"))


def test_pairs_that_would_wait_for_each_other_are_refused() -> None:
    """Megatron interleaves no last group smaller than the ranks: one of 1 on 3 ranks deadlocks."""
    fields = {"gpus": 6, "pp": 3, "vpp": 3, "schedule": "interleaved", "group": 3, "ep": 2}
    fields |= {"num_layers": 9, "moe_a2a_overlap": True}
    with refused_at("software.exchange.moe_a2a_overlap", "deadlock", "rank 0", "rank 2", "group"):
        lowered(with_experts(**fields, microbatches=4))
    assert lowered(with_experts(**fields, microbatches=6))
    assert lowered(
        with_experts(**{**fields, "moe_a2a_overlap": False, "point_to_point": "async"}, microbatches=4)
    )


# Steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{}, {"tp": 2}, {"mla": LATENT}, {"num_dense_layers": 1}, {"etp": 2, "tp": 2}]
)
@pytest.mark.parametrize("overlap", [False, True])
def test_matrices_are_multiplied_once_forward_and_twice_backward(
    fields: dict[str, int], overlap: bool
) -> None:
    from stepsim.sim.lowering.sizes import layer_matrix_flops, logits_flops

    run = with_experts(moe_a2a_overlap=overlap, shared_expert_ffn_hidden_size=512, **fields)
    result = simulate(run)
    spans = result.spans
    mine = spans[(spans["stream"] == "compute") & ~spans["name"].str.contains("attention")]
    tokens = float(run.training.global_batch * run.training.seq_length)
    model = run.model
    layers = sum(layer_matrix_flops(model, tokens, layer) for layer in range(model.num_layers))
    whole = 3 * (layers + logits_flops(model, tokens))
    copies = run.parallelism.tp if model.mla else 1  # matrices down to the latents work on a rank's own rows
    assert mine["flops"].sum() * run.cluster.gpus == pytest.approx(whole, rel=1e-9 if copies == 1 else 1e-3)


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
@pytest.mark.parametrize("schedule", ["none", "interleaved", "dualpipe"])
@pytest.mark.parametrize(("topk", "gpus_per_node"), [(8, 8), (2, 8), (2, 4)])
def test_exchanges_hide_under_another_microbatch(
    schedule: str, dispatcher: str, topk: int, gpus_per_node: int
) -> None:
    pp = 1 if schedule == "none" else 2
    fields: dict[str, Any] = {
        "schedule": schedule,
        "microbatches": 8,
        "moe_dispatcher": dispatcher,
        "topk": topk,
        "gpus_per_node": gpus_per_node,
    }
    fields |= {"pp": pp, "vpp": 2 if schedule == "interleaved" else 1}
    alone, beside = (
        simulate(with_experts(seq_length=4096, moe_a2a_overlap=on, host_s_per_kernel=0.0, **fields))
        for on in (False, True)
    )
    before_s, after_s = (one.exposed_communication_s["ep"] for one in (alone, beside))
    if schedule == "dualpipe":  # it pairs its actions whatever the software says of exchanges
        assert (after_s, beside.step_time_s) == (before_s, alone.step_time_s)
        return
    assert after_s < 0.7 * before_s
    if dispatcher == "deepep" and schedule == "none":  # the first forward and the last backward have no other
        assert after_s == pytest.approx(before_s / 8, rel=1e-9)
    gained_s = alone.step_time_s - beside.step_time_s
    assert gained_s <= (before_s - after_s) * (1 + 1e-9)
    # Two copies of a token over NVLink: what kernels lose to the SMs and the HBM that exchanges take may be
    # as much as is hidden. Eight copies, as large models send, or a network between experts, are worth it.
    small = topk == 2 and gpus_per_node == 8
    assert gained_s > (-0.02 if small else 0.02) * alone.step_time_s


@pytest.mark.slow
@examples(15)
@given(expert_layouts())
def test_any_legal_layout_runs_and_closes_its_memory(run: Scenario) -> None:
    result = simulate(run)
    busy = Counter[int]()
    for _, span in result.spans.iterrows():
        if span["stream"] == "compute":
            busy[int(span["rank"])] += span["end_s"] - span["start_s"]
    assert result.step_time_s >= max(busy.values()) * (1 - 1e-9)
    for stage in result.memory:
        if stage.timeline:
            peak = max(held for _, held in stage.timeline)
            assert stage.timeline[-1][1] == pytest.approx(0, abs=1e-6 * peak)


@examples(12)
@given(expert_layouts())
def test_every_action_has_its_layers(run: Scenario) -> None:
    """Each microbatch passes each layer forward once, alone or beside a backward."""
    made = lowered(run)
    plan, stages = made.plan, made.plan.shape.ranks
    for index, program in enumerate(made.programs.classes[:stages]):
        count = sum(
            block.name.startswith("layer forward")
            for op in program.ops
            if isinstance(op.work, RepeatedBlocks)
            for block in op.work.row
        )
        held = sum(plan.stages[s].layers for s in plan.held_stages(index))
        ways = 2 if plan.two_way else 1
        assert count == held * plan.shape.microbatches // ways
