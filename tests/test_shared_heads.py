"""More ranks of tensor parallelism than query groups: ranks share the key and value heads of a group."""

from __future__ import annotations

from collections import defaultdict

import pytest
from refusals import refused_at
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.local_shape import local_shape_of_model
from stepsim.sim.lowering.parameters import attention_parameters
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.checks import tensor_parallel_divides
from stepsim.sim.scenario.models import Scenario

CUT = (
    "QKV side by side",
    "queries of the group",
    "gradient of the group",
    "gradient of QKV",
    "gradients one after the other",
)

SHARED = {"preset": "megatron-core-2025", "exchange": {"shared_kv_heads": True}}


def grouped(tp: int, groups: int, **fields: object) -> Scenario:
    fields = {"software": SHARED, "num_attention_heads": 8, "sequence_parallel": tp > 1, **fields}
    return scenario(tp=tp, num_query_groups=groups, num_layers=2, mlp="swiglu", **fields)


def test_without_the_word_it_is_refused_and_the_word_is_named() -> None:
    with refused_at("parallelism.tp", "num_query_groups 2", "1 or 2", "software.exchange.shared_kv_heads"):
        grouped(4, 2, software="megatron-core-2025")


def test_ranks_that_do_not_share_evenly_are_refused() -> None:
    model = grouped(4, 4, num_attention_heads=24, hidden_size=192, ffn_hidden_size=768).model
    for tp, legal in ((4, True), (8, True), (6, False), (12, True)):
        layout = grouped(4, 4).parallelism.model_copy(update={"tp": tp})
        assert bool(list(tensor_parallel_divides(model, layout, heads_are_shared=True))) != legal


@pytest.mark.parametrize(("tp", "groups"), [(4, 1), (4, 2), (8, 2), (8, 8), (2, 2)])
def test_ranks_together_hold_the_model_s_weights(tp: int, groups: int) -> None:
    model = grouped(tp, groups).model
    local = local_shape_of_model(model, tp=tp)
    held = {one.name: one.shape[0] * tp for one in attention_parameters(local) if len(one.shape) > 1}
    assert held["query"] == model.num_attention_heads * model.kv_channels
    assert held["key"] == held["value"] == groups * model.kv_channels


@pytest.mark.parametrize(("tp", "groups", "shares"), [(4, 2, True), (4, 4, False), (2, 4, False)])
def test_a_layer_gathers_all_and_scatters_their_gradients(tp: int, groups: int, shares: bool) -> None:
    run = grouped(tp, groups)
    program = lowered(run).programs.classes[0]
    width = (run.model.num_attention_heads + 2 * groups) * run.model.kv_channels
    whole = 2.0 * run.training.micro_batch * run.training.seq_length * width
    found = {
        (op.work.kind, op.work.transfer.bytes)
        for op, _ in every_op(program)
        if "QKV" in op.name and isinstance(op.work, Collective)
    }
    assert found == ({("all_gather", whole), ("reduce_scatter", whole)} if shares else set())


def test_what_is_gathered_is_put_side_by_side_and_cut_again() -> None:
    """Joined, then the group's queries as a tensor of their own; backward each slice is written into zeros,
    the queries of the group and what they were cut from, and the parts of all ranks are joined."""
    run = grouped(4, 2)
    tokens, head = run.training.micro_batch * run.training.seq_length, run.model.kv_channels
    whole, group = (2.0 * tokens * heads * head for heads in (8 + 2 * 2, 8 / 2))
    steps = run.model.num_layers * run.num_microbatches
    moved = defaultdict[str, float](float)
    for op, count in every_op(lowered(run).programs.classes[0]):
        if isinstance(op.work, Compute):
            moved[op.name] += count * op.work.bytes / steps
    assert {name: moved[name] for name in CUT} == {
        "QKV side by side": 2 * whole,
        "queries of the group": 2 * group,
        "gradient of the group": 3 * group,
        "gradient of QKV": whole + 2 * group,
        "gradients one after the other": 2 * whole,
    }


@pytest.mark.parametrize(("shared", "widest"), [(True, 4), (False, 2)])
def test_a_plan_may_propose_them_where_the_software_can(shared: bool, widest: int) -> None:
    software = {"preset": "megatron-core-2025", "exchange": {"shared_kv_heads": shared}}
    run = grouped(1, 2, software=software, dp=4, microbatches=4)
    space = space_of(run, vary={"parallelism.tp": [1, 2, 4], "parallelism.sequence_parallel": [False]})
    assert max(space.settings(i)["parallelism.tp"] for i in range(len(space))) == widest
