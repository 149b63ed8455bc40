"""What a sweep's own circumstances do to its times, and measured curves where tokens are exchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_experts import with_experts

from stepsim.calibration.kernel_errors import repeats
from stepsim.calibration.measurements import Measurement
from stepsim.calibration.residuals import before_power_limit
from stepsim.hardware.collective_curve import CollectiveCurve
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.profile import load_profile
from stepsim.hardware.provenance import Provenance
from stepsim.kernels.gemm import gemm_seconds
from stepsim.kernels.kernel import Gemm
from stepsim.sim.layer_kernels import layer_kernels
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

B200 = "B200-SXM-180GB"


@given(st.floats(1e-6, 1.0), st.floats(0.0, 0.6), st.floats(0.0, 2e-5))
def test_a_boost_shortens_and_the_host_bounds(sustained_s: float, boost: float, call_s: float) -> None:
    profile = replace(load_profile(B200), measured_boost=boost, measured_call_s=call_s)
    found_s = before_power_limit(sustained_s, profile)
    assert found_s >= call_s
    assert sustained_s / (1 + boost) * (1 - 1e-12) <= found_s <= max(sustained_s, call_s)
    longer_s = before_power_limit(2 * sustained_s, profile)
    assert longer_s >= found_s
    if found_s > call_s:  # of ever longer runs an ever smaller share is boosted
        assert longer_s / (2 * sustained_s) >= found_s / sustained_s * (1 - 1e-12)


def test_repeats_of_one_kernel_are_held_beside_each_other() -> None:
    def point(name: str, seconds: float, k: int = 64) -> Measurement:
        kernel = Gemm(m=128, n=128, k=k)
        return Measurement(id=name, gpu=B200, source="made", kernels=(kernel,), seconds=seconds)

    found = repeats([point("a", 1.0), point("b", 2.0), point("c", 5.0, k=32)])
    assert found.keys() == {(B200, "gemm")}
    one = found[B200, "gemm"]
    assert one.points == 2
    assert one.median == pytest.approx((1.0 + 0.5) / 2)


def test_products_side_by_side_are_not_split_over_k() -> None:
    """Four deep products beside each other: one wave of K steps, which alone would be split."""
    gpu, profile = get_gpu(B200), load_profile(B200)
    alone = Gemm(m=128, n=256, k=16384)
    beside = replace(alone, batch=4, calls=4)
    with_splits = replace(alone, batch=4)
    assert gemm_seconds(beside, gpu, profile) > 1.5 * gemm_seconds(with_splits, gpu, profile)


def curve(kind: str, slower: float) -> CollectiveCurve:
    return CollectiveCurve(
        kind=kind,
        ranks=8,
        domains=1,
        alpha_s=1e-5 * slower,
        gamma_s=0.0,
        bytes_per_s=1e11 / slower,
        low_bytes=1.0,
        high_bytes=1e12,
        provenance=Provenance(source="made"),
    )


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_exchanges_of_tokens_take_the_measured_alltoall(dispatcher: str) -> None:
    scenario = with_experts(moe_dispatcher=dispatcher)
    shipped = load_profile("H100-SXM5-80GB")
    steps = [
        simulate(scenario, profile=replace(shipped, collectives=curves)).step_time_s
        for curves in ((), (curve("alltoall", 1.0),), (curve("alltoall", 1e4),), (curve("broadcast", 1e4),))
    ]
    assert steps[3] == steps[0]
    if dispatcher == "deepep":  # its kernels are not NCCL's
        assert steps == [steps[0]] * 4
    else:
        assert steps[2] > 1.5 * steps[1]


def test_kernels_of_a_layer_are_priced_by_the_scenarios_own_profile(tmp_path: Path) -> None:
    slow = tmp_path / "slow.profile.yaml"
    slow.write_text(
        "profile: 1\ngpu: H100-SXM5-80GB\n"
        "gemm: {rates: {bf16: {fraction: 0.3}}, provenance: {source: made}}\n"
    )
    shipped, own = (
        sum(one.seconds for one in layer_kernels(load_scenario("llama3-8b-h100", overrides)))
        for overrides in ((), (f"calibration=[{slow}]",))
    )
    assert own > 1.3 * shipped
