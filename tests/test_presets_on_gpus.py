"""Every software preset on every GPU: a step, its memory and a search of layouts answer, or all three refuse.

What a GPU or a stack has not is refused at a field, and no other error may come of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

import pytest
from small_plans import FIX
from small_scenarios import scenario

from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.sim.brief.memory import memory_by_order
from stepsim.sim.plan.search.plan import candidates_of
from stepsim.sim.scenario.blocks import Precision
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.scenario.software import software_names
from stepsim.sim.scenario.software.kernels import AttentionKernel
from stepsim.sim.simulate import simulate

ONE_LAYOUT = {**FIX, "parallelism.tp": 2, "parallelism.pp": 2, "training.micro_batch": 2}
"""What leaves a few layouts of a job of eight GPUs."""


def job(gpu: str, software: dict[str, Any], precision: str) -> Scenario | None:
    """A job of eight GPUs; None where the scenario itself is refused."""
    fields = {"num_layers": 2, "tp": 2, "pp": 2, "dp": 2, "schedule": "1f1b", "microbatches": 2}
    try:
        return scenario(
            gpu=gpu,
            gpus_per_node=4,
            interconnect="ib-ndr400-x8",
            software=software,
            precision=precision,
            **fields,
        )
    except ScenarioError:
        return None


@pytest.mark.parametrize(
    ("preset", "gpu", "kernel"),
    [
        ("torchtitan-2025", "B200-SXM-180GB", "cudnn"),
        ("torchtitan-2025", "H100-SXM5-80GB", "fa2"),
        ("megatron-core-2025", "A100-SXM4-80GB", "fa2"),
        ("megatron-core-2025", "B200-SXM-180GB", "cudnn"),
    ],
)
def test_attention_is_the_kernel_that_the_framework_takes_on_that_gpu(
    preset: str, gpu: str, kernel: str
) -> None:
    run = job(gpu, {"preset": preset}, "bf16")
    assert run is not None
    assert run.software.kernels.attention == kernel
    named = job(gpu, {"preset": preset, "kernels": {"attention": "fa2"}}, "bf16")
    assert named is not None
    assert named.software.kernels.attention == "fa2"


def refused(ask: Callable[[], object]) -> str:
    """At which field something is refused; empty where it answers. All other errors are the test's."""
    try:
        ask()
    except NotSupported as refusal:
        return refusal.field
    return ""


def answers(one: Scenario) -> bool:
    """Whether a step, its memory and a search all answer; else all are refused at one field."""
    step = refused(lambda: simulate(one))
    assert refused(lambda: memory_by_order(one)) == step
    assert refused(lambda: candidates_of(one, ONE_LAYOUT, {}, lambda _: None)) == step
    return not step


KINDS = {get_gpu(name).architecture: name for name in gpu_names()}
"""A GPU of each architecture, whose kernels and types are those of its likes."""


def reach(gpu: str) -> str:
    """How far links between GPUs reach without a network."""
    joined = get_gpu(gpu).nvlink_domain
    return "nowhere" if joined < 2 else "a host" if joined <= 8 else "a rack"


def test_kinds_reach_as_far_as_any_gpu() -> None:
    """So that each preset meets each architecture and each reach, which is what software asks of a GPU."""
    assert {reach(name) for name in KINDS.values()} == {reach(name) for name in gpu_names()}


FEW = ("megatron-core-2025", "torchtitan-2025", "deepspeed-zero3-2021")
"""Of each way to cut parameters one. What else a preset says is the same on all GPUs of a kind."""


def some_answer(gpu: str, presets: Iterable[str]) -> None:
    """Each preset answers on that GPU or is refused, and not all are."""
    answered = [answers(one) for one in jobs_on(gpu, presets)]
    assert any(answered), "some software runs on it"


def jobs_on(gpu: str, presets: Iterable[str]) -> Iterator[Scenario]:
    """A job of each preset on that GPU, but for those that no scenario may have there."""
    precision = "bf16" if get_gpu(gpu).has_math("bf16") else "fp16"
    jobs = (job(gpu, {"preset": name}, precision) for name in presets)
    return (one for one in jobs if one is not None)


@pytest.mark.parametrize(("gpu", "turn"), [(name, n % len(FEW)) for n, name in enumerate(gpu_names())])
def test_every_gpu_answers_or_is_refused_at_a_field(gpu: str, turn: int) -> None:
    """The few take turns in being the first that is asked; the others are where it is refused."""
    jobs = jobs_on(gpu, FEW[turn:] + FEW[:turn])
    assert any(answers(one) for one in jobs), "some software runs on it"


@pytest.mark.slow
@pytest.mark.parametrize("gpu", KINDS.values())
def test_every_preset_answers_or_is_refused_at_a_field(gpu: str) -> None:
    some_answer(gpu, software_names())


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "turn"), [(name, n % 2) for n, name in enumerate(KINDS.values())])
def test_every_attention_in_every_precision_answers_or_is_refused_at_a_field(gpu: str, turn: int) -> None:
    """Each kernel meets every other precision, and on the GPU of the next kind the rest of them."""
    kinds = [
        {"preset": "megatron-core-2025", "kernels": {"attention": one}} for one in get_args(AttentionKernel)
    ]
    jobs = [
        job(gpu, software, precision)
        for k, software in enumerate(kinds)
        for precision in get_args(Precision)[(k + turn) % 2 :: 2]
    ]
    answered = [answers(one) for one in jobs if one is not None]
    assert any(answered), "some kernel runs on it"
