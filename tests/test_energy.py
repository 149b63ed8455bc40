"""The energy of a step: closed forms by activity, monotone in the limit, additive in what is stated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.host_power import host_w
from stepsim.kernels.power import DRAWN, drawn_w
from stepsim.sim.result.energy import AC_PER_DC, activity_of, step_energy

SMALL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "nvlink-only"},
    "parallelism": {"tp": 2, "zero": 1},
    "training": {"global_batch": 16, "micro_batch": 1, "seq_length": 8192, "precision": "bf16"},
    "software": "megatron-core-2024",
}


def energy(**power: Any) -> dict[str, Any]:
    changes = {f"cluster.power.{name}": value for name, value in power.items()}
    document = stepsim.simulate(stepsim.load_scenario(SMALL).with_(changes)).to_dict()
    return {"step_time_s": document["step_time_s"], **document["energy"]}


@given(name=st.sampled_from(gpu_names()), rate=st.floats(0, 5e15))
def test_a_gpu_draws_between_idle_and_its_limit(name: str, rate: float) -> None:
    gpu = get_gpu(name)
    watts = [drawn_w(activity, gpu, flops_per_s=rate) for activity in DRAWN]
    assert all(gpu.idle_w <= one < gpu.tdp_w for one in watts)
    waiting, tensor = drawn_w("waiting", gpu), drawn_w("tensor", gpu, flops_per_s=rate)
    assert waiting < drawn_w("communication", gpu) < drawn_w("memory", gpu) <= tensor


def test_energy_is_that_computed_by_hand() -> None:
    """Half of a step GEMMs at the limit, half of it waiting, one host of 8."""
    gpu, scenario = get_gpu("H100-SXM5-80GB"), stepsim.load_scenario(SMALL)
    activity = activity_of({"gemm": 1.5, "attention": 0.5, "bubble": 1.0, "host": 0.5, "step end": 0.5})
    found = step_energy(scenario, 4.0, activity, 2e15)
    assert found is not None
    left_w = gpu.tdp_w - gpu.idle_w
    expected_w = gpu.idle_w + (0.5 * 0.95 + 0.5 * 0.05) * left_w
    assert found.gpu_w == pytest.approx(expected_w)
    assert found.host_w == pytest.approx(host_w(gpu, 8) / 8) == pytest.approx(301.0)
    assert found.per_step_j == pytest.approx(8 * 4.0 * 1.03 * (expected_w + 301.0))


def test_every_second_of_a_step_is_told() -> None:
    result = stepsim.simulate(stepsim.load_scenario(SMALL))
    assert sum(result.stream_s.values()) == pytest.approx(result.step_time_s, rel=1e-6)


def test_what_is_stated_counts() -> None:
    plain = energy(host="0 W")
    watts = plain["watts_per_gpu"]
    assert watts["all"] == pytest.approx(AC_PER_DC * watts["gpu"])
    more = energy(host="800 W", network_per_host="160 W", pue=1.5, carbon_g_per_kwh=100.0)
    assert more["watts_per_gpu"]["all"] == pytest.approx(1.5 * AC_PER_DC * (watts["gpu"] + 100.0 + 20.0))
    assert more["carbon_g_per_step"] == pytest.approx(100.0 * more["per_step_kwh"])
    assert plain["carbon_g_per_step"] is None


def test_a_lower_limit_is_slower_and_draws_less() -> None:
    found = [energy(limit=f"{limit} W") for limit in (700, 550, 400)]
    times = [one["step_time_s"] for one in found]
    watts = [one["watts_per_gpu"]["gpu"] for one in found]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert watts == sorted(watts, reverse=True)
    assert all(one < limit for one, limit in zip(watts, (700, 550, 400), strict=True))
    assert found[-1]["watts_per_gpu"]["host"] == found[0]["watts_per_gpu"]["host"]
    assert times[-1] / times[0] < 700 / 400  # the cube of the clock, and kernels that wait for memory


def test_the_makers_limit_changes_nothing() -> None:
    assert energy(limit="700 W") == energy()


@pytest.mark.parametrize(
    ("gpu", "limit"), [("H100-SXM5-80GB", "900 W"), ("H100-SXM5-80GB", "100 W"), ("MI300X", "500 W")]
)
def test_a_limit_that_cannot_be_is_refused(gpu: str, limit: str) -> None:
    with pytest.raises(ValueError, match="limit"):
        stepsim.load_scenario(SMALL).with_({"cluster.gpu": gpu, "cluster.power.limit": limit})


def test_energy_of_an_unmeasured_gpu_has_a_wider_interval() -> None:
    changes = {"cluster.gpu": "MI300X", "software": "torchtitan-2025", "parallelism.tp": 1}
    document = stepsim.simulate(stepsim.load_scenario(SMALL).with_(changes)).to_dict()["energy"]
    low, high = document["interval_kwh"]
    assert not document["measured"]
    assert (high - low) / document["per_step_kwh"] == pytest.approx(0.6)


def test_run_prints_it() -> None:
    run = ["run", "llama3-8b-h100", "--set", "cluster.power.pue=1.2"]
    answer = CliRunner().invoke(app, [*run, "--json"])
    assert answer.exit_code == 0
    kwh = json.loads(answer.stdout)["energy"]["per_step_kwh"]
    assert f"{kwh:,.4g} kWh" in CliRunner().invoke(app, run).stdout
