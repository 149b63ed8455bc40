"""Launches take longer on some hosts: what waits for its host slows by that, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.node import NODES, node_for
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.simulate import simulate

GRACE = NODES.get("Grace Hopper node")


def step(hidden: int, seq: int, gpu: str = "GH200-96GB", **host: Any) -> Result:
    """Four layers on one GPU, so narrow that it waits for its host, or so wide that it does not."""
    document = {
        "model": {
            "num_layers": 4,
            "hidden_size": hidden,
            "num_attention_heads": hidden // 128,
            "ffn_hidden_size": 4 * hidden,
            "vocab_size": 1024,
            "mlp": "swiglu",
        },
        "cluster": {"gpu": gpu, "gpus": 1, "gpus_per_node": 1, "interconnect": "nvlink-only"},
        "parallelism": {"tp": 1, "dp": 1},
        "training": {"seq_length": seq, "global_batch": 8, "micro_batch": 1, "precision": "bf16"},
        "software": {
            "preset": "megatron-core-2025",
            "host": {"step_fixed_s": 0.0} | host.pop("software", {}),
        },
    }
    if host:
        document["cluster"]["node"] = host  # type: ignore[index]
    return simulate(scenario_from_document(document, "launches"))


def test_a_step_that_waits_for_its_host_takes_the_factor() -> None:
    grace, x86 = step(256, 128), step(256, 128, launch_factor=1.0)
    assert grace.step_time_s / x86.step_time_s == pytest.approx(GRACE.launch_factor, rel=0.03)


def test_a_step_that_does_not_wait_is_as_long() -> None:
    grace, x86 = step(8192, 8192), step(8192, 8192, launch_factor=1.0)
    assert grace.step_time_s == pytest.approx(x86.step_time_s, rel=0.01)


def test_the_factor_and_the_launch_are_one_product() -> None:
    host_s = 29e-6
    twice = step(256, 128, launch_factor=2.0, software={"host_s_per_kernel": host_s})
    longer = step(256, 128, launch_factor=1.0, software={"host_s_per_kernel": 2 * host_s})
    assert twice.step_time_s == pytest.approx(longer.step_time_s, rel=1e-12)


def test_what_the_prediction_rests_on_says_so() -> None:
    def told(result: Result) -> list[str]:
        return [one.text for one in result.assumptions if one.text.startswith("launches take")]

    assert told(step(256, 128)) == ["launches take 1.44 times as long as on x86: a Grace for each GPU"]
    assert not told(step(256, 128, launch_factor=1.0))
    assert not told(step(256, 128, gpu="H100-SXM5-80GB"))


def test_hosts_of_grace_and_no_others_have_a_factor() -> None:
    slow = {name for name in gpu_names() if node_for(get_gpu(name)).launch_factor != 1.0}
    assert {name for name in gpu_names() if name.startswith(("GH", "GB"))} <= slow
    assert all("Grace" in node_for(get_gpu(name)).cpus for name in slow)
