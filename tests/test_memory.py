"""The memory bill against closed forms: activations of a layer, what schedules hold, bytes per parameter.

Activations of one layer are read off whole steps: what one more layer adds to the peak of a single
microbatch on a single stage.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import layouts, main_gradient_bytes, parameters_of_ranks, scenario

from stepsim.sim.lowering.layers.local_shape import ELEMENT_BYTES
from stepsim.sim.result.step import StageMemory
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

STATE = ("weights", "gradients", "optimizer")

heads = st.sampled_from([4, 8, 16])
head_dims = st.sampled_from([32, 64, 96, 128])
lengths = st.sampled_from([64, 128, 256])
batches = st.integers(1, 3)
groups = st.sampled_from([2, 4])


def layer_bytes(a: int, d: int, s: int, b: int, **fields: Any) -> float:
    """Activation bytes that one more layer adds: a heads of size d, length s, batch b."""

    def held(layers: int) -> float:
        run = scenario(
            num_layers=layers,
            num_attention_heads=a,
            hidden_size=a * d,
            ffn_hidden_size=4 * a * d,
            seq_length=s,
            micro_batch=b,
            microbatches=1,
            **{"software": "megatron-2022-sp", **fields},
        )
        return simulate(run).memory[0].terms["activations"]

    return held(3) - held(2)


# One layer: Korthikanti 2022, arXiv:2205.05198, section 4 and table 2 --------------------------------


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches)
def test_one_layer_alone(a: int, d: int, s: int, b: int) -> None:
    h = a * d
    assert layer_bytes(a, d, s, b) == pytest.approx(s * b * h * (34 + 5 * a * s / h), rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches, groups)
def test_one_layer_under_tensor_parallelism(a: int, d: int, s: int, b: int, t: int) -> None:
    h = a * d
    expected = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert layer_bytes(a, d, s, b, tp=t) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches, groups)
def test_one_layer_under_tensor_and_sequence_parallelism(a: int, d: int, s: int, b: int, t: int) -> None:
    h = a * d
    expected = s * b * h / t * (34 + 5 * a * s / h)
    assert layer_bytes(a, d, s, b, tp=t, sequence_parallel=True) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches, groups)
def test_selective_recomputation_drops_the_scores(a: int, d: int, s: int, b: int, t: int) -> None:
    sbh = s * b * a * d
    found = {
        34 * sbh: layer_bytes(a, d, s, b, recompute="selective"),
        (10 + 24 / t) * sbh: layer_bytes(a, d, s, b, recompute="selective", tp=t),
        34 * sbh / t: layer_bytes(a, d, s, b, recompute="selective", tp=t, sequence_parallel=True),
    }
    assert list(found) == pytest.approx(list(found.values()), rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches, groups)
def test_full_recomputation_keeps_the_input(a: int, d: int, s: int, b: int, t: int) -> None:
    """Sequence parallelism splits the input too."""
    sbh = s * b * a * d
    assert layer_bytes(a, d, s, b, recompute="full") == pytest.approx(2 * sbh, rel=1e-12)
    assert layer_bytes(a, d, s, b, recompute="full", tp=t) == pytest.approx(2 * sbh, rel=1e-12)
    sharded = layer_bytes(a, d, s, b, recompute="full", tp=t, sequence_parallel=True)
    assert sharded == pytest.approx(2 * sbh / t, rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(heads, head_dims, lengths, batches)
def test_fused_attention_keeps_no_scores(a: int, d: int, s: int, b: int) -> None:
    """FlashAttention keeps one FP32 log-sum-exp per row and head instead (Dao 2023, section 3.1)."""
    expected = s * b * (34 * a * d + 4 * a)
    assert layer_bytes(a, d, s, b, software="megatron-2023") == pytest.approx(expected, rel=1e-12)


# What schedules hold -------------------------------------------------------------------------------


def activations(**fields: Any) -> list[float]:
    """Peak activation bytes of every pipeline rank."""
    return [stage.terms["activations"] for stage in simulate(scenario(**fields)).memory]


@pytest.mark.slow
@examples(15)
@given(st.sampled_from([2, 4, 8]), st.integers(1, 12))
def test_1f1b_holds_as_many_microbatches_as_ranks_follow(p: int, m: int) -> None:
    """min(p - r, m): Narayanan 2021, section 2.2.1."""
    one = activations(pp=p, schedule="1f1b", microbatches=1)
    expected = [min(p - r, m) * size for r, size in enumerate(one)]
    assert activations(pp=p, schedule="1f1b", microbatches=m) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@examples(15)
@given(st.sampled_from([2, 4, 8]), st.integers(1, 12))
def test_gpipe_holds_all_microbatches(p: int, m: int) -> None:
    one = activations(pp=p, schedule="gpipe", microbatches=1)
    expected = [m * size for size in one]
    assert activations(pp=p, schedule="gpipe", microbatches=m) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("microbatches", [8, 12])
def test_interleaving_holds_the_warm_up_and_one_chunk_more(microbatches: int) -> None:
    """(v - 1) p + 2 (p - r - 1) + 1 chunks: on rank 0, 1 + (p - 1) / (p v) of 1F1B (Korthikanti 2022)."""
    p, v = 4, 2
    one = activations(pp=p, schedule="1f1b", microbatches=1)
    held = activations(pp=p, vpp=v, schedule="interleaved", microbatches=microbatches)
    for r in (1, 2):  # the ends of the model add to single chunks of the outer ranks
        assert held[r] / (one[r] / v) == pytest.approx((v - 1) * p + 2 * (p - r - 1) + 1, rel=1e-12)


@examples(15)
@given(layouts())
def test_every_activation_is_freed(run: Scenario) -> None:
    """All but gradients that the first backward allocates, which the optimizer needs."""
    for stage, held in zip(simulate(run).memory, parameters_of_ranks(run), strict=True):
        lazy = 0.0 if run.software.gradients.persistent_gradients else held * gradient_bytes(run)
        highest = max(size for _, size in stage.timeline)
        assert highest > 0
        assert all(size >= -1e-6 * highest for _, size in stage.timeline)
        assert stage.timeline[-1][1] == pytest.approx(lazy, abs=1e-6 * highest)
        assert [at for at, _ in stage.timeline] == sorted(at for at, _ in stage.timeline)


@examples(15)
@given(layouts())
def test_the_peak_is_the_sum_of_its_terms_at_its_moment(run: Scenario) -> None:
    for stage, held in zip(simulate(run).memory, parameters_of_ranks(run), strict=True):
        buckets = held * reducer_bytes(run)
        assert stage.peak_bytes == pytest.approx(sum(stage.terms.values()))
        lazy = 0.0 if run.software.gradients.persistent_gradients else stage.terms["gradients"] - buckets
        moving = stage.terms["activations"] + stage.terms["logits"] + lazy
        assert moving == pytest.approx(max(size for _, size in stage.timeline))
        assert stage.static_bytes + moving <= stage.peak_bytes * (1 + 1e-12)
        at_peak = {size for at, size in stage.timeline if at == stage.peak_s}
        assert any(size == pytest.approx(moving) for size in at_peak)


# Bytes per parameter -------------------------------------------------------------------------------


def gradient_bytes(run: Scenario) -> int:
    """Bytes of gradient per parameter: the accumulated one and, in some stacks, a 16-bit copy beside it."""
    accumulated, e = main_gradient_bytes(run), ELEMENT_BYTES[run.training.precision]
    replicas = run.parallelism.dp * (2 if run.schedule == "dualpipe" else 1)
    copies = run.software.gradients.keeps_copies(run.parallelism.zero, replicas)
    return accumulated + (e if copies and e < accumulated else 0)


def reducer_bytes(run: Scenario) -> int:
    """Bytes per parameter of the buckets of torch's DDP."""
    copies = run.software.gradients.reducer_copy and run.parallelism.dp > 1
    return main_gradient_bytes(run) if copies else 0


def state_bytes(stage: StageMemory) -> float:
    return sum(stage.terms[name] for name in STATE)


@pytest.mark.parametrize(
    ("precision", "software", "per_parameter"),
    [
        ("fp32", "megatron-2022-sp", 4 + 4 + 8),
        ("fp32", "megatron-2021", 4 + 4 + 8),
        ("fp16", "megatron-2021", 2 + 2 + 4 + 8),
        ("bf16", "aleph-alpha-2023", 2 + 2 + 4 + 8),
        ("bf16", "megatron-2022-sp", 2 + 4 + 4 + 8),
        ("bf16", "megatron-core-2024", 2 + 4 + 4 + 8),
        ("bf16", "nanotron-2024", 2 + 2 + 4 + 4 + 8),
        ("bf16", "llama3-meta-2024", 2 + 4 + 4 + 8),
    ],
)
def test_recipes_cost_their_textbook_bytes_per_parameter(
    precision: str, software: str, per_parameter: int
) -> None:
    """Plain data parallelism shards nothing: 16, 18 and 20 bytes (Rajbhandari 2019; Micikevicius 2018)."""
    run = scenario(precision=precision, software=software, dp=4, tp=2, pp=2, schedule="1f1b")
    for stage, held in zip(simulate(run).memory, parameters_of_ranks(run), strict=True):
        assert state_bytes(stage) / held == pytest.approx(per_parameter, rel=1e-9)


@pytest.mark.slow
@examples(15)
@given(layouts())
def test_zero_1_shards_the_optimizer_alone(run: Scenario) -> None:
    """2 + 2 + 12/dp in 16 bit (ZeRO, table 1), with the gradient bytes of the stack.

    DualPipe has every stage twice, in one data-parallel group; PipeDream keeps p - r weight versions.
    """
    moments_and_master = 2 * run.software.gradients.moment_bytes + (
        0 if run.training.precision == "fp32" else 4
    )
    copies = 2 if run.schedule == "dualpipe" else 1
    shards = copies * run.parallelism.dp if run.parallelism.zero else 1
    for r, (stage, held) in enumerate(zip(simulate(run).memory, parameters_of_ranks(run), strict=True)):
        stashed = min(run.parallelism.pp - r, run.num_microbatches) if run.schedule == "pipedream" else 1
        weights = stashed * held * ELEMENT_BYTES[run.training.precision]
        assert stage.terms["weights"] == pytest.approx(weights)
        assert stage.terms["optimizer"] == pytest.approx(held * moments_and_master / shards)
        whole = pytest.approx(held * gradient_bytes(run))
        assert stage.terms["gradients"] == whole or not run.software.gradients.persistent_gradients


# Capacity ------------------------------------------------------------------------------------------


def test_a_step_that_does_not_fit_is_a_result_with_its_terms() -> None:
    result = simulate(
        scenario(hidden_size=8192, num_attention_heads=64, ffn_hidden_size=32768, num_layers=64, pp=2)
    )
    assert not result.fits
    assert result.step_time_s > 0
    over = [stage for stage in result.memory if not stage.fits]
    assert over
    assert all(state_bytes(stage) > stage.capacity_bytes for stage in over)
    assert result.peak_memory_bytes == max(stage.peak_bytes for stage in result.memory)
