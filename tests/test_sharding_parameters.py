"""ZeRO-2, ZeRO-3 and FSDP: the bytes that each rank sends, against closed forms; what they hold and cost.

Parameters are gathered and gradients reduced by each framework's own rule (sim/lowering/sharding); here the
rules are written down once more as sums over a whole step.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from refusals import refused_at
from small_scenarios import changed, every_op, lowered, parameters_of_ranks, scenario, shards_always

from stepsim.sim.lowering.optional_parts import sharded_actions_of
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.sharding import gradients_last, sharding_rule
from stepsim.sim.simulate import simulate

PRESETS = {
    "torchtitan-2024": "fsdp2",
    "llm-foundry-2023": "fsdp1",
    "deepspeed-zero3-2021": "deepspeed",
    "megatron-core-2025": "megatron-fsdp",
}
"""A preset of each implementation."""

WIDE: dict[str, Any] = {
    "hidden_size": 8192,
    "ffn_hidden_size": 32768,
    "num_attention_heads": 64,
    "mlp": "gelu",
}
"""Layers of 805 million parameters, more than a bucket or half of what DeepSpeed gathers at once."""

law = examples(15)


@st.composite
def sharded(draw: st.DrawFn, **fixed: Any) -> Scenario:
    """Small scenarios under ZeRO-2 or ZeRO-3, also sharded over some of the replicas only."""

    def pick(name: str, *choices: Any) -> Any:
        return fixed[name] if name in fixed else draw(st.sampled_from(choices), label=name)

    software = pick("software", *PRESETS)
    dp, tp = pick("dp", 2, 4, 8), pick("tp", 1, 2)
    pp = 1 if PRESETS[software] == "deepspeed" else pick("pp", 1, 2)
    return scenario(
        software=software,
        dp=dp,
        tp=tp,
        pp=pp,
        schedule="1f1b" if pp > 1 else "none",
        zero=pick("zero", 2, 3),
        fsdp_shard_size=pick("fsdp_shard_size", None, 1, 2, dp),
        mlp=pick("mlp", "gelu", "swiglu"),
        microbatches=pick("microbatches", 1, 2, 3),
        recompute=pick("recompute", "none", "full"),
        tied_embeddings=pick("tied_embeddings", False, True),
        sequence_parallel=tp > 1 and (shards_always(software) or pick("sequence_parallel", False, True)),
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
    )


def payloads(run: Scenario) -> list[Counter[str]]:
    """Payload bytes of data parallelism by kind of collective, for each pipeline rank."""
    found = []
    for program in lowered(run).programs.classes:
        one: Counter[str] = Counter()
        for op, count in every_op(program):
            if op.category == "dp" and isinstance(op.work, Collective):
                one[op.work.kind] += count * op.work.transfer.bytes
        found.append(one)
    return found


def gathered(run: Scenario, r: int, held: float) -> float:
    """Parameters that pipeline rank ``r`` gathers in a step."""
    par, model = run.parallelism, run.model
    rule, microbatches = PRESETS[run.software.name], run.num_microbatches
    table = model.embedding_rows * model.hidden_size / par.tp
    norm = model.hidden_size * (1 if model.norm == "rmsnorm" else 2)
    positions = run.training.seq_length * model.hidden_size if model.position == "learned" else 0
    first, last = r == 0, r == par.pp - 1
    embedding = (table + positions) if first else 0.0
    head = (norm + (0.0 if model.tied_embeddings and first else table)) if last else 0.0
    layers = held - embedding - head
    if rule in ("deepspeed", "megatron-fsdp"):
        once = 1.0 if par.zero == 2 else 0.0  # the updated parameters come back, as under ZeRO-1
        return once * held + (2 * microbatches * held if par.zero == 3 else 0.0)
    if par.pp > 1:
        return held
    again = {"fsdp1": layers, "fsdp2": layers + embedding}[rule] if par.zero == 3 else 0.0
    return microbatches * (held + again)


@law
@given(sharded(tied_embeddings=False))
def test_every_rank_sends_what_the_rules_say(run: Scenario) -> None:
    par = run.parallelism
    shards = par.fsdp_shard_size or par.dp
    rule = PRESETS[run.software.name]
    times = 1 if rule in ("fsdp1", "fsdp2") and par.pp > 1 else run.num_microbatches
    wire = run.software.gradients.reduce_grad_bytes or run.software.gradients.main_grad_bytes
    run = changed(run, software={"persistent_elements": 0.0})  # norms too are sharded
    for r, (found, held) in enumerate(zip(payloads(run), parameters_of_ranks(run), strict=True)):
        expected = {
            "all_gather": gathered(run, r, held) * 2 if shards > 1 else 0.0,
            "reduce_scatter": times * held * wire if shards > 1 else 0.0,
            "all_reduce": times * held * wire / shards if shards < par.dp else 0.0,
        }
        assert found == pytest.approx({kind: size for kind, size in expected.items() if size}, rel=1e-9)


def reducing(reduce: str, **fields: Any) -> Scenario:
    software = {"preset": "torchtitan-2024", "sharding": {"reduce": reduce}}
    return scenario(**{"software": software, "dp": 4, "zero": 3, "microbatches": 3} | fields)


def test_gradients_that_the_last_microbatch_reduces_are_sent_once() -> None:
    """Parameters are gathered as often as before; a layer's gradients leave as the last backward ends it."""
    each, last = (payloads(reducing(how))[0] for how in ("each", "last"))
    assert last["all_gather"] == each["all_gather"]
    assert last["reduce_scatter"] == pytest.approx(each["reduce_scatter"] / 3)
    ops = every_op(lowered(reducing("last")).programs.classes[0])
    scatters = sum(n for op, n in ops if isinstance(op.work, Collective) and op.work.kind == "reduce_scatter")
    assert scatters == reducing("last").model.num_layers + 2  # embedding and head


def test_gradients_that_the_last_microbatch_reduces_wait_whole() -> None:
    """In the width of the reduction, from the first backward: four bytes a parameter in place of shards."""
    each, last = (simulate(reducing(how)).memory[0].terms["gradients"] for how in ("each", "last"))
    (held,) = parameters_of_ranks(reducing("last"))
    assert last - each == pytest.approx(4 * held * (1 - 1 / 4), rel=1e-6)


def test_fsdp1_keeps_them_in_the_width_of_the_products() -> None:
    """Its post-backward hook casts them when they are reduced: two bytes a parameter, not four."""

    def waiting(implementation: str) -> float:
        sharding = {"reduce": "last", "implementation": implementation}
        software = {"preset": "torchtitan-2024", "sharding": sharding}
        return float(simulate(reducing("last", software=software)).memory[0].terms["gradients"])

    (held,) = parameters_of_ranks(reducing("last"))
    assert waiting("fsdp2") - waiting("fsdp1") == pytest.approx(2 * held, rel=0.05)


@pytest.mark.parametrize("fields", [{"microbatches": 1}, {"pp": 2, "schedule": "1f1b", "microbatches": 4}])
def test_one_microbatch_or_a_pipeline_reduces_as_ever(fields: dict[str, Any]) -> None:
    each, last = (simulate(reducing(how, **fields)) for how in ("each", "last"))
    assert each.step_time_s == last.step_time_s
    assert each.memory[0].terms == last.memory[0].terms


def test_small_parameters_stay_whole_with_deepspeed() -> None:
    """Below the threshold of 1e5 elements: norms and biases of layers are not gathered, yet reduced."""
    run = scenario(software="deepspeed-zero3-2021", dp=4, zero=3, mlp="gelu", microbatches=1)
    (found,), (held,) = payloads(run), parameters_of_ranks(run)
    h, layers = run.model.hidden_size, run.model.num_layers
    small = layers * (4 * h + 3 * h + 4 * h + 2 * h)  # two norms; biases of QKV, of the MLP, of both outputs
    assert found["all_gather"] == pytest.approx(2 * 2 * (held - small))
    assert found["reduce_scatter"] == pytest.approx(2 * held)


@pytest.mark.slow
@law
@given(sharded())
def test_a_sharded_step_runs_in_bounds_and_ends_as_it_began(run: Scenario) -> None:
    result = simulate(run)
    serial = kernels = 0.0
    for program in lowered(run).programs.classes:
        alone = moving = 0.0
        for op, count in every_op(program):
            if isinstance(op.work, Collective):
                moving += count * op.work.transfer.solo_s
            elif op.stream == "compute" and isinstance(op.work, Compute):
                alone += count * op.work.seconds
        kernels = max(kernels, alone)
        serial += alone + moving
    assert kernels <= result.step_time_s * (1 + 1e-9)
    if run.parallelism.pp == 1:  # with a pipeline its messages and bubbles come on top
        host_s = sum(op.host_s * count for op, count in every_op(lowered(run).programs.classes[0]))
        # SMs that communication holds slow kernels down: never to less than half of the GPU here
        assert result.step_time_s <= 2 * serial + host_s
    keeps_whole = PRESETS[run.software.name].startswith("fsdp") and run.parallelism.pp > 1
    new = not gradients_last(run, sharding_rule(run))  # those that a step made are there until the next
    for stage in result.memory:
        highest = max(size for _, size in stage.timeline)
        lasting = highest if keeps_whole or new else 0.0
        assert -1e-6 * highest <= stage.timeline[-1][1] <= lasting + 1e-6 * highest


@pytest.mark.parametrize("software", PRESETS)
@pytest.mark.parametrize("shard_size", [None, 2])
def test_folded_equals_unfolded(software: str, shard_size: int | None) -> None:
    run = scenario(software=software, tp=2, dp=4, zero=3, fsdp_shard_size=shard_size, gpus_per_node=4)
    folded, every = simulate(run), simulate(run, fold=False)
    assert every.step_time_s == pytest.approx(folded.step_time_s, rel=1e-9)


@pytest.mark.slow
@law
@given(sharded(fsdp_shard_size=None))
def test_a_group_of_all_ranks_is_no_group(run: Scenario) -> None:
    named = changed(run, parallelism={"fsdp_shard_size": run.parallelism.dp})
    assert simulate(named).step_time_s == simulate(run).step_time_s


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_memory_falls_with_the_shard_group(zero: int) -> None:
    def state(size: int) -> float:
        result = simulate(scenario(software="torchtitan-2024", dp=8, zero=zero, fsdp_shard_size=size))
        return sum(result.memory[0].terms[term] for term in ("weights", "gradients", "optimizer"))

    whole = state(1)
    shared = {2: 1 / 2, 4: 1 / 4, 8: 1 / 8}
    if zero > 1:
        states = {size: state(size) for size in shared}
        moving = 2 * (states[4] - states[8]) - (states[2] - states[4])
        assert moving == pytest.approx(0, abs=1e-6 * whole)  # all that differs is divided by the group
    assert state(8) < state(4) < state(2) < whole


def test_gathers_hide_behind_long_layers_and_not_behind_short_ones() -> None:
    """Exposed are the first and the last unit behind long sequences, and a third of the step behind short
    ones, whose kernels still read all weights."""

    def share(seq_length: int) -> float:
        result = simulate(
            scenario(
                software={"preset": "torchtitan-2024", "host": {"host_s_per_kernel": 0.0}},
                zero=3,
                dp=8,
                hidden_size=2048,
                num_attention_heads=16,
                ffn_hidden_size=8192,
                seq_length=seq_length,
                microbatches=1,
            )
        )
        return result.exposed_communication_s["dp"] / result.step_time_s

    assert share(4096) < 0.1
    assert share(32) > 0.3


def test_deepspeed_refuses_a_pipeline() -> None:
    run = scenario(software="deepspeed-zero3-2021", dp=2, pp=2, zero=3, schedule="1f1b")
    with refused_at("parallelism.zero", "pipeline"):
        simulate(run)


@pytest.mark.parametrize(
    ("software", "fresh_and_reduced"),
    [("torchtitan-2024", 2 + 4), ("llm-foundry-2023", 2 + 2), ("megatron-core-2025", 2 + 4)],
)
def test_two_layers_are_gathered_and_the_gradients_of_two_are_on_their_way(
    software: str, fresh_and_reduced: int
) -> None:
    """A layer and the next one, forward and backward; the gradients of one as they are made, in 16 bit, and
    of the one before as they are reduced."""
    run = scenario(dp=8, zero=3, software=software, gpu="H100-SXM5-80GB", **WIDE)
    plan = lowered(run).plan
    sharding = sharded_actions_of(plan)
    assert sharding is not None
    layer, buffers = plan.parameters[0].body / run.model.num_layers, sharding.buffers(0)
    assert buffers.forward == buffers.backward == 2 * 2 * layer
    assert buffers.reducing == fresh_and_reduced * layer


def test_deepspeed_gathers_so_many_parameters_and_reduces_by_way_of_a_bucket() -> None:
    """stage3_max_live_parameters (1e9) in place of two layers, reduce_bucket_size (5e8) in place of one;
    the largest matrix of a layer, a third of it, is there as it was made."""
    run = scenario(dp=8, zero=3, software="deepspeed-zero3-2021", gpu="H100-SXM5-80GB", **WIDE)
    plan = lowered(run).plan
    sharding = sharded_actions_of(plan)
    assert sharding is not None
    matrix, buffers = plan.parameters[0].body / run.model.num_layers / 3, sharding.buffers(0)
    assert buffers.forward == buffers.backward == 2 * 1e9
    assert buffers.reducing == pytest.approx(2 * matrix + 2 * 5e8)
    smaller = {"hidden_size": 2048, "ffn_hidden_size": 8192, "num_attention_heads": 16, "mlp": "gelu"}
    less = scenario(dp=8, zero=3, software="deepspeed-zero3-2021", gpu="H100-SXM5-80GB", **smaller)
    held = sharded_actions_of(lowered(less).plan)
    assert held is not None
    assert held.buffers(0).reducing == (2 + 2) * lowered(less).plan.parameters[0].body / less.model.num_layers
