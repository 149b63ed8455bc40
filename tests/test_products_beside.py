"""Products beside collectives: the tiles of the SMs that are taken come late, by a tile at most."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_scenarios import scenario

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.gemm import HeldSms, late_seconds, waves_of
from stepsim.kernels.kernel import Gemm
from stepsim.sim.lowering.layers.layer_builder import KernelPricing, LayerBuilder
from stepsim.sim.lowering.layers.linear import Linear, column_backward, column_forward
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.software import get_software

GPU = get_gpu("H100-SXM5-80GB")
PROFILE = load_profile("H100-SXM5-80GB")
NCCL_SMS = 24
sizes = st.integers(1, 256).map(lambda times: 64 * times)
products = st.builds(Gemm, m=sizes, n=sizes, k=sizes)


def late(gemm: Gemm, sms: int, held_s: float) -> float:
    seconds = kernel_seconds(gemm, GPU, PROFILE)
    return late_seconds(gemm, seconds, HeldSms(sms, held_s), GPU, PROFILE)


def listed_end(tiles: int, held: int, until: float) -> float:
    """When the last of ``tiles`` of one second ends, each on the first SM that is free; ``held`` are taken
    ``until`` then."""
    free = [0.0] * (GPU.sms - held) + [until] * held
    heapq.heapify(free)
    return max(heapq.heappushpop(free, free[0] + 1.0) + 1.0 for _ in range(tiles))


@given(st.integers(1, 12), st.integers(1, 40), st.floats(0.01, 5.0))
def test_full_waves_end_later_by_the_time_held_up_to_a_tile(waves: int, held: int, until: float) -> None:
    """As tiles do that are dealt one by one, where what is lost fits on the SMs that were never taken."""
    assume(held * math.ceil(until) <= GPU.sms - held)
    assert listed_end(waves * GPU.sms, held, until) == pytest.approx(waves + min(until, 1.0))


@given(products, st.integers(1, 60), st.floats(1e-7, 1e-1))
def test_no_product_loses_more_than_the_time_held_or_a_tile(gemm: Gemm, sms: int, held_s: float) -> None:
    lost_s, waves = late(gemm, sms, held_s), waves_of(gemm, GPU, PROFILE)
    tile_s = kernel_seconds(gemm, GPU, PROFILE) / max(1.0, waves)
    assert 0.0 <= lost_s <= min(held_s, tile_s)
    if waves <= 1 - sms / GPU.sms:
        assert lost_s == 0.0


def test_with_the_share_that_the_engine_takes_it_is_the_time_held_or_a_tile() -> None:
    gemm = Gemm(m=4096, n=14336, k=4096)
    seconds, share = kernel_seconds(gemm, GPU, PROFILE), NCCL_SMS / GPU.sms
    tile_s = seconds / waves_of(gemm, GPU, PROFILE)
    for held_s in (0.3 * tile_s, 3.0 * tile_s):
        lost_s = late(gemm, NCCL_SMS, held_s) + share * held_s
        assert lost_s == pytest.approx(min(held_s, tile_s))
    assert late(gemm, NCCL_SMS, seconds) == 0.0  # a share of many waves is more than a tile
    assert late(replace(gemm, batch=8, calls=8), NCCL_SMS, tile_s) == 0.0  # calls fill one another's waves


def products_seconds(style: str, *, backward: bool, held_s: float = 0.5) -> list[float]:
    """Seconds of the products of a column-parallel layer on two ranks; each is 1 s by itself, and loses what
    is held beside it when it begins."""
    costs = KernelPricing(
        seconds=lambda kernel: 1.0,
        transfer=lambda axis, kind, size: Transfer(
            latency_s=held_s, bytes=0.0, ceiling_bytes_per_s=1.0, sms=NCCL_SMS
        ),
        host_s=0.0,
        host_collective_s=0.0,
        late_s=lambda gemm, seconds, beside: beside.seconds,
    )
    run = scenario(tp=2, sequence_parallel=True, software="nanotron-2024")
    software = get_software("nanotron-2024").with_fields(
        tp_comm_overlap=style != "none", tp_overlap_style="userbuffers" if style == "none" else style
    )
    builder = LayerBuilder(costs=costs, local=local_shape_of(run), software=software)
    linear = Linear(name="fc1", inputs=64, outputs=64)
    (column_backward if backward else column_forward)(builder, (linear,))
    works = [op.work for op in builder.ops if isinstance(op.work, Compute) and op.work.kind == "gemm"]
    return [work.seconds for work in works]


def test_the_own_rows_are_multiplied_beside_the_gather_and_the_others_behind_it() -> None:
    assert products_seconds("local-shard", backward=False) == [1.5, 1.0]


def test_both_gradients_have_a_collective_beside_them() -> None:
    assert products_seconds("local-shard", backward=True) == [1.5, 1.5]
    # One that outlasts a product goes on beside the next, shorter by as long.
    assert products_seconds("local-shard", backward=True, held_s=3.0)[0] == 4.0


def test_products_that_were_told_how_many_sms_are_left_lose_nothing() -> None:
    for backward in (False, True):
        assert set(products_seconds("userbuffers", backward=backward)) <= {0.5, 1.0}
    assert products_seconds("none", backward=False) == [1.0]
