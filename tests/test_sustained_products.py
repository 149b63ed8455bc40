"""What products that last sustain on each GPU of Blackwell, beside what was measured of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.gemm import gemm_seconds
from stepsim.kernels.kernel import Gemm

# TFLOP/s: the longest product of aiconfigurator's tables; FP8 of random operands after 10,000 products of the
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
    of aiconfigurator's longest product, and of SimuMax's board."""
    gpu = get_gpu("B200-SXM-180GB")
    left_w = gpu.tdp_w - gpu.idle_w
    picojoules = [left_w / (before * (under / before) ** 3) for before, under in ((1467, 1302), (1435, 1040))]
    assert gpu.joules_per_flop
    assert 1e12 * gpu.joules_per_flop == pytest.approx(sum(picojoules) / 2, rel=5e-3)
