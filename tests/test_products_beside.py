"""GEMMs beside collectives: the tiles of the SMs that are taken come late, by a tile at most; what has
dealt its tiles out to all SMs takes two passes."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_scenarios import scenario

from stepsim.hardware.calibrated.overlay import load_profile, profile_for
from stepsim.hardware.collectives import collective_constants
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.gemm import IN_TWO_PASSES, HeldSms, has_static_schedule, tail_seconds, waves_of
from stepsim.kernels.kernel import Gemm
from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.layers.layer_builder import KernelPricing, LayerBuilder
from stepsim.sim.lowering.layers.linear import Linear, column_backward, column_forward
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.lower import lower
from stepsim.sim.network.collectives import collective_curve, collective_transfer
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Block, Collective, Compute, Op, Program, Programs
from stepsim.sim.program.solo import solo_ends
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software
from stepsim.sim.simulate import build_cluster, simulate

GPU = get_gpu("H100-SXM5-80GB")
PROFILE = load_profile("H100-SXM5-80GB")
NCCL_SMS = 24
sizes = st.integers(1, 256).map(lambda times: 64 * times)
products = st.builds(Gemm, m=sizes, n=sizes, k=sizes)


def late(gemm: Gemm, sms: int, held_s: float, *, static_schedule: bool = False) -> float:
    seconds = kernel_seconds(gemm, GPU, PROFILE)
    return tail_seconds(gemm, seconds, HeldSms(sms, held_s), GPU, PROFILE, static_schedule=static_schedule)


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
    gemm = Gemm(m=4096, n=14336, k=4096, dtype="fp8")
    seconds, share = kernel_seconds(gemm, GPU, PROFILE), NCCL_SMS / GPU.sms
    tile_s = seconds / waves_of(gemm, GPU, PROFILE)
    for held_s in (0.3 * tile_s, 3.0 * tile_s):
        lost_s = late(gemm, NCCL_SMS, held_s) + share * held_s
        assert lost_s == pytest.approx(min(held_s, tile_s))
    assert late(gemm, NCCL_SMS, seconds) == 0.0  # a share of many waves is more than a tile
    assert late(replace(gemm, batch=8, calls=8), NCCL_SMS, tile_s) == 0.0  # calls fill one another's waves


@pytest.mark.parametrize("tiles", [0.3, 1.0, 1.5, 3.0])
def test_what_stays_loses_the_time_held_up_to_a_tile_or_two_passes(tiles: float) -> None:
    gemm = Gemm(m=4096, n=14336, k=4096)
    tile_s = kernel_seconds(gemm, GPU, PROFILE) / waves_of(gemm, GPU, PROFILE)
    by_engine_s = (1 - IN_TWO_PASSES) * tiles * tile_s
    lost_s = late(gemm, NCCL_SMS, tiles * tile_s, static_schedule=True) + by_engine_s
    assert lost_s == pytest.approx(max(min(tiles, 1.0) * tile_s, by_engine_s))


@pytest.mark.parametrize(
    ("gpu", "dtype", "stays"),
    [
        ("H100-SXM5-80GB", "bf16", True),
        ("GH200-96GB", "fp16", True),
        ("H100-SXM5-80GB", "fp8", False),
        ("A100-SXM4-80GB", "bf16", False),
        ("B200-SXM-180GB", "bf16", False),
    ],
)
def test_products_of_16_bit_on_hopper_stay_on_their_sms(gpu: str, dtype: str, stays: bool) -> None:
    def found(gemm: Gemm, held: int = 16) -> bool:
        return has_static_schedule(gemm, held, get_gpu(gpu), profile_for(get_gpu(gpu)))

    gemm = Gemm(m=4096, n=14336, k=4096, dtype=dtype)
    assert found(gemm) is stays
    assert not found(replace(gemm, m=128, n=256))  # it fits on the SMs that are left
    assert not found(replace(gemm, batch=8, calls=8))


@pytest.mark.parametrize(("kind", "stays"), [("gemm", False), ("gemm", True), ("attention", False)])
def test_what_stays_goes_at_half_its_speed_while_any_sm_is_held(kind: str, *, stays: bool) -> None:
    """Of a second, beside a collective that holds a tenth of the SMs for 0.4 s and one that holds none."""
    beside = [
        Op("sum", name, name, Collective("all_reduce", name, Transfer(0.4, 0.0, 1.0, sms=sms)))
        for name, sms in (("dp", 10), ("pp", 0))
    ]
    kernel = Op("kernel", "compute", "compute", Compute(1.0, kind, static_schedule=stays))
    programs = Programs(
        classes=(Program(ops=(*beside, kernel)),), communicators={}, links=({},), sms=100, corun_slowdown=0.0
    )
    speed = IN_TWO_PASSES if stays else 0.9
    assert replay(programs).makespan_s == pytest.approx(0.4 + (1.0 - 0.4 * speed))


MEASURED = {1: 1.07, 4: 1.12, 8: 1.12, 16: 1.22, 24: 1.22, 32: 1.32}
"""Times as long as alone that 8,192 cubed in bf16 takes on an H100 (cuBLAS 13.1.0, nvjet_sm90_tst_320x128)
while so many of its SMs are held; those of blocks in pairs are lost by more than one at once."""


@pytest.mark.parametrize("sms", list(MEASURED))
def test_what_fetches_its_tiles_loses_the_share_of_the_sms_as_measured(sms: int) -> None:
    beside = Op("sum", "dp", "dp", Collective("all_reduce", "dp", Transfer(20.0, 0.0, 1.0, sms=sms)))
    kernels = {
        stays: Op("kernel", "compute", "compute", Compute(1.0, "gemm", static_schedule=stays))
        for stays in (False, True)
    }
    ends_s = [solo_ends(Block("block", (beside, kernels[stays])), sms=GPU.sms)[1] for stays in (False, True)]
    assert ends_s == [pytest.approx(MEASURED[sms], abs=0.09), pytest.approx(1 / IN_TWO_PASSES)]
    assert ends_s[0] <= MEASURED[sms] + 0.005


@pytest.mark.parametrize(
    ("gpu", "lost"),
    [
        ("H100-SXM5-80GB", MEASURED[16]),
        ("H200-SXM-141GB", MEASURED[16]),
        ("B200-SXM-180GB", 148 / (148 - 24)),
        ("VR200-NVL72", 160 / (160 - 24)),
        ("RTX-PRO-6000-Server", 188 / (188 - 16)),
        ("A100-SXM4-80GB", 108 / (108 - 16)),
    ],
)
def test_sixteen_channels_take_what_24_do_where_blocks_come_in_clusters(gpu: str, lost: float) -> None:
    """Beside a collective between hosts; inside one there are 24 channels, and as many SMs lost."""
    per_node = 4 if gpu == "VR200-NVL72" else 8
    cluster = build_cluster(scenario(dp=16, gpu=gpu, gpus_per_node=per_node))
    between, inside = (
        collective_transfer("all_gather", 1e8, GroupPlacement(ranks=8 * hosts, domains=hosts), cluster).sms
        for hosts in (2, 1)
    )
    assert cluster.gpu.sms / (cluster.gpu.sms - between) == pytest.approx(lost, abs=0.005)
    assert inside == 24


def test_channels_of_nvls_take_what_24_do_where_blocks_come_in_clusters() -> None:
    """Fewer channels than a ring inside a domain has; without clusters each would take its own SM."""
    cluster = build_cluster(scenario(dp=8, gpu="H100-SXM5-80GB"))
    placement = GroupPlacement(ranks=8, domains=1)
    assert collective_curve("all_reduce", 1e9, placement, cluster).algorithm == "nvls"
    assert collective_constants().sms["nvls"] == 16
    assert collective_transfer("all_reduce", 1e9, placement, cluster).sms == 24


@pytest.mark.parametrize(
    ("gpu", "within", "between"),
    [
        ("MI300X", {2: 32, 3: 24, 4: 24, 8: 56}, 16),
        ("MI350X", {2: 32, 4: 48, 8: 112}, 64),
        ("MI250X-GCD", {2: 24, 8: 24}, 16),
    ],
)
def test_rccl_has_channels_of_its_own(gpu: str, within: dict[int, int], between: int) -> None:
    """By the GPUs of a host that take part; of MI250X none are known, and NCCL's stand for them."""
    cluster = build_cluster(scenario(dp=16, gpu=gpu))
    for ranks, sms in within.items():
        placement = GroupPlacement(ranks=ranks, domains=1)
        assert collective_transfer("all_gather", 1e8, placement, cluster).sms == sms
    two_hosts = GroupPlacement(ranks=16, domains=2)
    assert collective_transfer("all_gather", 1e8, two_hosts, cluster).sms == between


def stays_in(run: Scenario) -> set[bool]:
    """Whether GEMMs of the layers of a run have dealt out their tiles to all SMs before they begin."""
    programs = lower(run, build_cluster(run)).programs
    blocks = {id(op.work): op.work for program in programs.classes for op in program.each_op()}.values()
    return {work.static_schedule for work in blocks if isinstance(work, Compute) and work.kind == "gemm"}


def test_what_products_lose_is_said_by_the_software_and_takes_longer_where_they_stay() -> None:
    """Two releases of one framework, and the older one where the field alone is another."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 16384, "seq_length": 4096}

    def run(preset: str, **kernels: str) -> Scenario:
        software = {"preset": preset, "kernels": kernels}
        return scenario(dp=8, zero=2, gpu="H100-SXM5-80GB", software=software, **sizes)

    older, newer = run("megatron-bridge-2025"), run("megatron-bridge-2026")
    assert (True in stays_in(older), stays_in(newer)) == (True, {False})
    shares = run("megatron-bridge-2025", hopper_products="share")
    assert stays_in(shares) == {False}
    assert simulate(shares).step_time_s < simulate(older).step_time_s


def column_products(style: str, *, backward: bool, held_s: float = 0.5) -> list[Compute]:
    """The GEMMs of a column-parallel layer on two ranks; each is 1 s by itself, and loses what is held
    beside it when it begins."""
    costs = KernelPricing(
        seconds=lambda kernel: 1.0,
        transfer=lambda axis, kind, size: Transfer(
            latency_s=held_s, bytes=0.0, ceiling_bytes_per_s=1.0, sms=NCCL_SMS
        ),
        host_s=0.0,
        host_collective_s=0.0,
        tail_s=lambda gemm, seconds, beside: beside.seconds,
        static_schedule=lambda gemm: True,
    )
    run = scenario(tp=2, sequence_parallel=True, software="nanotron-2024")
    software = get_software("nanotron-2024").with_fields(
        tp_comm_overlap=style != "none", tp_overlap_style="userbuffers" if style == "none" else style
    )
    builder = LayerBuilder(costs=costs, local=local_shape_of(run), software=software)
    linear = Linear(name="fc1", inputs=64, outputs=64)
    (column_backward if backward else column_forward)(builder, (linear,))
    return [op.work for op in builder.ops if isinstance(op.work, Compute) and op.work.kind == "gemm"]


def products_seconds(style: str, *, backward: bool, held_s: float = 0.5) -> list[float]:
    return [work.seconds for work in column_products(style, backward=backward, held_s=held_s)]


def test_the_own_rows_are_multiplied_beside_the_gather_and_the_others_behind_it() -> None:
    assert products_seconds("local-shard", backward=False) == [1.5, 1.0]


def test_both_gradients_have_a_collective_beside_them() -> None:
    assert products_seconds("local-shard", backward=True) == [1.5, 1.5]
    # One that outlasts a GEMM goes on beside the next, shorter by as long.
    assert products_seconds("local-shard", backward=True, held_s=3.0)[0] == 4.0


def test_products_that_were_told_how_many_sms_are_left_lose_nothing() -> None:
    for backward in (False, True):
        assert set(products_seconds("userbuffers", backward=backward)) <= {0.5, 1.0}
    assert products_seconds("none", backward=False) == [1.0]


def test_products_that_were_told_how_many_sms_are_left_do_not_stay() -> None:
    for style, stays in (("userbuffers", False), ("local-shard", True), ("none", True)):
        for backward in (False, True):
            assert {work.static_schedule for work in column_products(style, backward=backward)} == {stays}
