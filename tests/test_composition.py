"""Everything composes: whatever is legal runs, conserves, keeps its bounds, and lets go of all it took.

What is not legal, or not modelled, is refused by an error that names its field: nothing else may be raised.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from compositions import build, combinations
from hypothesis import HealthCheck, assume, given, settings
from small_scenarios import every_op

from stepsim.sim.model.sizes import model_flops
from stepsim.sim.program.program import Collective, Compute, Exchange, Op, Programs
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import build_cluster, simulate
from stepsim.sim.step.lower import Lowered, lower

law = settings(
    max_examples=80, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None
)


class Refused(NamedTuple):
    """The fields that a refusal names, and what it says."""

    paths: list[str]
    text: str


def legal(document: dict[str, Any]) -> tuple[Scenario, Lowered]:
    """The scenario and its programs; skips what is refused, which must name a field of the document."""
    found = composed(document)
    if not isinstance(found, Refused):
        return found
    assert found.paths
    assert all(known(path, document) for path in found.paths), found.text
    assume(False)
    raise AssertionError("not reached")


def composed(document: dict[str, Any]) -> tuple[Scenario, Lowered] | Refused:
    try:
        run = build(document)
        return run, lower(run, build_cluster(run))
    except ScenarioError as refusal:
        return Refused([problem.path for problem in refusal.problems], str(refusal))
    except NotSupported as refusal:
        return Refused([str(refusal).split(":")[0]], str(refusal))


def known(path: str, document: dict[str, Any]) -> bool:
    """Whether ``path`` begins with a block of a scenario."""
    return path.split(".")[0] in document


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


def compute_s(ops: list[tuple[Op, int]]) -> float:
    return sum(count * op.work.seconds for op, count in ops if isinstance(op.work, Compute))


def matrix_flops(programs: Programs) -> float:
    """Of all classes together, one rank of each."""
    return sum(
        count * op.work.flops
        for program in programs.classes
        for op, count in every_op(program)
        if isinstance(op.work, Compute) and op.work.kind in ("gemm", "attention")
    )


@law
@given(combinations())
def test_what_is_legal_runs_within_its_bounds(document: dict[str, Any]) -> None:
    """No faster than the busiest rank's kernels alone, no slower than all ops of all classes in a row."""
    run, step = legal(document)
    result = simulate(run)
    ops = [list(every_op(program)) for program in step.programs.classes]
    assert max(map(compute_s, ops)) <= result.step_time_s * (1 + 1e-9)
    assert result.step_time_s <= sum(map(serial_s, ops)) * (1 + 1e-9)
    assert 0 < result.mfu < 1
    assert math.isfinite(result.step_time_s)


@law
@given(combinations())
def test_what_is_taken_is_let_go(document: dict[str, Any]) -> None:
    """But for gradients, which the optimizer takes."""
    run, _ = legal(document)
    for stage in simulate(run).memory:
        assert stage.peak_bytes == pytest.approx(sum(stage.terms.values()))
        slack = 1e-6 * stage.peak_bytes
        assert -slack <= stage.timeline[-1][1] <= stage.terms["gradients"] + slack
        assert all(value >= -1e-6 * stage.peak_bytes for value in stage.terms.values())


@law
@given(combinations())
def test_ranks_together_compute_the_model(document: dict[str, Any]) -> None:
    """At least the model's products with half the scores, and no more than all of it runs thrice again."""
    run, step = legal(document)
    classes = step.programs.classes
    each = run.world_size / len(classes)
    done = matrix_flops(step.programs) * each
    training = run.training
    needed = model_flops(run.model, training.global_batch, training.seq_length, causal=True)
    assert needed * (1 - 1e-9) <= done
    whole = model_flops(run.model, training.global_batch, training.seq_length)
    assert done <= 2.2 * whole


@law
@given(combinations())
def test_folded_is_unfolded(document: dict[str, Any]) -> None:
    run, _ = legal(document)
    one, each = simulate(run), simulate(run, fold=False)
    assert one.step_time_s == pytest.approx(each.step_time_s, rel=1e-9)


EVERYTHING = {
    "zero-3, pipeline, experts, accumulation": {"zero": 3, "pp": 2, "ep": 2, "dp": 2},
    "hybrid shards": {"zero": 3, "fsdp_shard_size": 2, "dp": 4, "model": "dense"},
    "context and experts": {"cp": 2, "tp": 2, "sequence_parallel": True, "ep": 4, "dp": 2, "zero": 1},
    "shared experts over tp": {"tp": 2, "sequence_parallel": True, "etp": 2, "ep": 2, "dp": 2, "zero": 1},
    "eight bits, recomputed": {"precision": "fp8", "recompute": "full", "zero": 2, "dp": 2, "model": "dense"},
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_must_compose_does(name: str) -> None:
    """Guards the laws: they must not be about a handful of simple scenarios."""
    fields = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, **EVERYTHING[name]}
    training = {
        "micro_batch": 1,
        "seq_length": 256,
        "precision": fields.pop("precision", "bf16"),
        "recompute": fields.pop("recompute", "none"),
        "global_batch": 8 * fields["dp"],
    }
    model = {
        "num_layers": 8,
        "hidden_size": 256,
        "num_attention_heads": 8,
        "ffn_hidden_size": 512,
        "vocab_size": 512,
        "mlp": "swiglu",
    }
    if fields.pop("model", "experts") == "experts":
        model["moe"] = {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 128}
    gpus = fields["tp"] * fields["cp"] * fields["pp"] * fields["dp"]
    run = build(
        {
            "model": model,
            "cluster": {"gpu": "H100-SXM5-80GB", "gpus": gpus, "interconnect": "ib-ndr400-x8"},
            "parallelism": fields,
            "training": training,
            "schedule": "1f1b" if fields["pp"] > 1 else "none",
            "software": "megatron-core-2025",
        }
    )
    one, each = simulate(run), simulate(run, fold=False)
    assert one.step_time_s == pytest.approx(each.step_time_s, rel=1e-9)
