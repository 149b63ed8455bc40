"""A checkpoint that is written within a step: closed forms of its stall and of its traffic, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import scenario
from struck_steps import LINKED, TWIN, cost

from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.degradation.checkpoint_write import COPY_SHARE, checkpoint_write
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.sizes import checkpoint_bytes
from stepsim.sim.reliability.planning.step_time import SimulatedStep
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster

NO_HOST: dict[str, Any] = {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 0.0}}
ALONE: dict[str, Any] = {"hidden_size": 2048, "ffn_hidden_size": 8192, "software": NO_HOST}


def writing(run: Scenario, **storage: Any) -> Scenario:
    block = {"storage": {"every": "30 min", "mode": "async", **storage}}
    return scenario_from_document({**run.to_document(), "checkpoint": block}, "small")


@settings(max_examples=6, deadline=None)
@given(at_s=st.floats(0.0, 0.02))
def test_one_gpu_stands_still_for_its_copy(at_s: float) -> None:
    """14 bytes a parameter at 0.8 of PCIe, wherever in the step; no network has a part in it."""
    run = scenario(**ALONE)
    stall_s = checkpoint_bytes(run) / (COPY_SHARE * get_gpu("A100-SXM4-80GB").pcie_bytes_per_s)
    found = cost(run, f"checkpoint_write job at={at_s!r}s")
    assert found.step_time_s - found.healthy_step_time_s == pytest.approx(stall_s, rel=1e-3)


def test_an_all_reduce_beside_the_write_has_what_is_left() -> None:
    """Two hosts that send W bytes in t seconds to storage take W / (2 t h) of NICs of h bytes/s. A ring of n
    GPUs sends 2 (n - 1) / n bytes for each of gradients from host to host, at its pace, or at what is left.
    """
    run = scenario(**ALONE, dp=16, gpus_per_node=8)
    host = get_interconnect("ib-hdr200-x8").host_bytes_per_s
    share = 0.25
    persist_s = checkpoint_bytes(run) / 2 / host / share
    slow = writing(run, persist=f"{persist_s!r} s", snapshot_stall="0 s", persist_slow_factor="from_bytes")
    plan = lower(run, build_cluster(run)).plan
    grads_bytes = 4 * plan.held_parameters(0)
    ring = plan.communication.collective("all_reduce", grads_bytes, plan.groups["dp"])
    found = cost(slow, "checkpoint_write job duration=10s")
    late_s = 2 * 15 / 16 * grads_bytes / (host * (1 - share)) - (ring.solo_s - ring.latency_s)
    assert found.step_time_s - found.healthy_step_time_s == pytest.approx(late_s, rel=1e-3)
    own = writing(run, persist=f"{persist_s!r} s", snapshot_stall="0 s")  # storage has a network of its own
    assert cost(own, "checkpoint_write job duration=10s").slowdown == 1.0


def test_weeks_and_steps_say_the_same_of_a_write_that_lasts() -> None:
    run = writing(scenario(**LINKED), persist="2 s", snapshot_stall="0 s", bytes="800 GB",
                  persist_slow_factor="from_bytes")  # fmt: skip
    step = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    share = 800e9 / 4 / 2 / get_interconnect("ib-ndr400-x8").host_bytes_per_s
    assert checkpoint_write(run).left_after == pytest.approx(1 - share)
    slowdown = cost(run, "checkpoint_write job").slowdown
    assert slowdown == pytest.approx(step.during_writes(share), rel=1e-9)
    assert slowdown > 1.05


def test_the_copy_leaves_half_of_pcie_to_messages() -> None:
    """Both leave the GPU by its PCIe lanes. An H100's 400 Gb/s NIC asks for less than PCIe has, and for more
    than half of it.
    """
    run = scenario(**{**LINKED, "gpu": "H100-SXM5-80GB"})
    write = checkpoint_write(run)
    half = get_gpu("H100-SXM5-80GB").pcie_bytes_per_s / 2
    assert write.left_in_stall == pytest.approx(
        half / (get_interconnect("ib-ndr400-x8").host_bytes_per_s / 8)
    )
    assert 0.5 < write.left_in_stall < 1.0
    assert checkpoint_write(scenario(**LINKED, gpus_per_node=4)).left_in_stall < write.left_in_stall


def test_a_blocking_write_is_a_pause() -> None:
    run = scenario(**ALONE)
    block = {"storage": {"every": "30 min", "stall": "20 ms"}}
    found = scenario_from_document({**run.to_document(), "checkpoint": block}, "small")
    costs = cost(found, "checkpoint_write job at=1ms")
    assert costs.step_time_s - costs.healthy_step_time_s == pytest.approx(0.02, rel=1e-3)


def test_a_pipeline_stands_still_at_once_and_folds() -> None:
    """All ranks copy at the same time, so that a step is late by one copy, less what messages took of it."""
    run = writing(scenario(**TWIN), snapshot_stall="3 ms", persist="1 s")
    found = cost(run, "checkpoint_write job at=2ms")
    assert 0.9 * 3e-3 < found.step_time_s - found.healthy_step_time_s <= 3e-3 * (1 + 1e-6)
    assert found.classes_after == found.classes_before
    assert cost(run, "checkpoint_write job at=2ms", fold=False).step_time_s == pytest.approx(
        found.step_time_s
    )


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        ({"persist": "1 s", "bytes": "800 TB", "persist_slow_factor": "from_bytes"}, "network"),
        ({"persist_slow_factor": 1.2}, "persist_slow_factor"),
    ],
)
def test_what_a_step_cannot_say_of_a_write(storage: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        cost(writing(scenario(**LINKED), **storage), "checkpoint_write job")
