"""Bounds of the step where orders of actions are unusual: no step is shorter than them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from precision_runs import run_of
from small_scenarios import LOOPED, scenario

from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.orders.table_file import format_table
from stepsim.schedules.pipeline import get, names
from stepsim.sim.brief.search import Search
from stepsim.sim.lowering.layers.amax import amax_group
from stepsim.sim.lowering.layers.kinds import LayerKind, LayerRun
from stepsim.sim.lowering.layers.layer import backward_block, forward_block
from stepsim.sim.plan.axes import LAYOUT
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.screen.tables import tables_of
from stepsim.sim.plan.screen.times import ActionTimes, BlockName
from stepsim.sim.plan.space import space_of
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

JOB: dict[str, Any] = {
    "model": {"num_layers": 8, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 131072}
    | {"ffn_hidden_size": 11008, "mlp": "swiglu"},
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 64, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 1, "zero": 3},
    "training": {"seq_length": 1024, "global_batch": 128, "micro_batch": 1, "precision": "bf16"},
}


def test_the_bound_where_all_forwards_come_before_all_backwards() -> None:
    """Two microbatches on two ranks: messages of one that has turned are no messages of the other."""
    run = load_scenario("llama3-8b-h100").with_(
        {
            "cluster": {"gpu": "GB200-NVL72", "gpus": 144, "interconnect": "ib-ndr400-x4"},
            "training.global_batch": 288,
            "training.micro_batch": 8,
            "training.recompute": "selective",
            "parallelism": {"tp": 4, "pp": 2, "vpp": 8, "sequence_parallel": True, "zero": 2},
            "schedule": "interleaved",
        }
    )
    assert run.num_microbatches == run.parallelism.pp
    space = space_of(run, fix={name: field_value(run, name) for name in LAYOUT})
    step_s = simulate(run).step_time_s
    assert 0.9 * step_s < screen(space).bound_s[0] <= step_s


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_what_is_run_again_hides_more_of_what_xla_schedules(recompute: str) -> None:
    """So that of each recomputation what moves is priced by itself."""
    run = scenario_from_document({**JOB, "software": "generic-jax"}, "job").with_(
        {"training.recompute": recompute}
    )
    same = {name: field_value(run, name) for name in LAYOUT if name != "training.recompute"}
    space = space_of(run, fix={**same, "parallelism.dp": 64})
    assert space.own is not None
    assert 0.5 * simulate(run).step_time_s < screen(space).bound_s[space.own] <= simulate(run).step_time_s


@pytest.mark.parametrize("zero", [2, 3])
def test_what_waits_for_its_reductions_is_another_rule_than_what_does_not(zero: int) -> None:
    """Side by side both were bound by the first: 1.13 of the step that does not wait."""
    sizes = {"hidden_size": 2048, "num_attention_heads": 16, "ffn_hidden_size": 8192, "seq_length": 1024}
    machine = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-hdr200-x8", "gpus_per_node": 3}
    run = scenario(software="torchtitan-2024", dp=24, zero=zero, microbatches=1, **sizes, **machine)
    field = "software.gradients.overlap_grad_reduce"
    fixed = {name: field_value(run, name) for name in LAYOUT if name != field}
    space = space_of(run, fix=fixed, vary={field: [False, True]})
    bounds = screen(space, within=float("inf")).bound_s
    for number, bound_s in enumerate(bounds):
        step_s = simulate(space.scenario_of(number)).step_time_s
        assert 0.5 * step_s < bound_s <= step_s * (1 + 1e-9)
    assert len(bounds) == len(set(bounds)) == 2


@pytest.mark.parametrize("stages", [[1, 2], [2, 1]])
def test_gradients_that_one_backward_makes_bound_no_layout_of_several_microbatches(
    stages: list[int],
) -> None:
    """Four replicas have one microbatch, two of two stages have two: the bound of either was by the layers of
    the one that came first."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 16384}
    run = scenario(software="generic-fsdp", dp=2, pp=2, schedule="1f1b", microbatches=2, **sizes)
    vary: dict[str, list[Any]] = {"parallelism.pp": stages, "schedule": ["none", "1f1b"]}
    rest = {name: field_value(run, name) for name in LAYOUT if name not in vary}
    space = space_of(run, fix={name: rest[name] for name in rest if name != "parallelism.dp"}, vary=vary)
    together = screen(space, within=float("inf")).bound_s
    assert {space.scenario_of(i).num_microbatches for i in range(len(space))} == {1, 2}
    for i in range(len(space)):
        layout = space.scenario_of(i)
        alone = space_of(layout, fix={name: field_value(layout, name) for name in LAYOUT})
        assert together[i] == pytest.approx(screen(alone).bound_s[0], rel=1e-12)


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "A40"])
def test_gathers_of_experts_are_on_their_way_before_kernels_begin(gpu: str) -> None:
    """On a stream of their own, beside the gather that the layer waits for: of all their time beside kernels
    the bound was 1.02 to 1.03 of the step."""
    moe = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 256}
    machine = {"gpu": gpu, "interconnect": "ib-hdr200-x4", "gpus_per_node": 3}
    layout = {"dp": 24, "zero": 3, "microbatches": 8, "tied_embeddings": False}
    run = scenario(software="generic-jax", moe=moe, **layout, **machine)
    space = space_of(run, fix={name: field_value(run, name) for name in LAYOUT})
    step_s = simulate(run).step_time_s
    assert 0.9 * step_s < screen(space).bound_s[0] <= step_s * (1 + 1e-9)


@pytest.mark.parametrize("changes", [{"schedule": "interleaved"}, {"training.cpu_offload": True}])
def test_stages_of_the_embedding_alone_and_gradients_on_hosts_are_screened(
    changes: dict[str, Any],
) -> None:
    """Of a stage with the embedding alone nothing runs in a weight gradient; a host is no process group."""
    document = {**JOB, "software": "torchtitan-2025", "parallelism": {"tp": 1}}
    document["cluster"] = {**JOB["cluster"], "gpus": 16}
    run = scenario_from_document(document, "job")
    if "schedule" in changes:
        changes = {**changes, "parallelism.pp": 2, "parallelism.vpp": 4, "parallelism.zero": 3}
    space = space_of(run, fix={**changes, "parallelism.tp": 1, "training.micro_batch": 1})
    found = screen(space, within=float("inf"))
    for i in range(0, len(space), max(1, len(space) // 4)):
        step_s = simulate(space.scenario_of(i)).step_time_s
        assert 0 < found.bound_s[i] <= step_s * (1 + 1e-9)


@pytest.mark.parametrize(("schedule", "chunks"), [("dualpipe", 1), ("dualpipev", 2)])
def test_the_bound_where_forwards_run_beside_backwards(schedule: str, chunks: int) -> None:
    """Kernels alone are 0.73 and 0.68 of these steps: experts exchange for longer than what hides it."""
    run = scenario(
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        gpus_per_node=4,
        software="deepseek-hai-2024",
        mlp="swiglu",
        hidden_size=2048,
        num_attention_heads=16,
        moe={"num_experts": 8, "topk": 4, "expert_ffn_hidden_size": 2048},
        seq_length=8192,
        schedule=schedule,
        pp=4,
        vpp=chunks,
        dp=8,
        ep=8,
        microbatches=32,
    ).with_({"software.exchange.moe_a2a_overlap": True})
    space = space_of(run, fix={name: field_value(run, name) for name in LAYOUT})
    step_s = simulate(run).step_time_s
    assert 0.78 * step_s < screen(space).bound_s[0] <= step_s


def _of_any_order(schedule: str, ranks: int, table: Path | None, **fields: Any) -> Scenario:
    """A layout with exchanges of tp whose backwards hide what XLA does not; the schedule as a ``table``."""
    own, chunks = get(schedule), 2 if schedule in LOOPED else get(schedule).chunks
    shape = Shape(ranks=ranks, microbatches=12, chunks=chunks)
    if table:
        table.write_text(format_table(own.orders(shape)))
    layout: dict[str, Any] = {"pp": ranks, "vpp": chunks, "dp": 2, "microbatches": 12, "gpus_per_node": 8}
    layout |= {"schedule": str(table) if table else schedule, "mlp": "swiglu", "precision": "bf16"}
    machine = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}
    return scenario(**machine, **layout, **fields)


@pytest.mark.parametrize("as_table", [False, True])
@pytest.mark.parametrize("schedule", [name for name in names() if get(name).weight_versions is None])
def test_the_bound_of_any_order_where_whole_backwards_hide_exchanges(
    schedule: str, as_table: bool, tmp_path: Path
) -> None:
    """DualPipeV's backwards are split where ranks fill and drain alone: all of them in parts took 1.06 of the
    step. What a table is known by is in its file."""
    software = {"preset": "generic-jax", "pipeline": {"overlapped_point_to_point": "batched"}}
    table = tmp_path / "orders.csv" if as_table else None
    for tp, ranks in ((4, 2),) if as_table else ((2, 2), (2, 4)):
        run = _of_any_order(schedule, ranks, table, software=software, tp=tp)
        space = space_of(run, fix={name: field_value(run, name) for name in LAYOUT})
        step_s = simulate(run).step_time_s
        assert 0.5 * step_s < screen(space, within=float("inf")).bound_s[0] <= step_s * (1 + 1e-9)
        assert Search().floor_of(run) <= step_s * (1 + 1e-9)
        assert Search().least_of(run).step_time_s <= step_s * (1 + 1e-9)


@pytest.mark.parametrize("group", ["tensor", "replicas"])
def test_the_bound_of_a_step_counts_no_reduction_of_maxima(group: str) -> None:
    """It may reach beyond the groups that layers of one table have in common, and is left out: the bound is
    that of the step without it, and below the step with it."""
    without, run = (
        run_of("fp8", {"fp8_scaling": "delayed", "amax_group": one}, dp=4, tp=2) for one in ("none", group)
    )
    assert amax_group(run) is not None
    assert amax_group(without) is None

    def bound_s(one: Scenario) -> float:
        return float(screen(space_of(one, fix={name: field_value(one, name) for name in LAYOUT})).bound_s[0])

    step_s = simulate(run).step_time_s
    assert step_s > simulate(without).step_time_s
    assert 0.5 * step_s < bound_s(run) <= step_s
    assert bound_s(run) == bound_s(without)


@pytest.mark.parametrize("tp", [1, 2])
def test_the_compute_stream_is_idle_only_where_a_layer_communicates(tp: int) -> None:
    """Never for less than nothing: of a layer without collectives for no time at all, however few SMs its
    kernels have; of one that waits for tensor-parallel collectives for no longer than these take."""
    run = scenario(gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", tp=tp, dp=2, sequence_parallel=tp > 1)
    profile = calibrated_profile(build_cluster(run).gpu, ())
    space = space_of(run, fix={name: field_value(run, name) for name in LAYOUT})
    tables = tables_of(space, 0, profile)
    times = ActionTimes(tables=tables, used=tables.layer)
    for build in (forward_block, backward_block):
        found = times.named(BlockName(build, LayerRun(kind=LayerKind())))
        waits_s = found.alone - found.kernels
        assert (waits_s > 0).all() == (tp > 1)
        assert (found.idle >= 0).all()
        assert (found.idle <= waits_s + 1e-12).all()
        assert (found.idle > 0).all() == (tp > 1)
