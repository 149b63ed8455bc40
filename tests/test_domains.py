"""GPUs of an NVLink domain that a job uses: checked, numbered, shown, and taken over from measured cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from refusals import refused_at
from small_clusters import cluster
from small_experts import with_experts
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.cases.to_scenario import message_chunk, segments
from stepsim.hardware.cluster import Cluster
from stepsim.sim.report.topology.facts import cluster_document
from stepsim.sim.report.topology.picture import topology_svg
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.faults.faults import Domains
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.machine import cluster_of, placement_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def on_racks(gpus: int = 256, gpu: str = "GB200-NVL72", **fields: Any) -> Scenario:
    document = with_experts(gpu=gpu, gpus=gpus, gpus_per_node=4, ep=8).to_document()
    document["cluster"] |= fields
    return scenario_from_document(document, "racks")


def built(**fields: Any) -> Cluster:
    return cluster_of(on_racks(**fields).cluster)


# The field -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [63, 2, 76, 144])
def test_a_domain_is_used_by_whole_hosts_and_has_no_more_than_there_are(wrong: int) -> None:
    with pytest.raises(ScenarioError) as refused:
        on_racks(gpus_per_domain=wrong)
    assert [problem.path for problem in refused.value.problems] == ["cluster.gpus_per_domain"]
    assert "from 4 to 72" in str(refused.value)


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "H100-PCIe-80GB"])
def test_where_nvlink_ends_at_the_host_the_host_says_it(gpu: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        on_racks(gpu=gpu, gpus_per_domain=4)
    assert [problem.path for problem in refused.value.problems] == ["cluster.gpus_per_domain"]
    assert "gpus_per_node" in str(refused.value)


def test_a_job_of_more_than_the_gpus_in_use_needs_a_network() -> None:
    def document(used: int) -> dict[str, Any]:
        found = on_racks(gpus=72).to_document()
        found["cluster"] = {"gpu": "GB200-NVL72", "gpus": 72, "gpus_per_domain": used}
        return found

    assert scenario_from_document(document(72), "one rack").cluster.interconnect == "nvlink-only"
    with refused_at("cluster.interconnect"):
        scenario_from_document(document(64), "two racks")


def test_the_document_of_a_scenario_keeps_it() -> None:
    run = on_racks(gpus_per_domain=64)
    assert scenario_from_document(run.to_document(), run.name) == run
    assert "gpus_per_domain" not in on_racks().to_document()["cluster"]


@pytest.mark.parametrize("fabric", [None, "fat-tree", {"kind": "rail-optimized", "oversubscription": 2.0}])
def test_racks_hold_what_is_in_use_whatever_the_fabric(fabric: object) -> None:
    found = built(gpus_per_domain=64, **({"fabric": fabric} if fabric else {}))
    assert (found.nvlink_domain, found.domains, found.gpus_of_whole_domain, found.nodes) == (64, 4, 72, 64)
    assert found.domain_of(63) == 0
    assert found.domain_of(64) == 1


def test_gpus_are_numbered_as_the_job_has_them() -> None:
    """GPU 64 is the first of the second rack; racks of failures are these racks."""
    run = on_racks(gpus_per_domain=64)
    machine = machine_of(run.cluster, run.parallelism, Domains())
    assert (machine.units("gpu"), machine.units("node"), machine.units("rack")) == (256, 64, 4)
    assert machine_of(on_racks().cluster, run.parallelism, Domains()).nodes_per_rack == 18
    assert machine_of(run.cluster, run.parallelism, Domains(nodes_per_rack=2)).units("rack") == 32
    slow = simulate(run, faults=["gpu_throttle gpu/64 slow_factor=2"])
    assert slow.step_time_s > simulate(run).step_time_s


def test_idle_gpus_cost_nothing() -> None:
    whole, most = (simulate(on_racks(gpus=64, gpus_per_domain=size)) for size in (72, 64))
    assert whole.step_time_s == most.step_time_s


# Shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "expected"), [(None, (4, 72, 40)), (64, (4, 64, 64)), (36, (8, 36, 4))])
def test_the_document_of_a_cluster_counts_domains(used: int | None, expected: tuple[int, ...]) -> None:
    run = on_racks(gpus_per_domain=used)
    found = cluster_document(cluster_of(run.cluster), placement_of(run.cluster))["nvlink_domains"]
    assert (found["count"], found["gpus_in_use"], found["gpus_in_use_of_last"]) == expected
    assert (found["gpus"], found["racks"]) == (72, True)


def test_domains_of_one_host_and_bridged_pairs_are_counted() -> None:
    for gpu, gpus, size in (("H100-SXM5-80GB", 32, 8), ("H100-PCIe-80GB", 32, 2)):
        found = cluster_document(cluster(gpu, gpus, 8), placement_of(on_racks().cluster))["nvlink_domains"]
        assert (found["count"], found["gpus_in_use"], found["racks"]) == (gpus // size, size, False)


@pytest.mark.parametrize(("used", "idle"), [(None, 32), (64, 32), (36, 8 * 36 + 32)])
def test_the_picture_shows_racks_and_idle_gpus_hollow(used: int | None, idle: int) -> None:
    found = built(gpus_per_domain=used)
    picture = topology_svg(found)
    racks = re.findall(r"rack (\d+): (\d+) of 72", picture)
    assert [int(rack) for rack, _ in racks] == list(range(found.domains))
    assert sum(int(count) for _, count in racks) == 256
    assert picture.count("idle GPU") == idle
    for number in (0, 255):
        assert f"GPU {number}, host {number // 4}" in picture
    assert "of 72 GPUs" in picture


def test_a_job_inside_one_rack_has_a_picture_and_hosts_alone_have_none() -> None:
    run = on_racks(gpus=64, interconnect="nvlink-only", fabric={"kind": "nvlink"})
    assert topology_svg(cluster_of(run.cluster)).count("idle GPU") == 8
    with pytest.raises(ValueError, match="no switches"):
        topology_svg(cluster_of(load_scenario("llama3-8b-h100").cluster))


def test_a_picture_does_not_grow_with_the_racks() -> None:
    sizes = [len(topology_svg(cluster("GB200-NVL72", gpus, 4, "ib-ndr400-x4"))) for gpus in (9_216, 36_864)]
    assert max(sizes) < 1.3 * min(sizes)


# Measured cases --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "framework", "expected"),
    [
        (256, "Megatron-Bridge / Megatron core 26.08", 64),
        (1024, "NeMo / Megatron core (MLPerf 5.1)", 64),
        (720, "Megatron-Bridge / Megatron core 26.08", 72),
        (64, "Megatron-Bridge / Megatron core 26.08", None),
        (256, "TorchTitan", None),
    ],
)
@pytest.mark.parametrize("ep", [1, 8])
def test_jobs_of_nvidias_launchers_have_segments(
    gpus: int, framework: str, expected: int | None, ep: int, tmp_path: Path
) -> None:
    """The most hosts of a rack that divide the job's: 16 of 64, 18 of 180; none inside one rack. So has
    whoever trains experts.
    """
    changes = {
        "hardware.gpu": "GB200-NVL72",
        "hardware.gpus": gpus,
        "hardware.gpus_per_node": 4,
        "hardware.interconnect": "ib-ndr400-x4",
        "software.framework": framework,
        "layout.ep": ep,
    }
    if ep > 1 and framework == "TorchTitan":
        expected = 64
    (case,) = read_cases(write_cases(tmp_path / "cases.yaml", [case_document(changes)]))
    assert segments(case).get("gpus_per_domain") == expected


@pytest.mark.parametrize(
    ("framework", "year", "pp", "cut"),
    [
        ("NeMo 25.04 (Megatron core)", 2025, 4, "2 MiB"),
        ("NeMo 25.04 (Megatron core)", 2025, 1, None),
        ("NeMo / Megatron core", 2024, 4, None),
        ("Megatron core", 2025, 4, None),
    ],
)
def test_nemos_recipes_cut_messages_where_there_are_stages(
    framework: str, year: int, pp: int, cut: str | None, tmp_path: Path
) -> None:
    changes = {"software.framework": framework, "software.year": year, "layout.pp": pp}
    (case,) = read_cases(write_cases(tmp_path / "cases.yaml", [case_document(changes)]))
    assert message_chunk(case).get("message_chunk") == cut


def test_hosts_that_are_domains_have_no_segments(tmp_path: Path) -> None:
    document = case_document({"software.framework": "NeMo / Megatron core (MLPerf 5.1)"})
    (case,) = read_cases(write_cases(tmp_path / "cases.yaml", [document]))
    assert segments(case) == {}
