"""Laws of the hardware catalogue: sane figures, those of the shared data, and help with unknown names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from small_clusters import NETWORKS

from stepsim.hardware.calibrated.overlay import load_profile, profile_names
from stepsim.hardware.catalogue import UnknownName
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import Fabric
from stepsim.hardware.gpus import get_gpu, gpu_names, same_kernels, same_pace
from stepsim.hardware.interconnect import (
    NCCL_MESSAGE_CHUNK_BYTES,
    get_interconnect,
    interconnect_names,
    networks_between_hosts,
    offered_interconnects,
)
from stepsim.hardware.node import node_for
from stepsim.kernels.power import sustained_clock


def test_catalogue_holds_every_key_of_the_case_schema(shared: Path) -> None:
    readme = (shared / "data/cases/README.md").read_text()
    gpus = re.search(r"^\| `hardware\.gpu` \| (.*) \|$", readme, re.MULTILINE)
    interconnects = re.search(r"^\| `hardware\.interconnect` \|.*?: (ib-.*) \|$", readme, re.MULTILINE)
    assert gpus
    assert interconnects
    wanted = set(gpus[1].split(", "))
    assert len(wanted) == 11
    measured_kernels = {"L40S", "RTX-PRO-6000-Server"}
    instinct = {"MI300X", "MI325X", "MI350X", "MI355X"}
    assert wanted | {"H100-PCIe-80GB"} | instinct | measured_kernels == set(profile_names())
    assert wanted < set(gpu_names())
    wanted = {key.split(" ")[0] for key in re.sub(r"\([^)]*\)", "", interconnects[1]).split(", ")}
    assert len(wanted) == 13
    assert wanted | {"tcpxo-200-x8", "gcp-rdma400-x8"} < set(interconnect_names())


def test_catalogue_has_the_figures_of_the_shared_table(shared: Path) -> None:
    table = yaml.safe_load((shared / "data/hardware.yaml").read_text())["gpus"]
    assert len(set(table) & set(gpu_names())) == 10
    for name in set(table) & set(gpu_names()):
        gpu, row = get_gpu(name), table[name]
        for dtype, peak in gpu.peak_flops.items():
            assert peak == pytest.approx(row["tflops"][dtype] * 1e12), (name, dtype)
        assert gpu.hbm_bytes == pytest.approx(row["hbm_gib_usable"] * 2**30)
        assert gpu.hbm_bytes_per_s == pytest.approx(row["hbm_gbps"] * 1e9)
        assert gpu.nvlink_bytes_per_s == pytest.approx((row.get("nvlink") or row["xgmi"])["gbps_dir"] * 1e9)
        assert gpu.sms == row.get("sms", row.get("cus"))
        assert gpu.tdp_w == row["tdp_w"]


def test_a_superchip_in_a_node_of_four_shares_its_limit_with_its_processor() -> None:
    """680 W for all (JUPITER's documentation), of which Grace takes 50 W at least and first (that of Alps)
    and memory and regulators 39 (jpwr's readings of a node), where an H100 has 700 W of its own."""
    superchip, alone = get_gpu("GH200-96GB"), get_gpu("H100-SXM5-80GB")
    module_wh, gpus_wh, processors_wh, seconds = 1.917, 1.015, 0.515, 9.03
    others_w = 3600 * (module_wh - gpus_wh - processors_wh) / seconds / 4
    assert superchip.tdp_w == pytest.approx(680 - 50 - others_w, abs=1)
    profile = load_profile("H100-SXM5-80GB")
    clocks = [sustained_clock(8e14, "bf16", gpu, profile) for gpu in (superchip, alone)]
    assert clocks[0] < clocks[1]


@pytest.mark.parametrize("name", sorted(set(gpu_names()) - set(profile_names())))
def test_figures_of_gpus_that_were_not_measured_are_sane(name: str) -> None:
    gpu = get_gpu(name)
    peaks = gpu.peak_flops
    by_width = [peaks[dtype] for dtype in ("fp32", "fp16", "fp8", "fp4") if dtype in peaks]
    assert by_width == sorted(set(by_width))
    assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
    assert gpu.l2_bytes_per_s > gpu.hbm_bytes_per_s > gpu.pcie_bytes_per_s > 0
    assert gpu.nvlink_bytes_per_s >= gpu.nccl_nvlink_bytes_per_s
    assert (gpu.nvlink_bytes_per_s > 0) or gpu.nvlink_domain == 1
    relative = get_gpu(gpu.profile_of)
    energy = {"energy"} if relative.joules_per_flop else set()
    assert set(gpu.sources) == {"peaks", "memory", "cache", "nvlink", "pcie", "power"} | energy
    assert gpu.idle_w / gpu.tdp_w == pytest.approx(relative.idle_w / relative.tdp_w, rel=0.02)
    if gpu.architecture == relative.architecture:
        assert gpu.joules_per_flop == relative.joules_per_flop
    assert node_for(gpu).max_gpus > 1
    assert get_gpu(gpu.profile_of).vendor == gpu.vendor
    assert gpu.same_kernels == (same_kernels(gpu, relative) and gpu.tdp_w == relative.tdp_w)


def test_half_the_tensor_rate_where_geforce_accumulates_in_fp32() -> None:
    """An RTX 4090 and an L40S are one chip: what training gets of their tensor cores differs by two."""
    rates = [
        get_gpu(name).peak_flops["bf16"] / (get_gpu(name).sms * get_gpu(name).boost_hz)
        for name in ("RTX-4090", "RTX-6000-Ada")
    ]
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.01)


@pytest.mark.parametrize("name", profile_names())
def test_gpu_figures_are_sane(name: str) -> None:
    gpu = get_gpu(name)
    peaks = gpu.peak_flops
    assert 0 < peaks["fp32"] < peaks.get("tf32", peaks["bf16"] - 1) < peaks["bf16"] == peaks["fp16"]
    assert ("tf32" in peaks) == (gpu.architecture != "cdna4")
    by_width = [peaks[dtype] for dtype in ("bf16", "fp8", "fp4") if dtype in peaks]
    assert by_width == sorted(set(by_width))
    assert ("fp8" in peaks) == (gpu.architecture != "ampere")
    assert ("fp4" in peaks) == gpu.architecture.startswith(("blackwell", "cdna4"))
    assert gpu.l2_bytes_per_s > gpu.hbm_bytes_per_s > gpu.nvlink_bytes_per_s
    assert gpu.sram_bytes_per_sm * gpu.sms < gpu.l2_bytes < gpu.hbm_bytes
    if gpu.nvlink_domain:
        assert gpu.nvlink_bytes_per_s > gpu.nccl_nvlink_bytes_per_s > gpu.pcie_bytes_per_s
    else:
        assert gpu.nvlink_bytes_per_s == gpu.nccl_nvlink_bytes_per_s == 0
    assert gpu.pcie_bytes_per_s > 0
    assert 1e9 < gpu.boost_hz < 2.7e9
    assert 30 * 2**30 < gpu.hbm_bytes < 300 * 2**30
    assert 300 <= gpu.tdp_w <= 1400
    measured = {"energy"} if gpu.joules_per_flop else set()
    assert set(gpu.sources) == {"peaks", "memory", "cache", "nvlink", "pcie", "power"} | measured
    assert 0 <= gpu.idle_w < 0.25 * gpu.tdp_w
    assert all(len(source) >= 5 for source in gpu.sources.values())
    assert not gpu.nvlink_domain or node_for(gpu).max_gpus * node_for(gpu).hosts_per_domain in (
        gpu.nvlink_domain,
        4 * gpu.nvlink_domain,
    )
    hash(gpu)


@pytest.mark.parametrize("name", NETWORKS)
def test_interconnect_agrees_with_its_name(name: str) -> None:
    net = get_interconnect(name)
    gigabits = net.link_bytes_per_s * net.links_per_host * 8 / 1e9
    if net.kind == "efa":
        assert gigabits == int(name.split("-")[1])
    else:
        rate, links = re.fullmatch(r"[a-z-]+(\d+)-x(\d+)", name).groups()  # type: ignore[union-attr]
        assert (net.links_per_host, gigabits) == (int(links), int(rate) * int(links))
    assert (0.7 if net.kind == "tcpx" else 0.8) < net.efficiency < 1
    assert net.host_bytes_per_s == pytest.approx(gigabits / 8 * 1e9 * net.efficiency)
    assert 0 < net.switch_latency_s < net.latency_s
    cut = {"message_chunk"} if net.message_chunk_bytes != NCCL_MESSAGE_CHUNK_BYTES else set()
    paced = {"ring_step"} if net.ring_step_s else set()
    told = {"nccl_latency"} if net.nccl_latency_s else set()
    set_by_jobs = {"nccl_algo"} if net.nccl_algo else set()
    fetched = {"eager", "rendezvous"} if net.rendezvous_s else set()
    fetched |= {"nics_as_one"} if net.nics_as_one else set()
    assert (
        set(net.sources)
        == {"rate", "latency", "efficiency", "switch"} | cut | paced | told | fetched | set_by_jobs
    )


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("ib-hdr200-x8", "azure_ndv4_a100_2n16g_allreduce_hdr"),
        ("ib-ndr400-x8", "h100_ib_8n64g_allreduce_mincta24_issue309"),
    ],
)
def test_efficiency_is_the_plateau_of_the_log(name: str, log: str, shared: Path) -> None:
    rows = (line.split() for line in (shared / f"data/nccl_logs/{log}.txt").read_text().splitlines())
    plateau = max(float(row[7]) for row in rows if len(row) > 7 and row[0].isdigit()) * 1e9
    assert get_interconnect(name).host_bytes_per_s == pytest.approx(plateau, rel=2e-3)


@pytest.mark.parametrize("name", interconnect_names())
def test_what_is_offered_for_several_hosts_is_taken_and_nothing_else(name: str) -> None:
    network = get_interconnect(name)

    def several_hosts() -> Cluster:
        return Cluster(
            gpu=get_gpu("H100-SXM5-80GB"),
            gpus=64,
            gpus_per_node=8,
            interconnect=network,
            fabric=Fabric(kind="fat-tree"),
        )

    if name in networks_between_hosts():
        assert several_hosts().interconnect is network
        assert name in offered_interconnects()
        return
    with pytest.raises(ValueError, match=f"interconnect {name!r} has no") as error:
        several_hosts()
    assert str(error.value).partition("; known: ")[2].split(", ") == [*networks_between_hosts()]


@pytest.mark.parametrize(("lookup", "typed", "meant"), [
    (get_gpu, "h10-sxm-80gb", "H100-SXM5-80GB"),
    (get_gpu, "GB20", "GB200-NVL72"),
    (get_interconnect, "ib-ndr-x8", "ib-ndr400-x8"),
])  # fmt: skip
def test_unknown_name_shows_the_nearest_and_all(lookup, typed: str, meant: str) -> None:  # type: ignore[no-untyped-def]
    known = gpu_names() if lookup is get_gpu else offered_interconnects()
    with pytest.raises(UnknownName) as error:
        lookup(typed)
    assert (error.value.name, error.value.nearest, error.value.known) == (typed, meant, known)
    assert all(name in str(error.value) for name in (typed, f"mean {meant}?", *known))


_LINKS = {"nvlink_bytes_per_s", "nccl_nvlink_bytes_per_s", "nvlink_domain", "nvls", "pcie_bytes_per_s"}
_NAMES = {"name", "same_kernels", "called", "short_name", "sources", "profile_of", "host", "announced"}


@pytest.mark.parametrize("name", gpu_names())
def test_gpus_of_one_pace_differ_in_links_and_size_of_memory_alone(name: str) -> None:
    first = same_pace(name)
    assert same_pace(first) == first
    one, other = asdict(get_gpu(name)), asdict(get_gpu(first))
    unlike = {field for field in one if one[field] != other[field]}
    assert unlike <= _LINKS | _NAMES | {"hbm_bytes"}
    assert same_pace("a GPU of one's own") == "a GPU of one's own"


@pytest.mark.parametrize("name", profile_names())
def test_a_clock_that_is_carried_whole_is_known_as_well_as_where_it_was_fitted(name: str) -> None:
    """A residual that is copied does not outlive the fit that it is from."""
    profile = load_profile(name)
    source, _, how = profile.step_time_fit.removeprefix("fitted on ").partition(" and carried: ")
    if how == "the same chip at the same power":
        fitted = load_profile(source)
        assert profile.clock_fraction == fitted.clock_fraction
        assert profile.step_time_residual == fitted.step_time_residual


def twice(node: yaml.Node | None) -> Iterator[str]:
    """Keys that a mapping of a YAML document has twice, of which PyYAML silently keeps the last."""
    if isinstance(node, yaml.MappingNode):
        counts = Counter(str(key.value) for key, _ in node.value)
        yield from (key for key, count in counts.items() if count > 1)
        for _, value in node.value:
            yield from twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from twice(value)


def test_no_file_that_ships_says_a_key_twice(root: Path) -> None:
    """Two branches that add one network merge without a conflict."""
    assert list(twice(yaml.compose("a: 1\nb: [{c: 1, c: 2}]"))) == ["c"]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for folder in ("hardware", "kernels", "schedules", "sim", "calibration", "scenarios"):
        for path in (root / folder).rglob("*.yaml"):
            keys = list(twice(yaml.compose(path.read_text(encoding="utf-8"), Loader=loader)))
            if keys:
                found[path.name] = keys
    assert not found
