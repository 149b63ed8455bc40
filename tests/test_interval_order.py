"""Intervals do not depend on the order in which kernels and collectives were priced."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from stepsim.sim.evidence.interval import doubt_of
from stepsim.sim.lowering.lower import lower
from stepsim.sim.result.step import PathSegment
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster


def test_what_an_interval_widens_by_does_not_depend_on_the_order_of_pricing() -> None:
    """That order may follow the seed of Python's hashes; shares and distances are equal to the last bit."""
    changes = [
        "training.seq_length=262144",
        "cluster.gpus=65536",
        "training.global_batch=8192",
        "software.kernels.attention_assumed=true",
    ]
    scenario = load_scenario("llama3.1-405b-16k", changes)
    plan = lower(scenario, build_cluster(scenario)).plan
    path = [PathSegment(name=name, seconds=0.2) for name in ("GEMM", "attention", "dp", "tp")]
    drawn = Random(0)

    def causes() -> object:
        kernels, asked = [*plan.kernels.items()], [*plan.communication.asked.items()]
        drawn.shuffle(kernels)
        drawn.shuffle(asked)
        other = replace(plan, kernels=dict(kernels))
        other.communication.asked.clear()
        other.communication.asked.update(asked)
        return doubt_of(1.0, path, other, microbatches=1).causes

    found = causes()
    assert {"beyond"} <= {part.kind for part in found}  # type: ignore[attr-defined]
    assert all(causes() == found for _ in range(20))
