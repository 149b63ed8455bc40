"""What engineers hold to be true of layouts, and the known cases where it is not, as the simulator has them.

Sources of the rules: NVIDIA Megatron-Bridge docs/performance-guide.md and
skills/nemo-mbridge-perf-parallelism-strategies/SKILL.md (067f987df); bigscience
train/tflops_optimization.md; Aleph Alpha, arXiv:2311.05610; Korthikanti et al., arXiv:2205.05198. Only the
direction of a rule is asserted, or the range that its source gives; every step is of Llama 3 70B on 64 H100,
but where said.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from refusals import refused_at

from stepsim.sim.brief.step import Brief, brief_step
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.scenario.load import load_scenario

SCENARIO = "llama3-70b-h100"  # tp 8, pp 4, vpp 5, 128 sequences of 8,192 tokens


@cache
def _step(*changes: tuple[str, Any]) -> Brief:
    return brief_step(load_scenario(SCENARIO, dict(changes)))


def step(**changes: Any) -> Brief:
    """The shipped layout with other fields, by their last names."""
    blocks = {"precision": "training", "recompute": "training", "micro_batch": "training"}
    blocks |= {"seq_length": "training", "num_layers": "model", "vocab_size": "model", "schedule": ""}
    named = (
        (f"{block}.{name}" if (block := blocks.get(name, "parallelism")) else name, value)
        for name, value in changes.items()
    )
    return _step(*sorted(named))


def seconds(**changes: Any) -> float:
    return step(**changes).step_time_s


def test_full_recomputation_costs_about_a_forward() -> None:
    """A third of the backward and forward; Korthikanti et al.: 30 to 40 % (section 1)."""
    assert 1.25 < seconds(recompute="full") / seconds(recompute="none") < 1.42


def test_fp8_is_faster_by_a_fifth_to_a_half() -> None:
    assert 1.2 < seconds() / seconds(precision="fp8") < 1.5


def test_tensor_parallelism_over_the_whole_host_is_not_always_best() -> None:
    """tp 4 with as many stages beats tp 8, by what its GEMMs are larger: Megatron-Bridge's guide asks to
    start at tp 8 for this model."""
    assert seconds(tp=4, pp=8) < seconds(tp=8, pp=4)
    assert step(tp=4, pp=8).fits


def test_a_pipeline_may_beat_tensor_parallelism_inside_the_host() -> None:
    """Against "tensor parallelism inside a node first": NVIDIA/Megatron-LM 258 has pp 8 30 % faster."""
    on_one_host = {"cluster.gpus": 8, "model": "llama3-8b", "training.global_batch": 128}
    common = tuple(on_one_host.items())
    deep = _step(
        *common,
        ("parallelism.tp", 1),
        ("parallelism.pp", 8),
        ("parallelism.vpp", 4),
        ("parallelism.sequence_parallel", False),
    )
    wide = _step(
        *common, ("parallelism.tp", 8), ("parallelism.pp", 1), ("parallelism.vpp", 1), ("schedule", "none")
    )
    assert deep.step_time_s < wide.step_time_s


def test_context_parallelism_may_beat_tensor_parallelism_over_long_sequences() -> None:
    """Where the sequence is longer than the model is wide, keys and values of few groups are less to send
    than activations: tp 4 with cp 2 beats tp 8 at 32,768 tokens."""
    assert seconds(tp=4, cp=2, seq_length=32768) < seconds(tp=8, cp=1, seq_length=32768)


def test_tp_2_with_cp_2_beats_tp_4_where_the_sequence_is_longer_than_the_model_is_wide() -> None:
    """The guide's own sizes; and the other way round where it is shorter than that."""
    assert 32768 > load_scenario(SCENARIO).model.hidden_size > 2048
    long, short = (
        seconds(tp=2, cp=2, seq_length=tokens) / seconds(tp=4, cp=1, seq_length=tokens)
        for tokens in (32768, 2048)
    )
    assert long < 1
    assert short > long


@pytest.mark.parametrize(("precision", "tokens"), [("fp8", 4096), ("bf16", 2048)])
def test_kernels_of_tp_8_may_be_so_small_that_the_host_is_the_limit(precision: str, tokens: int) -> None:
    """The guide: "using a tensor-parallel size of 8 for LLAMA 3 70B could lead to low GPU utilization and
    make training host-performance bound". Without graphs and under FP8, or on short sequences, it does, and
    tp 4 does not."""
    assert _gained_by_a_faster_host(8, precision, tokens) > 0.1
    assert _gained_by_a_faster_host(4, precision, tokens) < 0.001


def test_at_the_recipe_s_8192_tokens_the_host_keeps_up_with_tp_8() -> None:
    """The counter-example: 8,192 tokens in BF16 and in FP8 are enough work on H100, with 40 us a kernel. That
    tp 8 is slower all the same is its exchanges and smaller GEMMs."""
    assert _gained_by_a_faster_host(8, "bf16", 8192) < 0.001
    assert _gained_by_a_faster_host(8, "fp8", 8192) < 0.001
    assert seconds(tp=8) > 1.05 * seconds(tp=4)


def _gained_by_a_faster_host(tp: int, precision: str, tokens: int) -> float:
    """The share of the step that goes where the host takes half as long for each kernel."""
    host = "software.host.host_s_per_kernel"
    own = load_scenario(SCENARIO).software.host.host_s_per_kernel
    job = ("parallelism.tp", tp), ("training.precision", precision), ("training.seq_length", tokens)
    slow, fast = (_step(*job, (host, own * share)).step_time_s for share in (1.0, 0.5))
    return 1 - fast / slow


def test_tensor_and_data_parallel_groups_fill_racks_of_72_or_of_64() -> None:
    """tp 4 and dp 16 are 64 ranks: on racks of 72 some groups cross to the next, as the guide says; on 64
    GPUs of each none do, and dp 18 fills all 72."""

    def rack_step(gpus_per_domain: int, dp: int, pp: int) -> float:
        rack = {"gpu": "GB200-NVL72", "gpus": 576, "gpus_per_node": 4, "gpus_per_domain": gpus_per_domain}
        layout = {"tp": 4, "dp": dp, "pp": pp, "vpp": 1}
        return _step_of(
            SCENARIO,
            {
                "cluster": {**rack, "interconnect": "ib-ndr400-x4"},
                "model.num_layers": 72,
                **{f"parallelism.{axis}": size for axis, size in layout.items()},
                "schedule": "1f1b",
                "training.global_batch": 288,
            },
        )

    uneven, even = rack_step(72, 16, 9), rack_step(64, 16, 9)
    assert even < uneven
    assert rack_step(72, 18, 8) < uneven


def test_larger_microbatches_help_without_a_pipeline() -> None:
    flat = {"pp": 1, "vpp": 1, "schedule": "none"}
    times = [seconds(**flat, micro_batch=size) for size in (1, 2, 4)]
    assert times == sorted(times, reverse=True)


def test_larger_microbatches_hurt_where_the_pipeline_is_deep() -> None:
    """Fewer of them leave a larger bubble: Aleph Alpha, arXiv:2311.05610, recommend micro-batches of one."""
    deep = {"tp": 4, "pp": 8, "vpp": 1, "schedule": "1f1b"}
    times = [seconds(**deep, micro_batch=size) for size in (1, 2, 4)]
    assert times == sorted(times)


def test_interleaving_helps_until_its_messages_cost_more() -> None:
    times = {vpp: seconds(vpp=vpp, schedule="interleaved") for vpp in (2, 5, 10, 20)}
    assert seconds(vpp=1, schedule="1f1b") > times[2] > times[5] > times[10]
    assert times[20] > times[10]


def test_the_more_microbatches_the_less_interleaving_gains() -> None:
    """The bubble is a smaller share of the step; Megatron-Bridge's guide has fewer chunks then."""
    few, many = (
        _step(*batch, ("parallelism.vpp", 1), ("schedule", "1f1b")).step_time_s
        / _step(*batch, ("parallelism.vpp", 10), ("schedule", "interleaved")).step_time_s
        for batch in ((("training.global_batch", 128),), (("training.global_batch", 2048),))
    )
    assert few > 1.03
    assert 1.0 < many < 1.01


def test_experts_are_better_whole_than_split_by_tensor_parallelism() -> None:
    """The guide's etp 1: their GEMMs are small enough."""
    common = {"parallelism.tp": 4, "parallelism.dp": None}
    whole, halves, quarters = (
        _step_of("mixtral-8x22b-h100", {**common, "parallelism.etp": etp, "parallelism.ep": 8 // etp})
        for etp in (1, 2, 4)
    )
    assert whole < halves < quarters


def test_experts_stay_inside_nvlink_unless_their_exchanges_are_beside_other_work() -> None:
    """Two hosts of ep 8 beat one group of ep 16 over both; where exchanges overlap they hardly do, since
    fewer experts a rank have larger GEMMs."""

    def wide_over_near(overlap: bool) -> float:
        common = {"cluster.gpus": 32, "software.exchange.moe_a2a_overlap": overlap, "parallelism.dp": None}
        near, wide = (_step_of("qwen3-30b-a3b-h100", {**common, "parallelism.ep": ep}) for ep in (8, 16))
        return wide / near

    assert wide_over_near(overlap=False) > 1.05
    assert wide_over_near(overlap=True) < 1.02


def _step_of(scenario: str, changes: dict[str, Any]) -> float:
    return brief_step(load_scenario(scenario, changes)).step_time_s


def test_a_large_vocabulary_wants_fewer_layers_at_the_ends() -> None:
    """Two layers fewer in the model, so that both splits are even; their step is a fortieth at most."""
    large = {"vocab_size": 256000}
    uniform = seconds(**large, num_layers=80)
    fewer = seconds(**large, num_layers=78, stage_split="embedding_and_loss_as_layers")
    assert fewer < uniform * 78 / 80


def test_the_fewest_gpus_are_the_larger_of_both_groups_times_the_stages() -> None:
    """pp x max(tp x cp, ep x etp), not the product of all: experts live on the ranks of tp and cp."""
    mixtral = {"model": "mixtral-8x7b", "parallelism.pp": 2, "parallelism.vpp": 1, "parallelism.tp": 4}
    mixtral |= {"parallelism.ep": 8, "parallelism.etp": 1, "schedule": "1f1b"}
    assert load_scenario(SCENARIO, {**mixtral, "cluster.gpus": 16}).parallelism.dp == 2
    with refused_at("parallelism.ep", "must divide"):
        load_scenario(SCENARIO, {**mixtral, "cluster.gpus": 8})


def test_the_planner_is_no_worse_than_the_recipe() -> None:
    """The guide's layout is among those that a plan judges, and no faster than what the plan proposes."""
    found = plan(
        load_scenario("llama3-8b-h100", {"cluster.gpus": 8, "training.seq_length": 2048}),
        fix={"parallelism.cp": 1, "parallelism.vpp": 1, "parallelism.stage_split": "uniform"},
        top=1,
        jobs=1,
        audit=0,
    )
    (recipe,) = (one for one in found.lost if "Megatron" in one.name)
    assert recipe.fits
    assert recipe.factor >= 1
    assert found.choices[0].fit_probability >= 0.9
