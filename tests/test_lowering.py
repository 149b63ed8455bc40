"""Conservation laws of lowering: what a step computes, sends and holds does not depend on how it is laid out.

Operations, bytes and messages of all ranks add up to the model's closed forms, over small scenarios
drawn from every layout, schedule, precision and software preset.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import assume, given
from law_examples import examples
from small_scenarios import (
    changed,
    every_op,
    layouts,
    lowered,
    main_gradient_bytes,
    microbatches_of,
    parameters_of_ranks,
    payloads,
    scenario,
    shards_always,
)

from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.layers.local_shape import ELEMENT_BYTES
from stepsim.sim.lowering.layers.stages import build_stages
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.lowering.sizes import layer_attention_flops
from stepsim.sim.program.program import Collective, Compute, Exchange, Program
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import software_names
from stepsim.sim.simulate import simulate

law = examples(15)


# Operations ----------------------------------------------------------------------------------------


def hardware_flops_of_kernels(result: Result) -> float:
    """The Result's ``hardware_flops``, in the convention of the kernels that ran.

    HFU counts attention over the full square of scores: 2 GEMMs forward, 4 backward and, where
    recomputed, 2 again. Unfused kernels do exactly that. A fused one skips what the causal mask
    hides, half of everything, but its backward computes the scores once more: 5 GEMMs. A table that is
    looked up by a GEMM is one, and so is its gradient.
    """
    run = result.scenario
    assert run is not None
    model, training, kernels = run.model, run.training, run.software.kernels
    tokens = float(training.global_batch * training.seq_length)
    looked_up = 4 * tokens * model.hidden_size * model.embedding_rows * kernels.one_hot_embedding
    if kernels.attention == "unfused":
        return result.hardware_flops + looked_up
    square = model.num_layers * layer_attention_flops(model, tokens, training.seq_length)
    again = 0 if training.recompute == "none" else 1
    return result.hardware_flops - square * (3 + again) + square / 2 * (3.5 + again) + looked_up


@law
@given(layouts())
def test_all_ranks_together_compute_the_model(run: Scenario) -> None:
    result = simulate(run)
    done = sum(result.ranks[span.rank].count * span.flops for span in result.iter_spans())
    assert done == pytest.approx(hardware_flops_of_kernels(result), rel=1e-9)


@law
@given(layouts())
def test_every_stage_runs_every_microbatch_once_each_way(run: Scenario) -> None:
    """A whole backward counts as both its parts."""
    actions = Counter(
        (part, a.stage, a.microbatch)
        for a in simulate(run).actions
        for part in ("IW" if a.kind == "B" else a.kind)
    )
    stages = run.parallelism.pp * run.parallelism.vpp
    assert actions == {
        (part, stage, microbatch): 1
        for part in "FIW"
        for stage in range(stages)
        for microbatch in range(run.num_microbatches)
    }


# Bytes of data parallelism -------------------------------------------------------------------------


@law
@given(layouts())
def test_gradients_are_reduced_once_and_parameters_come_back_once(run: Scenario) -> None:
    """ZeRO-0: one all_reduce of the gradients. ZeRO-1: they are scattered, and parameters gathered."""
    software = run.software
    wire = software.gradients.reduce_grad_bytes or main_gradient_bytes(run)
    for program, held in zip(lowered(run).programs.classes, parameters_of_ranks(run), strict=True):
        expected: dict[str, float] = {}
        if run.parallelism.dp > 1 or run.schedule == "dualpipe":  # which has every stage twice
            sharded = run.parallelism.zero == 1
            scatters = sharded and software.gradients.reduce_scatters(run.training.precision)
            expected["reduce_scatter" if scatters else "all_reduce"] = held * wire
            if sharded:
                expected["all_gather"] = held * ELEMENT_BYTES[run.training.precision]
        assert payloads(program, "dp") == pytest.approx(expected, rel=1e-9)


@law
@given(layouts())
def test_adam_reads_and_writes_its_state_once(run: Scenario) -> None:
    """FP32 gradient and weight read, weight written, two moments read and written."""
    copies = 2 if run.schedule == "dualpipe" else 1
    shards = copies * run.parallelism.dp if run.parallelism.zero else 1
    updates = run.num_microbatches if run.schedule == "pipedream" else 1
    for program, held in zip(lowered(run).programs.classes, parameters_of_ranks(run), strict=True):
        moved = [op.work.bytes for op in program.ops if op.name == "Adam" and isinstance(op.work, Compute)]
        assert len(moved) == updates
        passes = 1 if run.software.kernels.optimizer_implementation == "fused" else 3
        assert moved == pytest.approx(
            [(12 + 4 * run.software.gradients.moment_bytes) * passes * held / shards] * updates
        )


# Bytes of tensor parallelism -----------------------------------------------------------------------


def tensor_parallel_bytes(step: Lowered, program: Program) -> float:
    """Bytes through one rank's links: an all_reduce carries twice what its two halves do each."""
    n = step.plan.groups["tp"].ranks
    payload = payloads(program, "tp")
    factors = {
        "all_reduce": 2 * (n - 1) / n,
        "all_gather": (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "ring_step": 1.0,  # counted by what one step moves
    }
    return sum(factors[kind] * size for kind, size in payload.items())


def layer_passes(run: Scenario) -> float:
    """Activations of (n-1)/n times b s h that a layer sends per microbatch: 4 all_reduces, two each way."""
    software, sharded = run.software, run.parallelism.sequence_parallel
    passes = 8.0  # 4 all_reduces, or 4 all_gathers and 4 reduce_scatters
    if sharded and software.exchange.sp_regathers_input:
        passes += 2  # inputs of both column-parallel layers again
    if software.kernels.split_gate and run.model.mlp == "swiglu" and not sharded:
        passes += 2  # the two input branches are column-parallel layers by themselves
    if run.training.recompute != "full":
        return passes
    again = 4 - (1 if sharded else 2) * software.kernels.recompute_stops_early  # the last one's reduction
    return passes + again


def expected_tensor_parallel_bytes(run: Scenario, r: int) -> float:
    """Of the layers of each stage that the rank holds, and of the ends on the first and the last stage."""
    par, training, sharded = run.parallelism, run.training, run.parallelism.sequence_parallel
    tokens, element_bytes = training.micro_batch * training.seq_length, ELEMENT_BYTES[training.precision]
    stages, total = par.pp * par.vpp, 0.0
    activation = tokens * run.model.hidden_size * element_bytes
    for stage, microbatches in microbatches_of(run, r).items():
        passes, loss = run.model.num_layers / stages * layer_passes(run), 0.0
        if stage == 0:  # embedding: an all_reduce, or a reduce_scatter and backward an all_gather
            passes += 2
        if stage == stages - 1:  # logits: dX is reduced; gathered and, where inputs are not kept, regathered
            passes += 2 + (1 if sharded and run.software.exchange.sp_regathers_input else 0)
            if run.software.kernels.cross_entropy == "gathered":
                loss = tokens * run.model.embedding_rows * element_bytes
            else:
                loss = 3 * 2 * 4.0 * tokens  # all_reduces of each token's maximum, sum and target, in FP32
        total += microbatches * (passes * activation + loss)
    return (par.tp - 1) / par.tp * total


@law
@given(layouts())
def test_tensor_parallelism_sends_four_all_reduces_per_layer(run: Scenario) -> None:
    """Shoeybi 2019, section 3. Sequence parallelism sends the same, and regathers (Korthikanti 2022)."""
    step = lowered(run)
    for r, program in enumerate(step.programs.classes):
        expected = expected_tensor_parallel_bytes(run, r)
        assert tensor_parallel_bytes(step, program) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("software", "sharded"),
    [
        (name, sharded)
        for name in software_names()
        for sharded in (False, True)
        if sharded or not shards_always(name)
    ],
)
def test_every_software_sends_them(software: str, sharded: bool) -> None:
    run = scenario(
        software=software, tp=4, sequence_parallel=sharded, mlp="swiglu", gpu="H100-SXM5-80GB", microbatches=1
    )
    step = lowered(run)
    expected = expected_tensor_parallel_bytes(run, 0)
    assert tensor_parallel_bytes(step, step.programs.classes[0]) == pytest.approx(expected, rel=1e-9)


# Messages ------------------------------------------------------------------------------------------


@law
@given(layouts())
def test_every_boundary_is_crossed_once_each_way(run: Scenario) -> None:
    """Each message is sent once, received once, and carries one rank's part of b s h."""
    par, training = run.parallelism, run.training
    step = lowered(run)
    parts = [
        (part, r)
        for r, program in enumerate(step.programs.classes)
        for op, _ in every_op(program)
        if isinstance(op.work, Exchange)
        for part in op.work.parts
    ]
    sent = Counter((part.tag, r, part.peer) for part, r in parts if part.send)
    received = Counter((part.tag, part.peer, r) for part, r in parts if not part.send)
    assert sent == received
    assert set(sent.values()) <= {1}
    rank_of, shape = step.plan.schedule.rank_of, step.plan.shape
    crossings = [
        (s, k)
        for s in range(shape.stages - 1)
        for k in range(shape.microbatches)
        if rank_of(s, k, shape) != rank_of(s + 1, k, shape)
    ]
    assert len(sent) == 2 * len(crossings)
    split = par.sequence_parallel or run.software.pipeline.scatter_gather_p2p
    size = training.micro_batch * training.seq_length * run.model.hidden_size
    size *= ELEMENT_BYTES[training.precision]
    assert all(part.transfer.bytes == size / (par.tp if split else 1) for part, _ in parts)


# Time ----------------------------------------------------------------------------------------------


def solo_s(step: Lowered, r: int) -> tuple[float, float, float]:
    """Seconds of class ``r`` with nothing beside anything: kernels, communication, host."""
    kernels_s = communication_s = host_s = 0.0
    for op, count in every_op(step.programs.classes[r]):
        host_s += count * op.host_s
        if isinstance(op.work, Compute):
            kernels_s += count * op.work.seconds
        elif isinstance(op.work, Collective):
            communication_s += count * op.work.transfer.solo_s
        elif isinstance(op.work, Exchange):
            communication_s += sum(part.transfer.solo_s for part in op.work.parts)
    return kernels_s, communication_s, host_s


@law
@given(layouts())
def test_a_step_takes_no_less_than_its_kernels_and_no_more_than_everything_in_turn(run: Scenario) -> None:
    step = lowered(run)
    took_s = replay(step.programs).makespan_s
    parts = [solo_s(step, r) for r in range(len(step.programs.classes))]
    assert took_s >= max(kernels_s for kernels_s, _, _ in parts) * (1 - 1e-9)
    # Beside communication, kernels run slower: on fewer SMs, and by the co-run slowdown.
    streams = Counter(
        {
            op.stream: max(op.work.transfer.sms, 0)
            for program in step.programs.classes
            for op, _ in every_op(program)
            if isinstance(op.work, Collective)
        }
    )
    beside = 1 - streams.total() / step.programs.sms
    slowest = (1 + step.programs.corun_slowdown) / beside
    in_turn_s = sum(kernels * slowest + sent + host for kernels, sent, host in parts)
    assert took_s <= in_turn_s * (1 + 1e-9)


@pytest.mark.slow
@examples(12)
@given(layouts())
def test_a_step_is_the_same_every_time(run: Scenario) -> None:
    def outcome() -> tuple[str, list[str]]:
        result = simulate(run)
        document = result.to_dict()
        del document["timing"]
        return json.dumps(document), [repr(span) for span in result.iter_spans()]

    assert outcome() == outcome()


@pytest.mark.slow
@law
@given(layouts(gpu="A100-SXM4-80GB"))
def test_a_faster_gpu_is_not_slower(run: Scenario) -> None:
    """But for streams, whose pace is read off from the end of the first backward on."""
    assume(run.schedule != "pipedream")
    faster = simulate(changed(run, cluster={"gpu": "H100-SXM5-80GB"}))
    assert faster.step_time_s <= simulate(run).step_time_s * (1 + 1e-9)


@pytest.mark.slow
@law
@given(layouts())
def test_more_microbatches_take_no_less_time(run: Scenario) -> None:
    longer = simulate(changed(run, training={"global_batch": 2 * run.training.global_batch}))
    assert longer.step_time_s >= simulate(run).step_time_s * (1 - 1e-9)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_layers_recomputed_are_counted_per_rank_not_per_chunk(layers: int) -> None:
    run = scenario(pp=2, vpp=2, schedule="interleaved")
    run = changed(run, training={"recompute": {"kind": "full", "layers": layers}})
    stages = build_stages(run)
    for rank in range(2):
        assert sum(stage.recomputed for stage in stages[rank::2]) == layers


def test_the_laws_see_every_kind_of_op() -> None:
    """Guards the laws above: a walk that found nothing would let everything pass."""
    run = scenario(tp=2, pp=2, vpp=2, dp=2, zero=1, sequence_parallel=True, schedule="interleaved")
    step = lowered(run)
    kinds = {type(op.work).__name__ for program in step.programs.classes for op, _ in every_op(program)}
    assert kinds == {"Compute", "Collective", "Exchange"}
    assert all(payloads(program, "tp") and payloads(program, "dp") for program in step.programs.classes)
