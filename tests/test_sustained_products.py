"""What GEMMs that last sustain on each GPU of Blackwell, beside what was measured of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused_at

from stepsim.calibration.cases.unstated import MEASURED_PRODUCTS
from stepsim.calibration.readers.measurements import read_measurements
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.gemm import gemm_seconds
from stepsim.kernels.kernel import Gemm
from stepsim.sim.lowering.lower import lower
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.machine import gpu_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster

# TFLOP/s: the longest GEMM of aiconfigurator's tables; FP8 of random operands after 10,000 GEMMs of the
# same (egmsft/AI-benchmarking-guide Azure_Results; of GB200 the mean of two systems).
SUSTAINED = [
    ("GB200-NVL72", Gemm(m=32768, n=51200, k=51200, dtype="bf16"), 1462.0),
    ("GB200-NVL72", Gemm(m=8192, n=8192, k=8192, dtype="fp8"), 2703.0),
    ("GB200-NVL72", Gemm(m=16384, n=16384, k=16384, dtype="fp8"), 2757.0),
    ("GB300-NVL72", Gemm(m=32768, n=51200, k=51200, dtype="bf16"), 1697.0),
    ("GB300-NVL72", Gemm(m=8192, n=8192, k=8192, dtype="fp8"), 3286.0),
    ("GB300-NVL72", Gemm(m=16384, n=16384, k=16384, dtype="fp8"), 3309.0),
]


@pytest.mark.parametrize(("name", "product", "measured"), SUSTAINED)
def test_products_that_last_run_at_what_their_own_boards_sustain(
    name: str, product: Gemm, measured: float
) -> None:
    alone = replace(load_profile(name), clock_fraction=1.0)
    told = product.flops / gemm_seconds(product, get_gpu(name), alone) / 1e12
    assert told == pytest.approx(measured, rel=0.04)


def test_boards_of_higher_limits_draw_less_for_a_flop() -> None:
    """Blackwell's, by 16-bit FLOP: what was measured of each has this order, and the catalogue keeps it."""
    joules = [
        get_gpu(name).joules_per_flop or 0.0
        for name in ("B200-SXM-180GB", "B300-SXM", "GB200-NVL72", "GB300-NVL72")
    ]
    assert joules == sorted(joules, reverse=True)


def test_a_type_that_nobody_timed_draws_as_much_of_its_limit_as_its_relative() -> None:
    """At their peaks VR200 and GB300 draw the same share of what either may."""
    shares = []
    for gpu in map(get_gpu, ("VR200-NVL72", "GB300-NVL72")):
        assert gpu.joules_per_flop
        shares.append(gpu.joules_per_flop * gpu.peak_flops["bf16"] / gpu.tdp_w)
    assert shares[0] == pytest.approx(shares[1], rel=5e-3)


def test_a_b200_draws_the_mean_of_what_two_boards_drew() -> None:
    """What the limit leaves, over the rate before it acts by the cube of what is left of that rate: TFLOP/s
    of aiconfigurator's longest GEMM, and of SimuMax's board."""
    gpu = get_gpu("B200-SXM-180GB")
    left_w = gpu.tdp_w - gpu.idle_w
    picojoules = [left_w / (before * (under / before) ** 3) for before, under in ((1467, 1302), (1435, 1040))]
    assert gpu.joules_per_flop
    assert 1e12 * gpu.joules_per_flop == pytest.approx(sum(picojoules) / 2, rel=5e-3)


LARGE = Gemm(m=16384, n=16384, k=16384, dtype="bf16")
SMALL = Gemm(m=128, n=1024, k=1024, dtype="bf16")


def on(gpu: str, **power: Any) -> Scenario:
    """A small job on eight GPUs with a block ``power``."""
    document = {
        "model": "llama3-8b",
        "cluster": {"gpu": gpu, "gpus": 8, "interconnect": "nvlink-only", "power": power},
        "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 8192, "precision": "bf16"},
        "software": "megatron-core-2025",
    }
    return scenario_from_document(document, "boards")


def seconds(product: Gemm, gpu: str, **power: Any) -> float:
    alone = replace(load_profile(gpu), clock_fraction=1.0, kernel_latency_s=0.0)
    return kernel_seconds(product, gpu_of(on(gpu, **power).cluster), alone)


@given(share=st.floats(0.75, 1.1), limit=st.sampled_from(["1000 W", "800 W"]))
def test_products_run_at_what_was_measured_where_the_limit_acts(share: float, limit: str) -> None:
    """A long GEMM takes as much longer as stated, whatever the limit; one that draws little as long.

    On a board that is a third slower, 800 W would hold the small GEMM back as well.
    """
    gpu = "B200-SXM-180GB"
    told, measured = (seconds(LARGE, gpu, limit=limit, **one) for one in ({}, {"measured_products": share}))
    assert told / measured == pytest.approx(share, rel=0.01)
    assert seconds(SMALL, gpu, limit=limit, measured_products=share) == seconds(SMALL, gpu, limit=limit)


def test_measured_products_leave_the_clock_that_a_lower_limit_carries() -> None:
    """It is the same chip: what a lower limit does to the clock of its steps is what it does elsewhere."""
    gpu, clocks = "B200-SXM-180GB", []
    for power in ({}, {"measured_products": 0.93}):
        scenario = on(gpu, limit="800 W", **power)
        clocks.append(lower(scenario, build_cluster(scenario)).plan.profile.clock_fraction)
    assert clocks[0] == clocks[1] < load_profile(gpu).clock_fraction


def test_measured_products_of_a_gpu_whose_watts_nobody_knows_are_refused() -> None:
    with refused_at("cluster.power.measured_products", "MI300X"):
        on("MI300X", measured_products=0.9)


@pytest.mark.parametrize(
    ("gpu", "share"), [("RTX-3090", 0.9), ("H20-96GB", 0.95), ("RTX-PRO-6000-Server", 1.2)]
)
def test_measured_products_that_no_limit_gives_are_refused(gpu: str, share: float) -> None:
    """GEMMs that stay below the limit would be as fast as before, and none is faster than its clock."""
    one = on(gpu, measured_products=share)
    with refused_at("cluster.power.measured_products", gpu):
        lower(one, build_cluster(one))


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB", "GB300-NVL72", "L40S"])
def test_measured_products_hold_on_gpus_that_reach_their_limit(gpu: str) -> None:
    one = on(gpu, measured_products=0.93)
    lower(one, build_cluster(one))


def test_what_simumax_measured_of_its_own_board(shared: Path) -> None:
    """Its GEMMs that last, over what is told of the type: the number beside its framework's text."""
    (((_, gpu), reached),) = MEASURED_PRODUCTS.items()
    alone = replace(load_profile(gpu), clock_fraction=1.0)
    shares = [
        kernel_seconds(one.kernels[0], get_gpu(gpu), alone) / one.seconds
        for one in read_measurements([shared / "data" / "kernels.yaml"])
        if (one.gpu, one.source, one.operation) == (gpu, "simumax", "gemm") and one.seconds >= 2e-3
        if isinstance(one.kernels[0], Gemm) and not one.kernels[0].accumulate
    ]
    assert len(shares) == 65
    assert median(shares) == pytest.approx(reached, abs=0.01)
