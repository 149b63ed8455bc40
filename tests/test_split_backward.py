"""Split backwards in real steps: what I and W run and hold, how steps end, what V-shaped and two-way need."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.bare import ActionTimes, bare_programs
from refusals import refused_at
from schedule_shapes import legal
from small_scenarios import layouts, lowered, main_gradient_bytes, scenario

from stepsim.schedules.orders.action import Action, ActionKind
from stepsim.schedules.orders.schedule import Costs, Shape
from stepsim.schedules.orders.timeline import timeline
from stepsim.schedules.pipeline import get, names
from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.actions import action_blocks
from stepsim.sim.lowering.layers.recompute import NOTHING
from stepsim.sim.lowering.state.activations import activation_bytes, layer_bytes
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.pipeline_shape import pipeline_shape
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.scenario.table_files import write_table
from stepsim.sim.simulate import simulate

SPLIT = ("zb-h1", "zb-h2", "zb", "zb-1p", "zb-2p")

sizes = st.integers(1, 4)


def work_of(run: Scenario, kind: ActionKind) -> Counter[tuple[str, float, float]]:
    """Kernels and collectives of one action of the first stage, with what they compute or move."""
    plan = lowered(run).plan
    found: Counter[tuple[str, float, float]] = Counter()
    for block, count in action_blocks(Action(0, kind, 0), plan.stages[0], plan.blocks):
        for op in block.ops:
            if isinstance(op.work, Compute):
                found[op.work.kind, op.work.flops, op.work.bytes] += count
            elif isinstance(op.work, Collective):
                found[op.work.kind, 0.0, op.work.transfer.bytes] += count
    return found


# What the two halves run -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(layouts())
def test_both_halves_run_what_the_whole_runs(run: Scenario) -> None:
    """The same kernels and collectives, each once: only their order differs."""
    halves = work_of(run, ActionKind.INPUT_GRAD) + work_of(run, ActionKind.WEIGHT_GRAD)
    assert halves == work_of(run, ActionKind.BACKWARD)


def test_attention_has_no_weight_gradient() -> None:
    """W is GEMMs and what adds their results, and as many FLOPs as the forward's GEMMs."""
    run = scenario(software="nanotron-2024", num_layers=1)
    weights = work_of(run, ActionKind.WEIGHT_GRAD)
    assert {kind for kind, _, _ in weights} == {"gemm", "memory-bound"}
    gemms = {
        kind: sum(flops * count for (what, flops, _), count in work_of(run, kind).items() if what == "gemm")
        for kind in ActionKind
    }
    assert gemms[ActionKind.WEIGHT_GRAD] == gemms[ActionKind.FORWARD] == gemms[ActionKind.INPUT_GRAD]


# What they hold ----------------------------------------------------------------------------------------


@given(sizes, sizes, st.sampled_from([64, 128]))
def test_between_the_halves_only_operands_are_held(heads: int, batch: int, length: int) -> None:
    """32 s b h bytes of a plain layer (Qi 2023, section 2.3): inputs and output gradients of the matrices."""
    h = heads * 64
    run = scenario(
        num_attention_heads=heads,
        hidden_size=h,
        ffn_hidden_size=4 * h,
        micro_batch=batch,
        seq_length=length,
    )
    plan = lowered(run).plan
    held = layer_bytes(plan.local, run.software, NOTHING)
    assert held.operands == 32 * length * batch * h


@settings(max_examples=40)
@given(layouts())
def test_activations_end_the_step_as_they_began(run: Scenario) -> None:
    each = 0 if run.software.gradients.persistent_gradients else main_gradient_bytes(run)
    for stage in simulate(run).memory:
        if stage.timeline:
            peak = max(held for _, held in stage.timeline)
            left, gradients = stage.timeline[-1][1], stage.parameters * each
            assert left == pytest.approx(gradients, abs=1e-6 * peak)


def test_a_memory_limit_holds_in_bytes() -> None:
    """zb within p activations peaks no higher than 1F1B's fullest rank; within 2p it may."""
    peaks = {
        schedule: max(stage.terms["activations"] for stage in simulate(a_pipeline(schedule)).memory)
        for schedule in ("1f1b", "zb-1p", "zb-2p")
    }
    assert peaks["zb-1p"] <= peaks["1f1b"] * (1 + 1e-9) < peaks["zb-2p"]


def a_pipeline(schedule: str, **fields: object) -> Scenario:
    sizes = {"microbatches": 16, "hidden_size": 1024, "ffn_hidden_size": 4096}
    return scenario(pp=4, schedule=schedule, **{**sizes, **fields})


# How a step ends ---------------------------------------------------------------------------------------


def test_post_validation_lets_the_next_step_begin() -> None:
    """Where backwards are split the step is the longest span of a rank; elsewhere ranks meet at its end."""
    optimistic = {
        "preset": "megatron-2022-sp",
        "gradients": {"optimizer_post_validation": True},
        "host": {"host_s_per_kernel": 0},
    }
    for schedule in SPLIT:
        skewed = simulate(a_pipeline(schedule, software=optimistic, microbatches=8))
        spans = [
            max(s.end_s for s in skewed.iter_spans() if s.rank == r and s.stream == "compute")
            - min(s.start_s for s in skewed.iter_spans() if s.rank == r and s.stream == "compute")
            for r in range(4)
        ]
        assert skewed.step_time_s == pytest.approx(max(spans), rel=1e-9)
        assert skewed.step_time_s <= skewed.makespan_s
        assert sum(part.seconds for part in skewed.critical_path) == pytest.approx(skewed.step_time_s)
    assert skewed.step_time_s < skewed.makespan_s  # zb-2p, where ranks end in turn
    together = simulate(a_pipeline("1f1b", software=optimistic, microbatches=8))
    assert together.step_time_s == together.makespan_s


def test_a_step_that_begins_early_takes_its_host_no_less() -> None:
    """The host of a later rank gets ahead while the pipeline fills, but not again in each step that follows.
    So no step is shorter than its bound."""
    sizes = {"tp": 2, "pp": 2, "hidden_size": 256, "ffn_hidden_size": 512, "microbatches": 8}
    run = scenario(schedule="zb-h1", software={"preset": "megatron-zero-bubble-2023"}, **sizes)
    step, programs = simulate(run), lowered(run).programs
    issued_s = max(sum(op.host_s for op in program.ops) for program in programs.classes)
    assert step.step_time_s == pytest.approx(issued_s, rel=1e-9)
    assert sum(part.seconds for part in step.critical_path) == pytest.approx(step.step_time_s)
    space = space_of(run, vary={name: [field_value(run, name)] for name in layout_values(run)})
    assert screen(space, within=float("inf")).bound_s[0] <= step.step_time_s * (1 + 1e-9)


@given(st.integers(2, 5), st.integers(2, 9), sizes, sizes)
def test_a_stream_has_no_bubble(p: int, extra: int, f: int, b: int) -> None:
    """PipeDream: m microbatches in the time of their work, whatever the depth (uniform, no latency)."""
    shape = Shape(ranks=p, microbatches=p + extra)
    times = ActionTimes(forward_s=float(f), input_grad_s=float(b), weight_grad_s=0.0)
    programs = replace(bare_programs(get("pipedream"), shape, times), ends="streaming")
    record = replay(programs)
    assert record.step_s == pytest.approx(shape.microbatches * (f + b), rel=1e-9)
    assert record.makespan_s > record.step_s


def test_pipedream_keeps_weights_for_every_microbatch_under_way() -> None:
    run = a_pipeline("pipedream")
    weights = [stage.terms["weights"] for stage in simulate(run).memory]
    single = [stage.terms["weights"] for stage in simulate(a_pipeline("1f1b")).memory]
    assert weights == pytest.approx([w * (4 - r) for r, w in enumerate(single)])
    with refused_at("parallelism.zero", "pipedream"):
        simulate(a_pipeline("pipedream", dp=2, zero=1))


def test_replicas_of_a_stream_agree_before_every_update() -> None:
    """PipeDream wraps replicated stages in DDP: an all-reduce for each microbatch, not for each step."""
    run = a_pipeline("pipedream", dp=2)
    for program in lowered(run).programs.classes:
        reduced = [op.name for op in program.ops if op.name in ("gradient all_reduce", "Adam")]
        assert reduced == ["gradient all_reduce", "Adam"] * run.num_microbatches
    assert simulate(run, fold=False).step_time_s == pytest.approx(simulate(run).step_time_s, rel=1e-9)


# Schedules in the engine -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
@settings(max_examples=8)
@given(f=sizes, b=sizes, w=sizes, c=st.integers(0, 3))
def test_the_engine_times_every_schedule_as_the_timeline_does(
    name: str, f: int, b: int, w: int, c: int
) -> None:
    """One kernel an action, pure latency: begins and ends of all actions agree."""
    schedule = get(name)
    looped = name in ("interleaved", "interleaved-zb", "looped-bfs")
    costs = Costs(forward=f, input_grad=b, weight_grad=w, latency=c)
    shape = Shape(ranks=4, microbatches=8, chunks=2 if looped else schedule.chunks, costs=costs)
    times = ActionTimes(forward_s=float(f), input_grad_s=float(b), weight_grad_s=float(w), latency_s=float(c))
    programs = bare_programs(schedule, shape, times)
    record = replay(programs)
    expected = timeline(schedule.orders(shape), shape)
    for r, program in enumerate(programs.classes):
        kernels = [
            (op.action, *record.times(r, i)[::2])
            for i, op in enumerate(program.ops)
            if op.stream == "compute"
        ]
        assert kernels == [(str(t.action), t.begin, t.end) for t in expected.ranks[r]]


def test_two_way_ranks_share_one_data_parallel_group() -> None:
    """DualPipe: every stage twice, so twice the weights, and gradients are reduced also without replicas."""
    both, one = simulate(a_pipeline("dualpipe", zero=1)), simulate(a_pipeline("1f1b", zero=1))
    assert sum(s.terms["weights"] for s in both.memory) == pytest.approx(
        2 * sum(s.terms["weights"] for s in one.memory)
    )
    reduced = [s for s in both.iter_spans() if s.category == "dp" and s.name.startswith("gradient")]
    assert {s.rank for s in reduced} == {0, 1, 2, 3}
    assert not any(s.category == "dp" for s in one.iter_spans())


def test_a_v_reduces_no_tied_table() -> None:
    """Both ends of the model are on the first rank."""
    loop, v = (
        simulate(a_pipeline(name, tied_embeddings=True, vpp=chunks))
        for name, chunks in (("interleaved", 2), ("zb-v", 2))
    )
    named = [any(s.name == "embedding gradient all_reduce" for s in run.iter_spans()) for run in (loop, v)]
    assert named == [True, False]


# A table of one's own ----------------------------------------------------------------------------------


def test_a_table_runs_as_the_schedule_that_it_was_written_from(tmp_path: Path) -> None:
    shape = Shape(ranks=4, microbatches=16, chunks=2)
    write_table(get("zb-v").orders(shape), tmp_path / "mine.csv")
    run = a_pipeline("zb-v", vpp=2)
    document = {**run.to_document(), "schedule": str(tmp_path / "mine.csv")}
    assert simulate(scenario_from_document(document, "own")).step_time_s == simulate(run).step_time_s


@pytest.mark.parametrize("name", sorted(set(names()) - {"pipedream"}))  # a table keeps one version of weights
@pytest.mark.parametrize(
    "fields", [{"dp": 2, "zero": 3}, {"dp": 4, "zero": 1, "fsdp_shard_size": 2}, {"activation_offload": True}]
)
def test_a_table_is_refused_where_its_schedule_is(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    takes_one = legal(get(name), Shape(ranks=4, microbatches=8))
    run = a_pipeline(name, vpp=1 if takes_one else 2, microbatches=8, **fields)
    shape = pipeline_shape(name, run.parallelism, run.num_microbatches, run.schedule_options)
    write_table(get(name).orders(shape), tmp_path / "mine.csv")
    table = scenario_from_document({**run.to_document(), "schedule": str(tmp_path / "mine.csv")}, "own")
    assert field_refused(table) == field_refused(run)


def field_refused(run: Scenario) -> str | None:
    """The field that lowering refuses, None where it takes the run."""
    try:
        lowered(run)
    except NotSupported as refusal:
        return refusal.field
    return None


def test_a_table_is_found_beside_the_scenario_and_checked(tmp_path: Path) -> None:
    shape = Shape(ranks=2, microbatches=4)
    write_table(get("zb-h1").orders(shape), tmp_path / "mine.csv")
    file = tmp_path / "own.yaml"
    text = (
        "extends: gpt-22b-a100\n"
        "cluster: {gpus: 2}\n"
        "parallelism: {tp: 1, pp: 2, dp: 1, sequence_parallel: false}\n"
        "training: {global_batch: 4, micro_batch: 1}\n"
        "schedule: mine.csv\n"
    )
    file.write_text(text)
    assert load_scenario(file).schedule == str(tmp_path / "mine.csv")
    file.write_text(text.replace("global_batch: 4", "global_batch: 8"))
    with refused_at("schedule", "mine.csv", "p=2, m=4"):
        load_scenario(file)
    (tmp_path / "mine.csv").write_text("0F0,0B0\n1B0,1F0\n")
    with refused_at("schedule", "rank 1, action 0 (1B0)"):
        load_scenario(file)
    file.write_text(text.replace("mine.csv", "no.csv"))
    with refused_at("schedule", str(tmp_path / "no.csv")):
        load_scenario(file)


# What schedules that search are told -------------------------------------------------------------------


def test_a_search_is_told_of_the_median_stage() -> None:
    """Whole microseconds and bytes of the kernel model; I frees what W does not need."""
    run = a_pipeline("zb", num_layers=14, stage_split=(2, 4, 4, 4), software="nanotron-2024", seq_length=1024)
    plan = lowered(run).plan
    middle, sizes = plan.stages[1], activation_bytes(plan.local, run.software)
    shape = plan.shape
    blocks = action_blocks(Action(0, ActionKind.FORWARD, 0), middle, plan.blocks)
    seconds = sum(
        count * op.work.seconds for block, count in blocks for op in block.ops if isinstance(op.work, Compute)
    )
    assert shape.costs.forward == round(seconds * 1e6)
    assert shape.costs.latency >= 1
    kept, operands = sizes.kept_by_forward(middle), sizes.kept_by_input_grad(middle)
    assert (shape.memory.forward, shape.memory.input_grad) == (round(kept), round(operands) - round(kept))
    assert shape.memory.input_grad < 0
    limited = lowered(a_pipeline("zb-2p")).plan.shape
    assert limited.memory.limit == 8 * limited.memory.forward


def test_the_head_keeps_its_input_and_the_gradient_of_its_logits() -> None:
    plan = lowered(a_pipeline("zb")).plan
    held = activation_bytes(plan.local, plan.scenario.software)
    tokens = plan.local.tokens
    assert held.head_operands == 2 * tokens * (plan.local.hidden + plan.local.vocabulary)
    in_chunks = plan.scenario.software.with_fields(loss_chunks=8)
    assert activation_bytes(plan.local, in_chunks).head_operands == 2 * tokens * plan.local.hidden


@pytest.mark.parametrize(
    ("software", "reduction"),
    [("megatron-core-2024", "gradient reduce_scatter"), ("nanotron-2024", "gradient all_reduce")],
)
def test_copies_of_a_stage_reduce_once_when_all_is_there(software: str, reduction: str) -> None:
    """No bucket of one copy can meet one of the other: each rank reduces its gradients in one call."""
    run = a_pipeline("dualpipe", dp=2, zero=1, software=software)
    for program in lowered(run).programs.classes:
        reductions = ("gradient reduce_scatter", "gradient all_reduce")
        assert [op.name for op in program.ops if op.name in reductions] == [reduction]


def test_recomputation_is_part_of_the_input_gradient() -> None:
    run = a_pipeline("zb-h1", recompute="full")
    plain = a_pipeline("zb-h1")
    again = work_of(run, ActionKind.INPUT_GRAD) - work_of(plain, ActionKind.INPUT_GRAD)
    layers = work_of(plain, ActionKind.FORWARD)
    assert sum(flops * n for (_, flops, _), n in again.items()) == pytest.approx(
        sum(flops * n for (_, flops, _), n in layers.items())
    )
    assert work_of(run, ActionKind.WEIGHT_GRAD) == work_of(plain, ActionKind.WEIGHT_GRAD)
