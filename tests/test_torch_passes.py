"""Passes over memory that torch's own trainers make and fused ones do not: bytes read and written.

Of updates, of gradients that FSDP1 and DDP reduce and that a step's one backward makes, and of metrics.
"""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import every_op, lowered, parameters_of_ranks, scenario

from stepsim.calibration.cases.framework_text import fields_said
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software


def job(preset: str = "generic-fsdp", **fields: Any) -> Scenario:
    return scenario(**{"software": preset, "dp": 4, "zero": 3, "tied_embeddings": False} | fields)


def moved_bytes(run: Scenario, name: str) -> float:
    """Bytes that the first rank's kernels of that name move in a step."""
    (program,) = lowered(run).programs.classes
    return sum(
        count * op.work.bytes
        for op, count in every_op(program)
        if op.name == name and isinstance(op.work, Compute)
    )


@pytest.mark.parametrize(
    ("preset", "passes"), [("generic-fsdp", 3), ("torchtitan-2024", 3), ("torchtitan-2025", 1)]
)
def test_torch_updates_operation_by_operation_unless_told(preset: str, passes: int) -> None:
    """28 bytes of an element in one pass: gradient and weight read, weight written, moments both."""
    run = job(preset)
    (held,) = parameters_of_ranks(run)
    assert moved_bytes(run, "Adam") == pytest.approx(passes * 28 * held / 4, rel=1e-9)
    assert get_software(preset).kernels.copies_in_update == (passes > 1)  # its roots are there, too


def test_an_update_in_a_loop_passes_as_often_and_makes_no_copies() -> None:
    run = job().with_({"software.kernels.optimizer_implementation": "for-loop"})
    assert moved_bytes(run, "Adam") == moved_bytes(job(), "Adam") > 0.0
    assert not run.software.kernels.copies_in_update
    composer = get_software("llm-foundry-2023")  # composer's DecoupledAdamW loops over parameters
    assert composer.kernels.optimizer_implementation == "for-loop"


def test_a_framework_that_says_so_updates_in_one_pass() -> None:
    assert fields_said("software", "PyTorch (DDP; fused update)")["optimizer_implementation"] == "fused"


@pytest.mark.parametrize(
    ("implementation", "reduced", "each"),
    [
        ("fsdp2", 2, 2 + 2),
        ("fsdp2", 4, 2 + 4),
        ("fsdp1", 2, 2 + 2 + 2 + 2),  # joined, divided
        ("fsdp1", 4, 2 + 2 + 2 + 4 + 4 + 4),  # joined, cast, divided
    ],
)
def test_gradients_of_a_flat_tensor_are_joined_cast_and_divided(
    implementation: str, reduced: int, each: int
) -> None:
    run = job().with_(
        {"software.sharding.implementation": implementation, "software.gradients.reduce_grad_bytes": reduced}
    )
    (held,) = parameters_of_ranks(run)
    assert moved_bytes(run, "gradient copy-in") == pytest.approx(each * held * run.num_microbatches, rel=1e-9)


def test_gradients_that_come_with_the_backward_are_neither_added_nor_cleared() -> None:
    alone = job(dp=1, zero=0, microbatches=1)
    assert moved_bytes(alone, "accumulate gradient") == moved_bytes(alone, "zero gradients") == 0.0
    assert moved_bytes(alone, "gradient cast") > 0.0  # to FP32
    narrow = alone.with_({"software.gradients.master_weights": False})
    assert moved_bytes(narrow, "gradient cast") == 0.0
    lasting = alone.with_({"software.gradients.persistent_gradients": True})
    several = job(dp=1, zero=0, microbatches=2)
    for run in (lasting, several):
        assert moved_bytes(run, "accumulate gradient") > 0.0
    assert moved_bytes(lasting, "zero gradients") > moved_bytes(several, "zero gradients") == 0.0


def test_ddp_copies_gradients_into_buckets_and_back() -> None:
    """The way in divides them. Where gradients are views nothing is copied back, nor of one rank."""
    run = job(zero=0, microbatches=1)
    (held,) = parameters_of_ranks(run)
    for name in ("scale gradients", "copies of gradients"):
        assert moved_bytes(run, name) == pytest.approx(2 * 4 * held, rel=1e-9)
    views = run.with_({"software.gradients.reducer_copy": False})
    assert moved_bytes(views, "scale gradients") > moved_bytes(views, "copies of gradients") == 0.0
    assert moved_bytes(job(dp=1, zero=0), "copies of gradients") == 0.0


@pytest.mark.parametrize(("wide", "width"), [(True, 4), (False, 2)])
def test_metrics_pass_over_the_logits_of_each_microbatch(wide: bool, width: int) -> None:
    run = job(zero=0, microbatches=2).with_(
        {"software.kernels.metric_passes": 9, "software.kernels.logits_fp32": wide}
    )
    model, training = run.model, run.training
    logits = training.micro_batch * training.seq_length * model.embedding_rows
    assert moved_bytes(run, "metrics") == 2 * 9 * width * logits
    assert moved_bytes(run.with_({"software.kernels.metric_passes": 0}), "metrics") == 0.0


def test_internevo_is_told_as_its_code_runs() -> None:
    said = fields_said("software", "InternEvo")
    assert (said["optimizer_implementation"], said["cross_entropy"]) == ("for-loop", "fused")
    assert said["metric_passes"] == 1 + 3 + 2 + 2 + 1
