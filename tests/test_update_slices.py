"""Slices of parameters that a rank updates, who launches what is done to them, and releases of cuDNN."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.attention import attention_seconds
from stepsim.kernels.kernel import Attention, CudnnRelease, Direction
from stepsim.sim.lowering.gather_chain import buckets_of
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.lowering.parameter_slices import slice_kernels, slices_of
from stepsim.sim.program.program import Op
from stepsim.sim.scenario.software.software import grouped

HOST_S = 1e-3


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 60), st.integers(1, 9))
def test_a_rank_has_a_slice_of_each_parameter_of_which_it_owns_an_element(
    sizes: list[int], bucket: int, ranks: int
) -> None:
    """Element by element: each belongs to the rank in whose equal share of its bucket it lies."""
    owned: set[tuple[int, int]] = set()
    numbers, positions = buckets_of(sizes, bucket), Counter[int]()
    totals = Counter[int]()
    for number, size in zip(numbers, sizes, strict=True):
        totals[number] += size
    for parameter, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
        share = -(-totals[number] // ranks)
        for _ in range(size):
            owned.add((positions[number] // share, parameter))
            positions[number] += 1
    expected = Counter(rank for rank, _ in owned)
    assert slices_of(tuple(sizes), bucket, ranks).tolist() == [expected[rank] for rank in range(ranks)]


def run(precision: str = "bf16", **software: object) -> Lowered:
    """Every tensor is a bucket of its own."""
    own = {"casts_by_slice": True, "cuda_graphs": True, "host_s_per_kernel": HOST_S, "bucket_elements": 1.0}
    blocks = {"preset": "mlperf-5.1", **grouped(own | software)}
    return lowered(scenario(dp=4, zero=1, gpu="H100-SXM5-80GB", precision=precision, software=blocks))


def named(found: Lowered, name: str) -> Op:
    (op,) = (op for op in found.programs.classes[0].ops if op.name == name)
    return op


def test_every_rank_has_a_slice_of_every_tensor_where_each_is_a_bucket() -> None:
    """A layer: two norms and four matrices, queries, keys and values being one, each with a bias."""
    found = run()
    layers = sum(len(stage.kinds) for stage in found.plan.stages)
    ends = len(("embedding", "position", "final norm", "final norm bias", "head"))
    kernels = slice_kernels(found.plan, range(len(found.plan.stages)))
    assert (kernels.gradients, kernels.cast) == (12 * layers + ends, 12 * layers + ends)
    assert kernels.more_bytes == 0.0


def test_a_scale_for_each_tensor_takes_kernels_of_its_own() -> None:
    """A matrix of a layer is made 16 bit, read for its maximum, and cast: all else is copied as before."""
    found = run("fp8", fp8_scaling="current", fp8_parameters=True)
    layers = sum(len(stage.kinds) for stage in found.plan.stages)
    kernels = slice_kernels(found.plan, range(len(found.plan.stages)))
    more = kernels.cast - kernels.gradients
    assert more % (4 * layers) == 0
    assert more > 0
    assert kernels.more_bytes > 0.0


def test_graphs_do_not_launch_the_update() -> None:
    """The host issues it kernel by kernel, and nothing else."""
    found = run()
    slices = slice_kernels(found.plan, range(len(found.plan.stages)))
    assert named(found, "copy parameters").host_s == pytest.approx(slices.cast * HOST_S)
    assert named(found, "gradients to FP32").host_s == pytest.approx(slices.gradients * HOST_S)
    assert found.plan.costs.host_s == 0.0
    update = {"gradients to FP32", "gradient norm", "gradient norm all_reduce", "clip gradients", "Adam"}
    update |= {"copy parameters", "zero gradients"}
    by_host = {op.name for op in found.programs.classes[0].ops if op.host_s}
    assert by_host == update


def test_without_slices_an_update_is_cast_at_once() -> None:
    found = run(casts_by_slice=False)
    assert named(found, "copy parameters").host_s == pytest.approx(2 * HOST_S)
    assert not [op for op in found.programs.classes[0].ops if op.name == "gradients to FP32"]


@pytest.mark.parametrize("gpu", ["GB200-NVL72", "GB300-NVL72", "H100-SXM5-80GB"])
@pytest.mark.parametrize("direction", get_args(Direction))
def test_later_releases_of_cudnn_are_faster_where_that_was_measured(gpu: str, direction: Direction) -> None:
    def seconds(release: CudnnRelease, implementation: str = "cudnn") -> float:
        kernel = Attention(
            batch=1, seq_q=8192, seq_kv=8192, heads=32, kv_heads=8, head_dim=128, causal=True,
            implementation=implementation, direction=direction, release=release,  # type: ignore[arg-type]
        )  # fmt: skip
        return attention_seconds(kernel, get_gpu(gpu), load_profile(gpu))

    oldest, *later = (seconds(release) for release in get_args(CudnnRelease))
    if get_gpu(gpu).architecture == "blackwell":
        assert all(each < oldest for each in later)
    else:
        assert all(each == oldest for each in later)
    assert seconds("9.22", "fa2") == seconds("9.13", "fa2")


@pytest.mark.parametrize(("gpu", "direction", "measured_s"), [
    ("GB300-NVL72", "forward", 1.281e-3),
    ("GB300-NVL72", "backward", 4.778e-3),
])  # fmt: skip
def test_attention_of_gb300_is_what_cudnn_measures_of_its_own(
    gpu: str, direction: Direction, measured_s: float
) -> None:
    """NVIDIA/cudnn-frontend, cuDNN 9.13.1, 128 heads, 8,192 tokens, as in a burst."""
    burst = replace(load_profile(gpu), clock_fraction=1.0, power_limited=0.0)
    kernel = Attention(
        batch=1, seq_q=8192, seq_kv=8192, heads=128, kv_heads=8, head_dim=128, causal=True,
        implementation="cudnn", direction=direction,
    )  # fmt: skip
    assert attention_seconds(kernel, get_gpu(gpu), burst) == pytest.approx(measured_s, rel=0.05)
