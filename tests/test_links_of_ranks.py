"""A rank has no link that moves nothing: GPUs without NVLink have none, and not one that is down."""

from __future__ import annotations

import pytest
from small_scenarios import lowered, scenario

from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.lower import links_of
from stepsim.sim.program.check import program_problems
from stepsim.sim.simulate import build_cluster


@pytest.mark.parametrize("gpu", ["L40S", "RTX-4090", "A10", "H100-SXM5-80GB"])
@pytest.mark.parametrize("gpus", [4, 16])
def test_programs_of_any_gpu_are_right_and_their_layers_run_as_a_whole(gpu: str, gpus: int) -> None:
    """Blocks of a rank with a link that is down open, op by op; so did all of a GPU without NVLink."""
    job = scenario(
        gpu=gpu, gpus=gpus, gpus_per_node=8, interconnect="ib-ndr400-x8", dp=gpus, software="generic-megatron"
    )
    programs = lowered(job).programs
    assert all(rate > 0.0 for links in programs.links for rate in links.values())
    assert not program_problems(programs)
    assert replay(programs).events < 200


def test_ranks_have_a_share_of_nics_where_there_are_hosts_and_else_of_their_bus() -> None:
    """Eight GPUs share eight NICs of 400 Gb/s; in one host what is called a NIC is the way over PCIe."""
    one, two = (
        build_cluster(
            scenario(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, dp=gpus, interconnect="ib-ndr400-x8")
        )
        for gpus in (8, 16)
    )
    bus, nic = one.gpu.pcie_bytes_per_s, one.nic_bytes_per_s_per_gpu
    assert bus != nic
    assert links_of(one)["nic.out"] == links_of(one)["nic.in"] == bus
    assert links_of(two)["nic.out"] == links_of(two)["nic.in"] == nic
