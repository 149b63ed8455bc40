"""Recomputation by method, by every n-th layer and by operators: FLOPs by closed form, memory, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_experts import LATENT, moe_run, with_experts
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.recompute import FULL
from stepsim.sim.lowering.layers.stages import build_stages
from stepsim.sim.lowering.state.activations import activation_bytes
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schema import json_schema
from stepsim.sim.simulate import simulate

LAYERS, MICROBATCHES, TOKENS, H, F, V = 8, 4, 256, 256, 1024, 512
FORWARD = 2 * TOKENS * (4 * H * H + 2 * H * F)  # of the matrices of a layer, one microbatch


def gemm_flops(run: Scenario) -> float:
    """Of the first class of ranks, by kernels of matrices."""
    ops = every_op(lowered(run).programs.classes[0])
    return sum(n * op.work.flops for op, n in ops if isinstance(op.work, Compute) and op.work.kind == "gemm")


def a_run(recompute: Any, **fields: Any) -> Scenario:
    """A GPT with unfused attention unless told otherwise; its scores are matrices too."""
    return scenario(
        **{"software": "megatron-core-2024", "gpu": "H100-SXM5-80GB", **fields}, recompute=recompute
    )


def full(**fields: Any) -> dict[str, Any]:
    return {"kind": "full", **fields}


# Which layers, and their FLOPs ------------------------------------------------------------------------


def recomputed(run: Scenario) -> list[list[bool]]:
    stages = build_stages(run)
    return [[r.recompute == FULL for r in stage.runs for _ in range(r.count)] for stage in stages]


@pytest.mark.parametrize(
    ("recompute", "expected"),
    [
        (full(layers=2), [[True, True], [True, True], [False, False], [False, False]]),
        (full(layers=1, method="block"), [[True, False]] * 4),
        (full(layers=2, method="uniform"), [[True, True]] * 4),
        (full(every=2), [[False, True]] * 4),
        (full(every=3), [[False, False]] * 2 + [[True, False]] * 2),
    ],
)
def test_layers_of_virtual_stages(recompute: Any, expected: list[list[bool]]) -> None:
    """Two chunks of two layers on two ranks: without a method the count runs through a rank's chunks."""
    run = a_run(recompute, pp=2, vpp=2, schedule="interleaved")
    assert recomputed(run) == expected


@given(
    layers=st.integers(1, LAYERS),
    method=st.sampled_from(["block", "uniform", None, "every"]),
)
def test_flops_that_run_again(layers: int, method: str | None) -> None:
    how: dict[str, Any] = {"every": layers} if method == "every" else {"layers": layers}
    how |= {"method": method} if method in ("block", "uniform") else {}
    plain, again = a_run("none"), a_run(full(**how))
    count = {"uniform": LAYERS, "every": LAYERS // layers}.get(method or "", layers)
    more = gemm_flops(again) - gemm_flops(plain)
    assert more == pytest.approx(MICROBATCHES * count * FORWARD, rel=1e-12)


@pytest.mark.parametrize("how", ["full", full(layers=3), full(every=2)])
def test_recomputation_that_stops_early_leaves_out_the_last_product(how: Any) -> None:
    """Of torch's checkpoint that is not reentrant: the count of kernels, and that of the model."""
    early = {"preset": "megatron-core-2024", "kernels": {"recompute_stops_early": True}}
    whole, cut = a_run(how), a_run(how, software=early)
    count = sum(again for stage in recomputed(whole) for again in stage)
    left_out = MICROBATCHES * count * 2 * TOKENS * F * H
    assert gemm_flops(whole) - gemm_flops(cut) == pytest.approx(left_out, rel=1e-12)
    assert by_model(whole) - by_model(cut) == pytest.approx(left_out, rel=1e-12)


def test_recomputation_that_stops_early_scatters_no_output_of_it() -> None:
    """Forward scatters it once; all that runs again does so a second time."""

    def exchanges(stops: bool) -> int:
        software = {"preset": "generic-fsdp", "kernels": {"recompute_stops_early": stops}}
        run = a_run("full", tp=2, sequence_parallel=True, software=software)
        ops = every_op(lowered(run).programs.classes[0])
        return sum(n for op, n in ops if op.name == "fc2 reduce_scatter")

    assert exchanges(True) == MICROBATCHES * LAYERS
    assert exchanges(False) == 2 * MICROBATCHES * LAYERS


def test_experts_that_are_recomputed_run_as_a_whole() -> None:
    def flops(stops: bool) -> tuple[float, float]:
        run = moe_run("full", recompute_stops_early=stops)
        return gemm_flops(run), by_model(run)

    assert flops(True) == flops(False)


@pytest.mark.parametrize(("dispatcher", "again"), [("deepep", 1), ("hybridep", 1), ("alltoall", 2)])
def test_recomputation_that_stops_early_brings_rows_back_where_nccl_does(dispatcher: str, again: int) -> None:
    """DeepEP's combine is the last thing of a layer and keeps no tensor; NCCL's is sorted by a map."""

    def combines(stops: bool) -> int:
        fields = {"recompute_stops_early": stops, "moe_dispatcher": dispatcher}
        run = with_experts(recompute="full", ep=8, **fields)
        return sum(n for op, n in every_op(lowered(run).programs.classes[0]) if op.name == "combine")

    forwards = combines(stops=False) // 2
    assert forwards > 0
    assert combines(stops=True) == again * forwards


def test_uniform_takes_the_time_of_full() -> None:
    times = [simulate(a_run(how)).step_time_s for how in ("full", full(layers=4, method="uniform"))]
    assert times[0] == times[1]


# Memory ---------------------------------------------------------------------------------------------------


@given(layers=st.sampled_from([1, 2, 4, 8]))
def test_uniform_keeps_an_input_of_so_many_layers(layers: int) -> None:
    """2 s b h for each group, and while one is recomputed all that its layers keep."""
    run = a_run(full(layers=layers, method="uniform"))
    sizes = activation_bytes(lowered(run).plan.local, run.software)
    (stage,) = build_stages(run)
    none = build_stages(a_run("none"))[0]
    ends = sizes.embedding + sizes.head
    stream = 2 * TOKENS * H
    assert sizes.kept_by_forward(stage) - ends == pytest.approx(LAYERS / layers * stream)
    assert sizes.working(stage) == pytest.approx(layers * (sizes.kept_by_forward(none) - ends) / LAYERS)


def test_uniform_has_a_best_number_of_layers() -> None:
    """Korthikanti et al. 2022, section 5: n/N inputs and N layers at work are least in between."""
    held = [
        simulate(a_run(full(layers=n, method="uniform"), num_layers=64)).memory[0].terms["activations"]
        for n in (1, 64)
    ]
    assert held[0] < held[1]
    assert simulate(a_run("full", num_layers=64)).memory[0].terms["activations"] == held[0]


ANYTHING: tuple[Any, ...] = (
    "selective",
    "op_selective",
    full(layers=1),
    full(layers=2, method="block"),
    full(every=2),
    {"kind": "operators", "keep": ["mm", "attention", "reduce_scatter", "all_to_all", "grouped_mm"]},
    {"kind": "operators", "keep": ["attention"]},
    {"kind": "operators", "keep": ["every_second_mm", "grouped_mm"]},
    {"kind": "modules", "modules": ["layernorm"]},
    {"kind": "modules", "modules": ["layernorm", "core_attn"]},
)


@settings(max_examples=40)
@given(
    recompute=st.sampled_from(ANYTHING),
    mlp=st.sampled_from(["gelu", "swiglu"]),
    tp=st.sampled_from([1, 2]),
    experts=st.booleans(),
    fused=st.booleans(),
)
def test_none_holds_more_than_a_part_and_that_more_than_all(
    recompute: Any, mlp: str, tp: int, experts: bool, fused: bool
) -> None:
    def kept(how: Any) -> float:
        fields: dict[str, Any] = {"mlp": mlp, "tp": tp, "sequence_parallel": tp > 1}
        software = "megatron-core-2024" if fused else "megatron-2022-sp"
        if experts:
            run = with_experts(recompute=how, tp=tp, sequence_parallel=tp > 1)
        else:
            run = scenario(recompute=how, gpu="H100-SXM5-80GB", software=software, **fields)
        sizes = activation_bytes(lowered(run).plan.local, run.software)
        return sum(sizes.kept_by_forward(stage) for stage in build_stages(run))

    assert kept("none") >= kept(recompute) * (1 - 1e-12)
    assert kept(recompute) >= kept("full") * (1 - 1e-12)


@pytest.mark.parametrize(("keep", "times"), [(["mm", "all_to_all"], 1), (["mm"], 2)])
def test_counts_of_tokens_stay_where_what_all_to_alls_brought_does(keep: list[str], times: int) -> None:
    recompute = {"kind": "operators", "keep": keep}
    run = with_experts(recompute=recompute, ep=2, gpus=2)
    ops = every_op(lowered(run).programs.classes[0])
    told = sum(n for op, n in ops if op.name == "token counts" and isinstance(op.work, Collective))
    assert told == times * run.model.num_layers * run.num_microbatches


def by_model(run: Scenario) -> float:
    result = simulate(run)
    return result.hardware_flops - result.model_flops


KEEPS = (
    ["mm"],
    ["every_second_mm"],
    ["attention"],
    ["mm", "grouped_mm", "attention"],
    ["every_second_mm", "attention", "reduce_scatter", "all_to_all"],
)


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(("latent", "weighted"), [(False, False), (True, False), (False, True)])
def test_operators_of_experts_by_two_counts(keep: list[str], latent: bool, weighted: bool) -> None:
    """What kernels say and what the model says agree; attention is counted by the model's convention."""
    fields: dict[str, Any] = {"mla": LATENT} if latent else {}
    fields |= {"weighted_rows": weighted}
    plain, again = moe_run("none", **fields), moe_run({"kind": "operators", "keep": keep}, **fields)
    more = gemm_flops(again) - gemm_flops(plain)
    scores = 0.0
    if "attention" not in keep:
        scores = by_model(moe_run("selective", **fields))
    assert by_model(again) - scores == pytest.approx(more, rel=1e-9)
    assert more > 0


def test_attention_again_runs_its_kernel_again() -> None:
    def attention(recompute: Any) -> int:
        ops = every_op(lowered(a_run(recompute)).programs.classes[0])
        return sum(n for op, n in ops if op.name == "attention")

    assert attention({"kind": "operators", "keep": ["mm"]}) == 2 * attention("op_selective")


def test_exchanges_that_are_kept_are_not_sent_again() -> None:
    def exchanges(recompute: Any) -> int:
        ops = every_op(lowered(with_experts(recompute=recompute)).programs.classes[0])
        return sum(n for op, n in ops if op.name == "dispatch")

    kept = {"kind": "operators", "keep": ["all_to_all"]}
    assert exchanges(kept) == exchanges("none") == exchanges("op_selective")
    assert exchanges({"kind": "operators", "keep": ["mm"]}) == 2 * exchanges("none")


def test_op_selective_is_torchtitans_list() -> None:
    named = {"kind": "operators", "keep": ["every_second_mm", "attention", "reduce_scatter", "all_to_all"]}
    assert simulate(moe_run(named)).step_time_s == simulate(moe_run("op_selective")).step_time_s


def test_experts_recomputed_by_operators_fold() -> None:
    run = with_experts(recompute="op_selective", pp=2, ep=2)
    assert simulate(run).step_time_s == pytest.approx(simulate(run, fold=False).step_time_s, rel=1e-9)


# Names, and what is refused ---------------------------------------------------------------------------


def document(training: dict[str, Any], **model: Any) -> dict[str, Any]:
    work = {"global_batch": 8, "micro_batch": 1, "seq_length": 128, "precision": "bf16"}
    shape = {"num_layers": 8, "hidden_size": 256, "num_attention_heads": 4, "ffn_hidden_size": 1024}
    return {
        "model": {**shape, "vocab_size": 512, "mlp": "gelu", **model},
        "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"pp": 2},
        "training": work | training,
        "software": "megatron-core-2024",
    }


def test_megatrons_names() -> None:
    megatron = {
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": 2,
    }
    run = scenario_from_document(document(megatron), "s")
    assert (
        run.training.recompute
        == scenario_from_document(
            document({"recompute": full(layers=2, method="block")}), "s"
        ).training.recompute
    )
    modules = {"recompute_granularity": "selective", "recompute_modules": ["layernorm"]}
    found = scenario_from_document(document(modules), "s").training.recompute
    assert not isinstance(found, str)
    assert found.modules == ("layernorm",)


def test_full_takes_a_method_in_megatrons_names() -> None:
    fields = {"recompute_granularity": "full", "recompute_num_layers": 2}
    with refused_at("training.recompute_method", "uniform", "block"):
        scenario_from_document(document(fields), "s")


@pytest.mark.parametrize(
    ("recompute", "model", "words"),
    [
        (full(layers=5, method="block"), {}, "layers.*5 .*4 layers"),
        (full(layers=2, method="uniform"), {"mtp_layers": 1}, "one by"),
        (full(layers=2, every=2), {}, "full .*layers"),
        (full(every=2, method="block"), {}, "block .*layers"),
        ({"kind": "operators"}, {}, "operators .*keep"),
        ({"kind": "operators", "keep": ["mm", "every_second_mm"]}, {}, "mm and every_second_mm"),
        ({"kind": "operators", "keep": ["conv"]}, {}, "every_second_mm"),
    ],
)
def test_what_says_nothing_is_refused(recompute: Any, model: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario_from_document(document({"recompute": recompute}, **model), "s")


def test_several_layers_at_once_are_refused_where_parameters_are_gathered() -> None:
    with refused_at("training.recompute.layers", "ZeRO-3"):
        lowered(a_run(full(layers=2, method="uniform"), zero=3, dp=2, software="torchtitan-2024"))


def test_the_schema_knows_megatrons_names() -> None:
    training = json_schema()["$defs"]["Training"]["properties"]
    assert {"recompute_granularity", "recompute_method", "recompute_num_layers"} <= training.keys()
    assert training["recompute_method"]["anyOf"][0]["enum"] == ["uniform", "block"]
    assert training["loss_scale"]["anyOf"][0]["enum"] == ["megatron", "torch"]
