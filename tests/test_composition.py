"""Everything composes: whatever is legal runs, conserves, keeps its bounds, and frees all it took.

Each drawn scenario goes through all laws; sums are in composition_flops.py, composition_bytes.py and
composition_sharding.py. What is not legal, or not modelled, is refused by an error that names its field:
nothing else may be raised.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, NamedTuple

import pytest
from composition_bytes import step_bytes
from composition_counts import class_of, multiplied, sent
from composition_flops import step_flops
from compositions import build, combinations
from hypothesis import HealthCheck, assume, given, settings
from small_scenarios import BLOCKS, every_op, with_leaves

from stepsim.sim.engine.collection import collection_paused
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import unfolded
from stepsim.sim.lowering.lower import Lowered, lower
from stepsim.sim.lowering.memory import gradient_bytes, shard_gradient_bytes
from stepsim.sim.lowering.optimizers import updated_parameters
from stepsim.sim.program.program import Collective, Compute, Exchange, Op
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.scenario.sharding import gradients_last, sharding_rule
from stepsim.sim.scenario.software.software import GROUP_OF
from stepsim.sim.simulate import build_cluster, simulate
from stepsim.sim.step_result import stage_memory

DRAWS = 80
"""Legal ones, half of them with experts; the refused come on top. HYPOTHESIS_PROFILE=explore draws more."""

law = settings(
    max_examples=max(DRAWS // 2, settings().max_examples),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    deadline=None,
)


class Refused(NamedTuple):
    """The fields that a refusal names, and what it says."""

    paths: list[str]
    text: str


@pytest.mark.slow
@law
@given(combinations(experts=False))
def test_everything_composes(document: dict[str, Any]) -> None:
    composes(document)


@pytest.mark.slow
@law
@given(combinations(experts=True))
def test_everything_composes_with_experts(document: dict[str, Any]) -> None:
    composes(document)


def composes(document: dict[str, Any]) -> None:
    """All laws of what is legal, and names of fields where it is not."""
    found = composed(document)
    if isinstance(found, Refused):
        names_its_fields(found, document)
        assume(False)
        raise AssertionError("not reached")
    obeys_every_law(*found)


def obeys_every_law(run: Scenario, step: Lowered) -> None:
    result = simulate(run)
    keeps_its_bounds(result, step)
    counts_tokens_once(run, step, result)
    multiplies_the_model(run, step)
    sends_the_closed_forms(run, step)
    frees_what_it_took(step, result)
    is_the_same_unfolded(step, result)


def composed(document: dict[str, Any]) -> tuple[Scenario, Lowered] | Refused:
    """The scenario and its programs, or how they are refused."""
    try:
        run = build(document)
        return run, lower(run, build_cluster(run))
    except ScenarioError as refusal:
        return Refused([problem.path for problem in refusal.problems], str(refusal))
    except NotSupported as refusal:
        return Refused([str(refusal).split(":")[0]], str(refusal))


# Laws ----------------------------------------------------------------------------------------------------


def names_its_fields(refused: Refused, document: dict[str, Any]) -> None:
    """Each is a field of the document, leaf and all, or of the preset that it takes."""
    assert refused.paths
    for path in refused.paths:
        inside: Any = document
        for name in path.split("."):
            if not isinstance(inside, dict):  # training.recompute.modules of a recompute by its name
                break
            if "preset" in inside:
                group, field = path.split(".")[-2:]
                assert GROUP_OF[field] == group, refused.text
                break
            assert name in inside, refused.text
            inside = inside[name]


def keeps_its_bounds(result: Result, step: Lowered) -> None:
    """No faster than the busiest rank's kernels alone, no slower than all ops of all classes in a row."""
    ops = [list(every_op(program)) for program in step.programs.classes]
    assert max(map(compute_s, ops)) <= result.step_time_s * (1 + 1e-9)
    assert result.step_time_s <= sum(map(serial_s, ops)) * (1 + 1e-9)
    assert 0 < result.mfu < 1
    assert math.isfinite(result.step_time_s)


def compute_s(ops: list[tuple[Op, int]]) -> float:
    return sum(count * op.work.seconds for op, count in ops if isinstance(op.work, Compute))


def serial_s(ops: list[tuple[Op, int]]) -> float:
    """Seconds of all of them one after the other, each alone."""
    total = 0.0
    for op, count in ops:
        seconds = op.host_s
        if isinstance(op.work, Compute):
            seconds += op.work.seconds
        elif isinstance(op.work, Collective):
            seconds += op.work.transfer.solo_s
        elif isinstance(op.work, Exchange):
            seconds += sum(part.transfer.solo_s for part in op.work.parts)
        total += count * seconds
    return total


def counts_tokens_once(run: Scenario, step: Lowered, result: Result) -> None:
    """Every microbatch passes every stage once each way, on one rank of each replica."""
    assert result.tokens_per_step == run.training.global_batch * run.training.seq_length
    first = {rank.pp: number for number, rank in reversed(list(enumerate(result.ranks)))}
    chosen = set(first.values())  # one class of each pipeline rank
    seen = Counter((one.kind, one.stage, one.microbatch) for one in result.actions if one.rank in chosen)
    assert max(seen.values()) == 1
    for s in range(step.plan.shape.stages):
        for k in range(run.num_microbatches):
            assert seen["F", s, k] == 1
            assert seen["B", s, k] + seen["I", s, k] == 1
            assert seen["W", s, k] == seen["I", s, k]


def multiplies_the_model(run: Scenario, step: Lowered) -> None:
    """All ranks together, exactly."""
    done = 0.0
    for number, program in enumerate(step.programs.classes):
        _, ranks, _ = class_of(step, number)
        done += ranks * multiplied(program)
    assert done == pytest.approx(step_flops(run, step.plan), rel=1e-9)


def sends_the_closed_forms(run: Scenario, step: Lowered) -> None:
    """Every rank, on every axis, exactly."""
    for number, program in enumerate(step.programs.classes):
        r, _, load = class_of(step, number)
        assert sent(program, step.plan) == pytest.approx(step_bytes(run, step.plan, r, load), rel=1e-9)


def frees_what_it_took(step: Lowered, result: Result) -> None:
    """But for gradients that came with a first backward, which the optimizer takes."""
    plan = step.plan
    rule = sharding_rule(plan.scenario) if plan.groups["dp"].ranks > 1 else None
    lazy = not gradients_last(plan.scenario, rule)
    for stage in result.memory:
        assert stage.peak_bytes == pytest.approx(sum(stage.terms.values()))
        slack = 1e-6 * stage.peak_bytes
        whole = plan.held_parameters(stage.pp) * gradient_bytes(plan)
        shards = updated_parameters(plan, stage.pp) * shard_gradient_bytes(plan, rule) if rule else whole
        left = shards if lazy else 0.0
        assert stage.timeline[-1][1] == pytest.approx(left, abs=slack)
        assert all(value >= -slack for value in stage.terms.values())


def is_the_same_unfolded(step: Lowered, result: Result) -> None:
    """As ``simulate(run, fold=False)`` replays it, without the figures that nobody asks for here."""
    every_rank = unfolded(step)
    with collection_paused():
        record = replay(every_rank.programs)
    assert record.step_s == pytest.approx(result.step_time_s, rel=1e-9)
    assert [one.peak_bytes for one in stage_memory(step, every_rank, record)] == pytest.approx(
        [one.peak_bytes for one in result.memory]
    )


# Guards of the laws --------------------------------------------------------------------------------------

INTERLEAVED = {"schedule": "interleaved", "pp": 2, "vpp": 2}

EVERYTHING: dict[str, dict[str, Any]] = {
    "zero-3, pipeline, experts, accumulation": {"zero": 3, "pp": 2, "ep": 2, "dp": 2},
    "hybrid shards": {"zero": 3, "fsdp_shard_size": 2, "dp": 4, "moe": None},
    "hybrid shards of experts": {
        "zero": 3, "fsdp_shard_size": 2, "dp": 4, "ep": 2, "implementation": "fsdp2"
    },
    "context and experts": {"cp": 2, "tp": 2, "sequence_parallel": True, "ep": 4, "dp": 2, "zero": 1},
    "shared experts over tp": {"tp": 2, "sequence_parallel": True, "etp": 2, "ep": 2, "dp": 2, "zero": 1},
    "eight bits, recomputed": {"precision": "fp8", "recompute": "full", "zero": 2, "dp": 2, "moe": None},
    "experts on the host": {"cpu_offload": True, "zero": 3, "ep": 2, "dp": 4, "pp": 2},
    "experts on disks": {"nvme_offload": True, "zero": 1, "ep": 4, "dp": 4},
    "activations of experts on the host": {"activation_offload": True, "zero": 2, "ep": 2, "dp": 2, "pp": 2},
    "exchanges beside layers, zero-3": {**INTERLEAVED, "moe_a2a_overlap": True, "zero": 3, "ep": 2, "dp": 2},
    "exchanges beside layers, fsdp2": {
        **INTERLEAVED, "moe_a2a_overlap": True, "zero": 3, "ep": 2, "dp": 2, "implementation": "fsdp2"
    },
    "exchanges beside layers without a pipeline": {"moe_a2a_overlap": True, "zero": 3, "ep": 4, "dp": 4},
    "exchanges beside layers, activations on the host": {
        **INTERLEAVED, "moe_a2a_overlap": True, "activation_offload": True, "zero": 2, "ep": 2, "dp": 2
    },
    "windows, unfused": {"preset": "megatron-2022-sp", "sliding_window": 64, "moe": None},
    "windows, keys gathered": {"cp": 2, "cp_comm": "all_gather", "sliding_window": 64, "dp": 2},
    "windows, heads exchanged": {"cp": 4, "cp_a2a": 4, "sliding_window": 64, "full_attention_every": 2},
    "both ways and the host": {"schedule": "dualpipe", "pp": 2, "dp": 2, "zero": 1, "cpu_offload": True},
    "dualpipe in a V, zero-3": {"schedule": "dualpipev", "pp": 2, "vpp": 2, "dp": 2, "zero": 3, "ep": 2},
    "replicas of a stream": {"schedule": "pipedream", "pp": 2, "dp": 2, "moe": None},
    "experts over tp alone": {"tp": 4, "sequence_parallel": True, "zero": 1},
    "split backwards, zero-3": {"schedule": "zb-h1", "pp": 2, "dp": 2, "zero": 3, "ep": 2},
    "more tokens, gradients in buckets": {
        "mtp_layers": 1, "pp": 2, "dp": 2, "zero": 1, "moe": None, "preset": "torchtitan-2024"
    },
    "more tokens, layers joined": {
        "mtp_layers": 1, "dp": 4, "zero": 3, "moe": None, "preset": "deepspeed-zero3-2021",
        "persistent_elements": 0.0,
    },
    "more tokens, split backwards": {
        "mtp_layers": 1, "schedule": "zb-h1", "pp": 2, "dp": 2, "moe": None, "preset": "torchtitan-2024"
    },
    "rows weighted where experts are, operators run again": {
        "weighted_rows": True, "moe_dispatcher": "deepep", "ep": 2, "etp": 2, "tp": 2, "dp": 2,
        "sequence_parallel": True, "recompute": {"kind": "operators", "keep": ["mm"]},
    },
    "more tokens, uneven router": {
        "mtp_layers": 1, "routing": {"kind": "zipf", "exponent": 1.0}, "ep": 4, "dp": 4, "pp": 2, "zero": 1
    },
}  # fmt: skip


def combined(**fields: Any) -> dict[str, Any]:
    """A document with experts, unless they are left out; ``fields`` are leaves by name."""
    fields = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, **fields}
    schedule = fields.pop("schedule", "1f1b" if fields["pp"] > 1 else "none")
    document: dict[str, Any] = {
        "model": {
            "num_layers": 8,
            "hidden_size": 256,
            "num_attention_heads": 8,
            "ffn_hidden_size": 512,
            "vocab_size": 512,
            "mlp": "swiglu",
            "moe": {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 128},
        },
        "cluster": {
            "gpu": "H100-SXM5-80GB",
            "gpus": fields["tp"] * fields["cp"] * fields["pp"] * fields["dp"],
            "interconnect": "ib-ndr400-x8",
        },
        "parallelism": {},
        "training": {
            "micro_batch": 1,
            "seq_length": 256,
            "precision": "bf16",
            "global_batch": 8 * fields["dp"],
        },
        "schedule": schedule,
        "software": {"preset": "megatron-core-2025"},
    }
    for name, value in fields.items():
        if name in GROUP_OF:
            document["software"] = with_leaves(document["software"], **{name: value})
        else:
            block = next((b for b, kind in BLOCKS.items() if name in kind.model_fields), "software")
            document[block][name] = value
    return document


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_must_compose_does(name: str) -> None:
    """Guards the laws: they must not be about a handful of simple scenarios."""
    found = composed(combined(**EVERYTHING[name]))
    assert not isinstance(found, Refused), found
    obeys_every_law(*found)


REFUSED: dict[str, dict[str, Any]] = {
    "parallelism.zero: .*dualpipe": {"schedule": "dualpipe", "pp": 2, "zero": 3, "dp": 2},
    "parallelism.zero: pipedream": {"schedule": "pipedream", "pp": 2, "zero": 1, "dp": 2},
    "parallelism.fsdp_shard_size: dualpipe": {
        "schedule": "dualpipe", "pp": 2, "zero": 1, "dp": 4, "fsdp_shard_size": 2
    },
    "parallelism.fsdp_shard_size: 1 leaves 4 copies .* 2 ranks hold the same": {
        "zero": 2, "dp": 4, "ep": 2, "fsdp_shard_size": 1
    },
    "training.cpu_offload: pipedream": {"schedule": "pipedream", "pp": 2, "cpu_offload": True},
    "training.nvme_offload: pipedream": {"schedule": "pipedream", "pp": 2, "nvme_offload": True},
    "training.document_length: unfused": {"preset": "megatron-2022-sp", "document_length": 32, "moe": None},
    "training.document_length: how context parallelism": {"document_length": 32, "cp": 2, "dp": 2},
    "training.activation_offload: zb-h1": {"schedule": "zb-h1", "pp": 2, "activation_offload": True},
    "software.exchange.moe_a2a_overlap: 1f1b has no forward": {
        "moe_a2a_overlap": True, "dp": 2, "ep": 2, "pp": 2
    },
    "software.exchange.moe_a2a_overlap: DeepSpeed": {
        "moe_a2a_overlap": True, "dp": 2, "ep": 2, "zero": 3, "implementation": "deepspeed"
    },
    "model.sliding_window: a ring": {"cp": 4, "cp_a2a": 2, "sliding_window": 64},
    "parallelism.cp: .* fused": {"preset": "megatron-2022-sp", "cp": 2},
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_framework_does_is_refused_by_its_field(message: str) -> None:
    document = combined(**REFUSED[message])
    found = composed(document)
    assert isinstance(found, Refused)
    names_its_fields(found, document)
    assert re.match(message, found.text), found.text
