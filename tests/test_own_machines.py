"""Machines from a datasheet alone: they run, say what they rest on, and are less sure."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stepsim
from stepsim import scenarios
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.hardware.carried import spread
from stepsim.hardware.deviations import shipped_deviations
from stepsim.hardware.gpus import NotModelled, get_gpu, gpu_names
from stepsim.hardware.own_gpu import OwnGpu, gpu_from
from stepsim.hardware.prices import PRICES, list_price, prices_of
from stepsim.sim.scenario.machine import gpu_of, interconnect_of, node_of

BASE: dict[str, Any] = {
    "model": "llama3-8b",
    "parallelism": {"tp": 4, "zero": 3},
    "training": {
        "global_batch": 64,
        "micro_batch": 1,
        "seq_length": 2048,
        "precision": "bf16",
        "recompute": "full",
    },
    "software": "torchtitan-2025",
}
B200 = get_gpu("B200")
SHIPPED = Path(str(files(scenarios))) / "llama3-8b-h100.yaml"
MACHINES: dict[str, dict[str, Any]] = {
    "RTX 4090 host of 8": {
        "gpus": 8,
        "gpu": {
            "name": "my-4090",
            "architecture": "ada",
            "bf16_flops": "165.2 TFLOP/s",
            "memory": "24 GB",
            "memory_bandwidth": "1008 GB/s",
            "nvlink_domain": 1,
            "pcie": "31.5 GB/s",
            "peer_access": False,
        },
    },
    "host of 4 L40S": {
        "gpus": 4,
        "gpus_per_node": 4,
        "gpu": {
            "name": "my-l40s",
            "architecture": "ada",
            "bf16_flops": "362 TFLOP/s",
            "memory": "48 GB",
            "memory_bandwidth": "864 GB/s",
        },
        "node": {"gpus": 4, "links": "none"},
    },
    "16 MI325X": {
        "gpus": 16,
        "gpu": {
            "name": "my-mi325x",
            "extends": "MI300X",
            "memory": "256 GB",
            "memory_bandwidth": "6 TB/s",
            "power": "1 kW",
        },
        "interconnect": {"rate": "400 Gb/s", "nics_per_node": 8},
    },
    "64 GH200 on Slingshot": {
        "gpus": 64,
        "gpus_per_node": 4,
        "gpu": {
            "name": "my-gh200",
            "extends": "H100",
            "memory": "96 GB",
            "memory_bandwidth": "4 TB/s",
            "nvlink_domain": 4,
        },
        "interconnect": {"kind": "slingshot", "rate": "200 Gb/s", "nics_per_node": 4},
        "node": {"gpus": 4, "links": "mesh"},
    },
    "twice B200": {
        "gpus": 16,
        "gpu": {
            "name": "C400",
            "extends": "B200",
            "bf16_flops": "4.5 PFLOP/s",
            "memory": "360 GB",
            "memory_bandwidth": "16 TB/s",
            "nvlink": "1.8 TB/s",
        },
        "interconnect": {"extends": "ib-xdr800-x8", "scale": 2},
    },
}


def scenario(cluster: dict[str, Any], **changes: Any) -> stepsim.Scenario:
    software = {"preset": "torchtitan-2025", "attention": "fa2"}
    return stepsim.load_scenario(BASE | {"cluster": cluster, "software": software} | changes)


def width(result: Any) -> float:
    return float(result.interval.high_s / result.interval.low_s)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_a_datasheet_is_enough(name: str) -> None:
    """It runs, at less than its peak, and is less sure than the nearest GPU that was measured, where neither
    waits for its host: that is another doubt, and greater on the faster GPU."""
    compiled = {"preset": "torchtitan-2025", "attention": "fa2", "torch_compile": True}
    mine = stepsim.simulate(scenario(MACHINES[name], software=compiled))
    assert 0.0 < mine.mfu < 1.0
    assert any(not one.in_range and MACHINES[name]["gpu"]["name"] in one.text for one in mine.assumptions)
    network = "ib-ndr400-x8" if MACHINES[name]["gpus"] > 8 else "nvlink-only"
    gpus = {"gpu": "H100", "gpus": MACHINES[name]["gpus"], "interconnect": network}
    assert width(mine) > width(stepsim.simulate(scenario(gpus, software=compiled)))


def test_twice_the_figures_are_twice_the_rates() -> None:
    """Every peak doubles with the 16-bit one, and the kernels of B200 run so much faster."""
    twice = gpu_of(scenario(MACHINES["twice B200"]).cluster)
    assert twice.peak_flops == {dtype: 2 * peak for dtype, peak in B200.peak_flops.items()}
    assert twice.nccl_nvlink_bytes_per_s == pytest.approx(2 * B200.nccl_nvlink_bytes_per_s)
    assert twice.profile_of == B200.name
    network = interconnect_of(scenario(MACHINES["twice B200"]).cluster)
    assert network.link_bytes_per_s == 200e9


def test_a_clock_or_fewer_multiprocessors_lower_the_peaks() -> None:
    """A lower clock alone is what ``nvidia-smi -lgc`` sets; a stated peak stays what it is."""
    relative = get_gpu("H100")
    half = gpu_from(OwnGpu(extends="H100", clock=relative.boost_hz / 2))
    assert half.peak_flops == {dtype: peak / 2 for dtype, peak in relative.peak_flops.items()}
    cut = gpu_from(OwnGpu(extends="H100", sms=relative.sms // 3, bf16_flops=1e14))
    assert cut.peak_flops["bf16"] == 1e14
    compiled = {"preset": "torchtitan-2025", "kernels": {"attention": "fa2", "torch_compile": True}}
    slow, fast = (
        stepsim.simulate(scenario({"gpu": {"extends": "H100", "clock": clock}, "gpus": 8}, software=compiled))
        for clock in ("1 GHz", f"{relative.boost_hz} Hz")
    )
    assert 1.0 < slow.step_time_s / fast.step_time_s < relative.boost_hz / 1e9


def test_what_is_left_out_is_the_relatives_and_said() -> None:
    own = OwnGpu(architecture="ada", bf16_flops=170e12, memory_bandwidth=1e12)
    gpu = gpu_from(own)
    relative = get_gpu(gpu.profile_of)
    assert relative.architecture == "ada"
    assert gpu.hbm_bytes == relative.hbm_bytes
    carried = {one.field: one for one in gpu.carried}
    assert {"memory", "power", "pcie"} <= set(carried)
    assert not {"bf16_flops", "memory_bandwidth"} & set(carried)
    kin = [get_gpu(name) for name in gpu_names() if get_gpu(name).architecture == "ada"]
    sizes = [one.hbm_bytes for one in kin]
    assert carried["memory"].sigma == spread(sizes, sizes)
    assert {one.sigma for one in gpu_from(OwnGpu(extends="L40S")).carried} == {0.0}


@pytest.mark.slow
def test_a_figure_that_is_left_out_widens_the_interval() -> None:
    machine = MACHINES["host of 4 L40S"]
    less = {key: value for key, value in machine["gpu"].items() if key != "bf16_flops"}
    stated, guessed = (stepsim.simulate(scenario(machine | {"gpu": gpu})) for gpu in (machine["gpu"], less))
    assert width(guessed) > width(stated)


def test_one_of_the_catalogue_described_is_as_fast_and_as_sure_as_itself() -> None:
    named = stepsim.simulate(scenario({"gpu": "H100", "gpus": 8}))
    described = stepsim.simulate(scenario({"gpu": {"extends": "H100"}, "gpus": 8}))
    assert described.step_time_s == named.step_time_s
    assert width(described) == width(named)


def test_a_file_beside_the_scenario_is_the_same_as_its_text(tmp_path: Path) -> None:
    machine = MACHINES["64 GH200 on Slingshot"]
    parts = ("gpu", "interconnect", "node")
    (tmp_path / "machine.yaml").write_text(json.dumps({part: machine[part] for part in parts}))
    cluster = machine | dict.fromkeys(parts, "machine.yaml")
    software = {"preset": "torchtitan-2025", "attention": "fa2"}
    (tmp_path / "job.yaml").write_text(json.dumps(BASE | {"cluster": cluster, "software": software}))
    read = stepsim.load_scenario(tmp_path / "job.yaml")
    assert read.cluster == scenario(machine).cluster
    assert stepsim.load_scenario(read.to_document()).cluster == read.cluster


def test_a_change_of_one_figure_keeps_the_rest_of_what_is_named() -> None:
    named = stepsim.load_scenario("llama3.1-405b-16k")
    half = stepsim.load_scenario("llama3.1-405b-16k", {"cluster.interconnect.scale": 0.5})
    before, after = interconnect_of(named.cluster), interconnect_of(half.cluster)
    assert after.link_bytes_per_s == before.link_bytes_per_s / 2
    assert (after.kind, after.links_per_host) == (before.kind, before.links_per_host)


def test_hosts_join_their_gpus_as_described() -> None:
    for links, domain, switches in (("none", 1, 0), ("pairs", 2, 0), ("mesh", 8, 0), ("switch", 8, 4)):
        cluster = scenario({"gpu": "H100", "gpus": 8, "node": {"links": links}}).cluster
        assert (gpu_of(cluster).nvlink_domain, node_of(cluster).nvswitches) == (domain, switches)


@pytest.mark.slow
def test_without_peer_access_messages_take_longer() -> None:
    times = [
        stepsim.simulate(
            scenario({"gpu": "L40S", "gpus": 4, "gpus_per_node": 4, "node": {"peer_access": peers}})
        ).step_time_s
        for peers in (True, False)
    ]
    assert times[0] < times[1]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"gpu": {"name": "x"}}, "cluster.gpu"),
        ({"gpu": {"extends": "H101"}}, "cluster.gpu.extends"),
        ({"gpu": {"extends": "L40S", "bf16_flops": 181}}, "cluster.gpu.bf16_flops"),
        ({"gpu": {"extends": "L40S", "bf16_flops": "181 GB"}}, "cluster.gpu.bf16_flops"),
        ({"gpu": {"extends": "L40S", "name": "L40S"}}, "cluster.gpu.name"),
        ({"gpu": {"extends": "L40S", "colour": "red"}}, "cluster.gpu.colour"),
        ({"gpu": "nowhere.yaml"}, "cluster.gpu"),
        ({"gpu": "TPU-v5p"}, "cluster.gpu"),
        ({"interconnect": {"rate": "400 Gb/s"}}, "cluster.interconnect"),
        ({"interconnect": {"extends": "carrier-pigeon"}}, "cluster.interconnect.extends"),
        ({"node": {"links": "wireless"}}, "cluster.node.links"),
        ({"price_list": "Nobody"}, "cluster.price_list"),
    ],
)
def test_mistakes_are_told_at_their_field(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(stepsim.ScenarioError) as refusal:
        scenario({"gpu": "L40S", "gpus": 4, "gpus_per_node": 4} | changes)
    assert path in {problem.path for problem in refusal.value.problems}


@pytest.mark.parametrize("name", ["TPU-v5p", "tpu7x", "Trainium2", "trn1", "Gaudi3", "Ironwood"])
def test_accelerators_that_nothing_here_predicts_are_refused(name: str) -> None:
    with pytest.raises(NotModelled):
        get_gpu(name)


def test_types_that_a_gpu_lacks_are_refused() -> None:
    with pytest.raises(stepsim.NotSupported) as refusal:
        stepsim.simulate(scenario({"gpu": "V100-SXM2-32GB", "gpus": 8}))
    assert refusal.value.field == "training.precision"


def check(path: Path, *flags: str) -> Any:
    ended = CliRunner().invoke(app, ["hardware", "check", str(path), *flags])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout) if flags else ended.stdout


def test_check_tells_what_is_missing_and_what_it_costs(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(json.dumps({"gpu": {"name": "mine", "architecture": "ada", "memory": "48 GB"}}))
    told = check(file, "--json")["gpu"]
    missing = {one["field"]: one for one in told["left_out"]}
    assert missing["bf16_flops"]["sigma"] > 0
    assert "memory" not in missing
    assert all(one["sigma"] > 0 for one in told["doubts"])
    assert all(field in check(file) for field in missing)


def test_check_says_so_where_nothing_is_described() -> None:
    assert "nothing is described" in check(SHIPPED)


def test_check_reads_what_a_scenario_extends(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(json.dumps({"cluster": {"gpu": {"name": "mine", "extends": "L40S"}}}))
    (tmp_path / "child.yaml").write_text("extends: base.yaml\n")
    assert check(tmp_path / "child.yaml", "--json")["gpu"]["name"] == "mine"


def test_what_decides_no_time_is_not_said_to_decide_what_fits() -> None:
    own = gpu_from(OwnGpu.model_validate({"name": "mine", "architecture": "ada", "bf16_flops": 1e14}))
    decided = {one.field: one.moves for one in own.carried}
    assert [name for name, what in decided.items() if what == "capacity"] == ["memory"]
    assert decided["power"] == "energy"
    assert decided["peer_access"] == "node"


def test_check_refuses_a_file_without_a_machine(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("steps: 3\n")
    assert CliRunner().invoke(app, ["hardware", "check", str(tmp_path / "other.yaml")]).exit_code == 2


def test_money_is_gpus_times_hours_times_price() -> None:
    result = stepsim.simulate(
        scenario({"gpu": "H100", "gpus": 8, "price_per_gpu_hour": 3.6, "currency": "EUR"})
    )
    cost = result.to_dict()["cost"]
    assert cost["currency"] == "EUR"
    assert cost["per_step"] == pytest.approx(8 * result.step_time_s / 1000)
    assert cost["per_trillion_tokens"] == pytest.approx(cost["per_step"] * 1e12 / (64 * 2048))


def test_a_price_list_stands_in_for_a_price() -> None:
    result = stepsim.simulate(scenario({"gpu": "H100", "gpus": 8, "price_list": "AWS"}))
    assert result.cost is not None
    assert result.cost.price_per_gpu_hour == list_price("H100-SXM5-80GB", "AWS").usd_per_hour
    prices = [one.usd_per_hour for one in prices_of("H100-SXM5-80GB")]
    assert min(prices) < list_price("H100-SXM5-80GB", "median").usd_per_hour < max(prices)
    assert stepsim.simulate(scenario({"gpu": "H100", "gpus": 8})).cost is None


def test_prices_are_of_gpus_with_dates_and_sources() -> None:
    for price in PRICES.records().values():
        assert price.gpu in gpu_names()
        assert 0.1 < price.usd_per_hour < 30
        assert price.when[:2] == "20"
        assert len(price.source) > 5


def test_gpus_are_listed_with_what_was_measured() -> None:
    listed = json.loads(CliRunner().invoke(app, ["list", "gpus", "--json"]).stdout)["figures"]
    assert list(listed) == list(gpu_names())
    assert listed["MI325X"]["links"]["kind"] == "Infinity Fabric"
    assert listed["RTX-4090"]["links"]["kind"] == "PCIe"
    assert all(one["carried"] for one in listed["MI325X"]["measured"].values())
    assert not listed["A100-SXM4-80GB"]["measured"]["gemm"]["carried"]
    assert listed["VR200-NVL72"]["announced"]


@pytest.mark.parametrize("gpu", [name for name in gpu_names() if get_gpu(name).architecture != "volta"])
def test_megatron_core_has_an_attention_kernel_on_every_gpu(gpu: str) -> None:
    """Its preset asks for cuDNN; TransformerEngine runs FlashAttention where that is not the faster one."""
    scenario = stepsim.load_scenario(
        {
            **BASE,
            "cluster": {"gpu": gpu, "gpus": 4, "gpus_per_node": 4},
            "parallelism": {"tp": 4, "sequence_parallel": True},
            "software": "megatron-core-2025",
        }
    )
    kernels = {curve.implementation for curve in calibrated_profile(gpu_of(scenario.cluster), ()).attention}
    assert scenario.software.kernels.attention in kernels


def test_attention_that_is_asked_for_stays() -> None:
    scenario = stepsim.load_scenario(
        {
            **BASE,
            "cluster": {"gpu": "RTX-4090", "gpus": 4},
            "software": {"preset": "megatron-core-2025", "kernels": {"attention": "cudnn"}},
        }
    )
    assert scenario.software.kernels.attention == "cudnn"


def test_a_network_without_logs_is_less_sure_than_one_with(tmp_path: Path) -> None:
    path = tmp_path / "network.yaml"
    path.write_text("interconnect: {rate: 200 Gb/s, nics_per_node: 4}\n")
    answer = CliRunner().invoke(app, ["hardware", "check", str(path), "--json"])
    assert answer.exit_code == 0, answer.output
    (doubt,) = json.loads(answer.stdout)["interconnect"]["doubts"]
    assert doubt["sigma"] >= shipped_deviations()["collectives_network"].sigma
