"""GPUs of the catalogue that differ from a measured one in links alone: its kernels, and their own links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepsim.hardware.calibrated.overlay import calibrated_profile, load_profile, profile_for
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.sim.evidence.interval_hardware import _known_host
from stepsim.sim.report.gpus import gpu_document, gpu_text
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.simulate import simulate

SAME = [name for name in gpu_names() if get_gpu(name).same_kernels]


def test_an_a800_is_an_a100_with_slower_nvlink() -> None:
    assert SAME == ["A800-SXM4-80GB", "A800-PCIe-80GB"]
    for name in SAME:
        gpu = get_gpu(name)
        assert gpu.nvlink_bytes_per_s == 200e9 == 2 / 3 * get_gpu(gpu.profile_of).nvlink_bytes_per_s
        assert gpu.nccl_nvlink_bytes_per_s == 160e9


@pytest.mark.parametrize("name", SAME)
def test_its_kernels_are_those_of_its_relative(name: str) -> None:
    gpu = get_gpu(name)
    relative = load_profile(gpu.profile_of)
    for profile in (load_profile(name), profile_for(gpu), calibrated_profile(name, ())):
        assert profile == replace(relative, gpu=name)
    assert f"those of {gpu.profile_of}" in gpu_text(name)
    assert gpu_document(name)["measured"] == gpu_document(gpu.profile_of)["measured"]


def test_the_clock_of_an_a800_follows_its_own_limit() -> None:
    capped = replace(get_gpu("A800-SXM4-80GB"), tdp_w=300.0)
    assert profile_for(capped).clock_fraction < load_profile(capped.profile_of).clock_fraction


def test_a_host_of_other_links_is_none_that_was_measured() -> None:
    for name in SAME:
        assert _known_host(get_gpu(get_gpu(name).profile_of))
        assert not _known_host(get_gpu(name))


def test_steps_of_an_a800_differ_where_nvlink_is_used() -> None:
    def step_s(gpu: str, tp: int) -> float:
        document = {
            "model": "llama2-7b",
            "cluster": {"gpu": gpu, "gpus": tp, "gpus_per_node": 8, "interconnect": "nvlink-only"},
            "parallelism": {"tp": tp},
            "training": {"global_batch": 1, "micro_batch": 1, "seq_length": 4096, "precision": "bf16"},
            "software": "megatron-core-2024",
        }
        return simulate(scenario_from_document(document, "a800")).step_time_s

    assert step_s("A800", 1) == step_s("A100-SXM4-80GB", 1)
    assert step_s("A800", 8) > 1.02 * step_s("A100-SXM4-80GB", 8)


def test_a_mark_in_a_source_is_explained_below() -> None:
    assert gpu_text("H100-SXM5-80GB").count("[ref]: the project's table") == 1
