"""Buffers that no block of activations can hold, in closed form: nanotron's gather of updated parameters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.lowering.allocator_blocks import flat_buffer_bytes
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def nanotron(**fields: object) -> Scenario:
    """A model of one shape of matrix whose weights are far larger than what a few tokens keep of it."""
    sizes = {"hidden_size": 1024, "ffn_hidden_size": 1024, "num_attention_heads": 16, "vocab_size": 1024}
    own = {"norm": "rmsnorm", "position": "rope", "biases": False, "dropout": 0.0}
    few = {"seq_length": 16, "micro_batch": 1, "num_layers": 4}
    software = {"preset": "nanotron-2024", "kernels": {"loss_in_place": False}}
    return scenario(**{"software": software, **sizes, **own, **few, **fields})


def flat_bytes(run: Scenario) -> float:
    return flat_buffer_bytes(lowered(run).plan, 0)[0]


@pytest.mark.parametrize("dp", [2, 4])
def test_lists_and_what_torch_flattens_count_where_nothing_holds_them(dp: int) -> None:
    """2 N of pieces, 2 N in one, 2 N / dp of a rank's own; but for the moments of norms, all else being too
    large for the blocks of 16 tokens."""
    run = nanotron(dp=dp, zero=1)
    held = lowered(run).plan.held_parameters(0)
    norms = (2 * run.model.num_layers + 1) * run.model.hidden_size
    assert flat_bytes(run) == pytest.approx(2 * (2 + 1 / dp) * held - 8 * norms / dp)


def test_blocks_of_many_tokens_hold_them() -> None:
    """All parameters are 20 M; the FP32 logits of one sequence of 32,768 tokens are 134 MB."""
    assert flat_bytes(nanotron(dp=2, zero=1, seq_length=32768)) == 0.0
    assert flat_bytes(nanotron(dp=2, zero=0, seq_length=32768)) == 0.0


def test_without_zero_the_gradient_of_the_table_counts() -> None:
    run = nanotron(dp=2, zero=0)
    assert flat_bytes(run) == 2.0 * run.model.vocab_size * run.model.hidden_size


@settings(max_examples=30)
@given(
    tokens=st.sampled_from([16, 128, 1024, 8192]),
    dp=st.sampled_from([1, 2, 4, 8]),
    zero=st.sampled_from([0, 1]),
    pp=st.sampled_from([1, 2]),
)
def test_more_tokens_never_ask_for_more(tokens: int, dp: int, zero: int, pp: int) -> None:
    """Their blocks hold more; and nothing is ever asked for but the gather, or one table."""
    fields: dict[str, object] = {"dp": dp, "zero": zero}
    if pp > 1:
        fields |= {"pp": pp, "schedule": "1f1b", "stage_split": "flops_balanced"}
    one, more = (nanotron(seq_length=n, **fields) for n in (tokens, 4 * tokens))
    assert 0.0 <= flat_bytes(more) <= flat_bytes(one)
    assert flat_bytes(one) <= (2 + 1 / dp) * 2 * lowered(one).plan.held_parameters(0)


ROOMS = st.sampled_from([0.5, 0.9, 0.999, 1.001, 2.0])


@settings(max_examples=30)
@given(tokens=st.sampled_from([16, 128, 1024, 8192]), dp=st.sampled_from([1, 2, 4, 8]), room=ROOMS)
def test_without_room_the_gather_shares_the_blocks_of_activations(tokens: int, dp: int, room: float) -> None:
    """Of its buffers and what comes and goes the larger is needed; the bill is that where not both fit."""
    (whole,) = simulate(nanotron(dp=dp, zero=1, seq_length=tokens)).memory
    buffers, moving = whole.terms["flat buffers"], whole.peak_bytes - whole.static_bytes
    assert whole.needed_bytes == pytest.approx(whole.static_bytes - buffers + max(buffers, moving))
    gpu = {"extends": "A100-SXM4-80GB", "memory": f"{room * whole.peak_bytes:.0f} B"}
    (stage,) = simulate(nanotron(dp=dp, zero=1, seq_length=tokens, gpu=gpu)).memory
    expected = whole.peak_bytes if room > 1 else whole.needed_bytes
    assert stage.peak_bytes == pytest.approx(expected)
    assert stage.needed_bytes == pytest.approx(whole.needed_bytes)
    assert stage.moving_share == pytest.approx(whole.moving_share)
    assert stage.peak_bytes == pytest.approx(sum(stage.terms.values()))


@pytest.mark.parametrize(("dp", "zero", "each"), [(1, 0, 4), (2, 0, 6), (1, 1, 4), (2, 1, 4)])
def test_16_bit_gradients_stay_in_buckets_of_ddp_alone(dp: int, zero: int, each: int) -> None:
    """nanotron has DDP of several replicas without ZeRO-1 (trainer.py, _init_model: make_ddp)."""
    run = nanotron(dp=dp, zero=zero)
    (stage,) = simulate(run).memory
    assert stage.terms["gradients"] == each * stage.parameters
