"""Small steps with faults, and what they cost: for all tests of faults within a step."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.result.step_faults import StepFaults
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

TWIN: dict[str, Any] = {
    "tp": 2,
    "pp": 4,
    "dp": 4,
    "vpp": 2,
    "zero": 1,
    "schedule": "interleaved",
    "microbatches": 8,
    "sequence_parallel": True,
    "hidden_size": 4096,
    "ffn_hidden_size": 16384,
    "num_attention_heads": 32,
    "seq_length": 2048,
    "gpu": "H100-SXM5-80GB",
    "interconnect": "roce-400-x8",
    "software": "llama3-meta-2024",
}
"""Llama 3.1 405B on 16,384 GPUs in small: the same axes, schedule and sharding."""

LINKED: dict[str, Any] = {
    "hidden_size": 4096,
    "ffn_hidden_size": 16384,
    "num_attention_heads": 32,
    "num_layers": 4,
    "interconnect": "ib-ndr400-x8",
    "microbatches": 1,
    "tp": 8,
    "dp": 4,
}
"""One rank for each NIC, hosts joined by data parallelism alone, and nothing beside its all-reduce."""


def cost(run: Scenario, *lines: str, fold: bool = True) -> StepFaults:
    """What the faults in ``lines`` cost a step."""
    found = simulate(run, faults=lines, fold=fold).faults
    assert found is not None
    return found


def assert_same(a: StepFaults, b: StepFaults) -> None:
    """All figures but the number of classes."""
    assert a.step_time_s == pytest.approx(b.step_time_s, rel=1e-9)
    assert a.healthy_step_time_s == pytest.approx(b.healthy_step_time_s, rel=1e-9)
    close = 1e-7 * a.step_time_s
    for one, other in zip(a.relations, b.relations, strict=True):
        assert (one.name, one.ranks) == (other.name, other.ranks)
        for side, same in ((one.before, other.before), (one.after, other.after)):
            assert side.work_s == pytest.approx(same.work_s, rel=1e-7)
            assert side.waiting_s == pytest.approx(same.waiting_s, abs=close)
    for path, same_path in (
        (a.critical_path_before, b.critical_path_before),
        (a.critical_path_after, b.critical_path_after),
    ):
        assert sum(part.seconds for part in path) == pytest.approx(
            sum(p.seconds for p in same_path), rel=1e-9
        )


def with_faults(faults: Any) -> Scenario:
    """The small twin with these faults in its scenario."""
    document = scenario(**TWIN).to_document()
    return scenario_from_document({**document, "faults": faults}, "small")


REPLICAS: dict[str, Any] = {
    "dp": 64,
    "software": {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 0.0}},
}
"""Many replicas without a host's time: a GPU sets the pace."""


def seeded(seed: int, **fields: Any) -> Scenario:
    """A small job whose faults draw from this seed."""
    found = scenario(**fields).to_document()
    return scenario_from_document({**found, "faults": {"seed": seed}}, "small")


LINES = {
    "checkpoint_write": ("checkpoint_write job", "checkpoint_write job at=1us duration=1ms"),
    "gpu_throttle": ("gpu_throttle gpu/{gpu} slow_factor=1.3", "gpu_throttle node/{node} at=1us"),
    "host_jitter": ("host_jitter job cv=0.05", "host_jitter node/{node} cv=0.3"),
    "link_degraded": ("link_degraded nic/0@node/{node} bandwidth_factor=0.3", "link_degraded rail/0 at=2us"),
    "link_flap": ("link_flap nic/0@node/{node} at=1us duration=1ms",),
    "nic_down": ("nic_down nic/0@node/{node}", "nic_down nic/0@node/{node} bandwidth_factor=0.5"),
    "leaf_switch_down": ("leaf_switch_down leaf/0", "leaf_switch_down leaf/0 bandwidth_factor=0.5"),
    "spine_switch_down": ("spine_switch_down spine/0",),
}
"""Lines of every kind of fault that a step can have, with a ``gpu`` and a ``node`` to put in."""
