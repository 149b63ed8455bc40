"""Laws of the kernel cost models over every GPU of the catalogue, and their residuals over measurements."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.hardware.calibrated.overlay import load_profile, profile_names
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.kernels.attention import hbm_bytes, kernel_head_dim, tile_rows, tiled_hbm_bytes
from stepsim.kernels.cost import in_range, kernel_seconds
from stepsim.kernels.gemm import filled_waves, output_bytes
from stepsim.kernels.kernel import Attention, Gemm, Kernel, MemoryBound

gpus = st.sampled_from([name for name in gpu_names() if get_gpu(name).architecture != "volta"])
# Multiples of 8: an unaligned row is slower, so doubling an odd size may even save time.
sizes = st.integers(1, 4096).map(lambda eighths: 8 * eighths)
# Only 16 bits run on every GPU of the catalogue, fp8 and fp4 not; Volta has no bf16 and no fused attention.
gemms = st.builds(
    Gemm,
    m=sizes,
    n=sizes,
    k=sizes,
    batch=st.sampled_from((1, 2, 96)),
    out_bytes=st.sampled_from((2, 4)),
    accumulate=st.booleans(),
    dtype=st.sampled_from(("bf16", "fp16", "fp32")),
)


@st.composite
def attentions(draw: st.DrawFn, head_dims: tuple[int, ...] = (64, 80, 96, 128, 160, 256)) -> Attention:
    kv_heads = draw(st.sampled_from((1, 2, 8)))
    seq = draw(st.integers(1, 1024)) * 32
    return Attention(
        batch=draw(st.integers(1, 8)),
        seq_q=seq,
        seq_kv=seq,
        heads=kv_heads * draw(st.sampled_from((1, 4, 8))),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from(head_dims)),
        causal=draw(st.booleans()),
        implementation="fa2",
        direction=draw(st.sampled_from(("forward", "backward"))),
    )


def seconds(kernel: Kernel, gpu: str) -> float:
    return kernel_seconds(kernel, get_gpu(gpu), load_profile(gpu))


def test_every_gpu_of_the_catalogue_has_a_profile_under_its_name() -> None:
    assert set(profile_names()) <= set(gpu_names())
    for name in set(gpu_names()) - set(profile_names()):
        assert load_profile(name).gemm.provenance.carried or get_gpu(name).same_kernels
    assert [load_profile(name).gpu for name in gpu_names()] == list(gpu_names())


def test_an_unknown_gpu_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="H100-SXM5-80GB"):
        load_profile("H100-SXM-80GB")


@pytest.mark.parametrize("name", gpu_names())
def test_profiles_obey_physics_and_say_where_they_come_from(name: str) -> None:
    profile = load_profile(name)
    fractions = [rate.fraction for rate in profile.gemm.rates]
    fractions += [tile.efficiency for tile in profile.gemm.tiles]
    fractions += [rate for curve in profile.attention for _, rate in (*curve.forward, *curve.backward)]
    fractions += [
        profile.memory.stream_efficiency,
        profile.memory.pointwise_efficiency,
        profile.clock_fraction,
    ]
    assert all(0 < fraction <= 1 for fraction in fractions)
    records: list[Any] = [profile.gemm.provenance, profile.memory.provenance]
    records += [item.provenance for item in profile.gemm.rates]
    records += [item.provenance for item in profile.attention]
    for record in records:
        assert record.source
        # Measured or carried: nothing else exists, and a measured curve states its residual.
        assert record.carried or record.points > 0
        assert record.carried or record.points == 1 or record.p90_residual is not None


@given(gemms, gpus)
def test_gemm_is_bounded_by_peak_and_by_hbm(gemm: Gemm, name: str) -> None:
    gpu, time_s = get_gpu(name), seconds(gemm, name)
    assert time_s > 0
    assert gemm.flops / time_s <= gpu.peak_flops[gemm.dtype]
    assert gemm.hbm_bytes / time_s <= gpu.hbm_bytes_per_s


@given(gemms, gpus, st.sampled_from(("m", "n", "k", "batch")))
def test_a_doubled_gemm_is_no_faster(gemm: Gemm, name: str, dimension: str) -> None:
    doubled = replace(gemm, **{dimension: 2 * getattr(gemm, dimension)})
    assert seconds(doubled, name) >= seconds(gemm, name) * (1 - 1e-12)


@given(gemms, gpus)
def test_accumulating_in_fp32_costs_more(gemm: Gemm, name: str) -> None:
    plain = replace(gemm, out_bytes=2, accumulate=False)
    accumulated = replace(gemm, out_bytes=4, accumulate=True)
    assert seconds(accumulated, name) > seconds(plain, name)


@given(gemms)
def test_an_output_moves_in_16_bit_and_what_is_beyond(gemm: Gemm) -> None:
    moved_bytes = gemm.hbm_bytes - replace(gemm, out_bytes=0).hbm_bytes
    narrow_bytes, wide_bytes = output_bytes(gemm)
    assert narrow_bytes + wide_bytes == pytest.approx(moved_bytes)
    assert (wide_bytes > 0) == (gemm.out_bytes > 2)


def test_gradients_in_fp32_show_more_the_fewer_tokens_they_sum_over() -> None:
    """A GEMM of K tokens is longer by the HBM time of what FP32 moves beyond 16 bit, whatever K; under the
    power limit by less, since tensor cores rest meanwhile."""
    gpu, limited = get_gpu("A100-SXM4-80GB"), load_profile("A100-SXM4-80GB")
    profile = replace(limited, power_limited=0.0)
    beyond_s = 2 * 2 * 8192 * 8192 / (profile.memory.stream_efficiency * gpu.hbm_bytes_per_s)
    for tokens in (4096, 16384, 65536):
        plain = Gemm(m=8192, n=8192, k=tokens)
        fp32 = replace(plain, out_bytes=4, accumulate=True)
        added_s = kernel_seconds(fp32, gpu, profile) - kernel_seconds(plain, gpu, profile)
        assert added_s == pytest.approx(beyond_s, rel=0.1)
        assert 0 < kernel_seconds(fp32, gpu, limited) - kernel_seconds(plain, gpu, limited) < added_s


@pytest.mark.parametrize(
    ("name", "dtype", "slower"),
    [
        ("H100-SXM5-80GB", "fp8", True),
        ("L40S", "fp8", True),
        ("B200-SXM-180GB", "fp8", False),
        ("H100-SXM5-80GB", "fp8_block", False),
        ("H100-SXM5-80GB", "bf16", False),
    ],
)
def test_precise_sums_of_8_bit_take_longer_where_tensor_cores_keep_few_bits(
    name: str, dtype: str, slower: bool
) -> None:
    plain = Gemm(m=8192, n=8192, k=8192, dtype=dtype)
    ratio = seconds(replace(plain, precise=True), name) / seconds(plain, name)
    assert 1.03 < ratio < 1.1 if slower else ratio == 1.0


@given(gpus)
def test_an_unaligned_gemm_is_slower_than_the_padded_one(name: str) -> None:
    # GPT-2's vocabulary, and the one that Megatron pads it to.
    assert seconds(Gemm(m=4096, n=50257, k=1600), name) > seconds(Gemm(m=4096, n=50304, k=1600), name)


@given(st.floats(0.001, 1e4), st.floats(0, 1))
def test_waves_lie_between_their_share_and_the_next_whole(waves: float, quantisation: float) -> None:
    assert max(1.0, waves) <= filled_waves(waves, quantisation) <= max(1.0, waves + 1.0)


@given(attentions(), gpus)
def test_attention_is_bounded_by_peak_and_by_hbm(kernel: Attention, name: str) -> None:
    gpu, time_s = get_gpu(name), seconds(kernel, name)
    assert kernel.flops / time_s <= gpu.peak_flops["bf16"]
    assert hbm_bytes(kernel, gpu) / time_s <= gpu.hbm_bytes_per_s


@given(attentions(), gpus)
def test_a_causal_mask_saves_and_backward_costs(kernel: Attention, name: str) -> None:
    assert seconds(replace(kernel, causal=True), name) <= seconds(replace(kernel, causal=False), name)
    backward, forward = replace(kernel, direction="backward"), replace(kernel, direction="forward")
    assert seconds(backward, name) > seconds(forward, name)


@given(attentions(), gpus, st.sampled_from(("batch", "heads", "seq")))
def test_more_attention_is_no_faster(kernel: Attention, name: str, dimension: str) -> None:
    if dimension == "seq":
        doubled = replace(kernel, seq_q=2 * kernel.seq_q, seq_kv=2 * kernel.seq_kv)
    else:
        doubled = replace(kernel, **{dimension: 2 * getattr(kernel, dimension)})
    assert seconds(doubled, name) >= seconds(kernel, name) * (1 - 1e-12)


@given(attentions(), gpus)
def test_grouped_queries_save_bytes_and_no_flops(kernel: Attention, name: str) -> None:
    all_heads = replace(kernel, kv_heads=kernel.heads)
    assert kernel.flops == all_heads.flops
    assert hbm_bytes(kernel, get_gpu(name)) <= hbm_bytes(all_heads, get_gpu(name))


@given(attentions(), st.floats(48e3, 256e3), st.sampled_from((0.0, 40e6)), st.sampled_from((1, 108)))
def test_more_sram_never_moves_more(
    kernel: Attention, sram_bytes: float, l2_bytes: float, tiles: int
) -> None:
    def moved(sram: float) -> float:
        return tiled_hbm_bytes(kernel, sram_bytes=sram, l2_bytes=l2_bytes, concurrent_tiles=tiles)

    assert moved(2 * sram_bytes) <= moved(sram_bytes) * (1 + 1e-12)
    assert moved(sram_bytes) >= kernel.hbm_bytes


def test_traffic_falls_as_flash_attention_says() -> None:
    """Re-reads go as head_dim^2 N^2 / SRAM with one tile at a time and no L2 (Dao 2022, theorem 2)."""
    kernel = Attention(
        batch=1,
        seq_q=65536,
        seq_kv=65536,
        heads=1,
        kv_heads=1,
        head_dim=64,
        causal=False,
        implementation="fa2",
    )

    def reread(kernel: Attention, sram_bytes: float) -> float:
        moved = tiled_hbm_bytes(kernel, sram_bytes=sram_bytes, l2_bytes=0.0, concurrent_tiles=1)
        return moved - kernel.hbm_bytes

    base = reread(kernel, 96 * 1024)
    assert reread(kernel, 192 * 1024) == pytest.approx(base / 2, rel=0.02)
    assert reread(replace(kernel, head_dim=128), 96 * 1024) == pytest.approx(4 * base, rel=0.02)
    long = replace(kernel, seq_q=2 * kernel.seq_q, seq_kv=2 * kernel.seq_kv)
    assert reread(long, 96 * 1024) == pytest.approx(4 * base, rel=0.02)


@given(attentions(), gpus)
def test_fused_attention_moves_less_than_the_unfused_chain(kernel: Attention, name: str) -> None:
    """Unfused, the 16-bit scores are written, read by softmax, written and read again; backward likewise."""
    forward = replace(kernel, direction="forward")
    scores = kernel.batch * kernel.heads * kernel.seq_q * kernel.seq_kv * 2.0
    assert hbm_bytes(forward, get_gpu(name)) <= forward.hbm_bytes + 4 * scores


def test_tiles_fit_in_sram() -> None:
    kernel = Attention(batch=1, seq_q=4096, seq_kv=4096, heads=8, kv_heads=8, head_dim=128, causal=True)
    for name in gpu_names():
        sram_bytes = get_gpu(name).sram_bytes_per_sm
        assert 3 * tile_rows(kernel, sram_bytes) * 128 * 2 <= sram_bytes


@given(st.floats(1.0, 1e11), st.integers(1, 50), gpus)
def test_memory_bound_kernels_pay_bytes_and_launches(moved: float, launches: int, name: str) -> None:
    gpu, one = get_gpu(name), MemoryBound(hbm_bytes=moved)
    assert moved / seconds(one, name) < gpu.hbm_bytes_per_s
    assert seconds(replace(one, hbm_bytes=2 * moved), name) > seconds(one, name)
    fixed_s = seconds(replace(one, launches=launches + 1), name) - seconds(
        replace(one, launches=launches), name
    )
    assert fixed_s >= load_profile(name).kernel_latency_s * (1 - 1e-6)


@given(gemms, gpus, st.floats(0.5, 0.99))
def test_a_lower_clock_is_never_faster(gemm: Gemm, name: str, clock: float) -> None:
    profile = load_profile(name)
    slower = replace(profile, clock_fraction=profile.clock_fraction * clock)
    assert kernel_seconds(gemm, get_gpu(name), slower) >= seconds(gemm, name)


def test_what_a_gpu_lacks_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="A100-SXM4-80GB has no fp8"):
        seconds(Gemm(m=128, n=128, k=128, dtype="fp8"), "A100-SXM4-80GB")
    hopper_only = Attention(
        batch=1, seq_q=128, seq_kv=128, heads=1, kv_heads=1, head_dim=64, causal=True, implementation="fa3"
    )
    with pytest.raises(ValueError, match=r"'fa3'.*fa2"):
        seconds(hopper_only, "A100-SXM4-80GB")


def test_clocks_that_no_step_shows_are_the_median_of_those_that_are_fitted() -> None:
    profiles = [load_profile(name) for name in profile_names()]
    fitted = [one.clock_fraction for one in profiles if one.step_time_fit.startswith("fitted: ")]
    assert len(fitted) == 5
    carried = [
        one for one in profiles if one.step_time_fit.startswith("carried: the median of the five clocks")
    ]
    assert {one.gpu for one in carried} == {"MI300X", "MI325X", "MI350X", "MI355X"}
    assert {one.clock_fraction for one in carried} == {median(fitted)}


def test_in_range_is_the_measured_range() -> None:
    profile = load_profile("A100-PCIe-80GB")
    assert in_range(Gemm(m=4096, n=4096, k=4096), profile)
    assert not in_range(Gemm(m=4096, n=4096, k=32), profile)
    attention = Attention(batch=1, seq_q=4096, seq_kv=4096, heads=8, kv_heads=8, head_dim=128, causal=True)
    assert in_range(attention, load_profile("H100-SXM5-80GB"))
    assert in_range(replace(attention, seq_q=16384, seq_kv=16384), load_profile("H100-SXM5-80GB"))
    assert not in_range(replace(attention, seq_q=131072, seq_kv=131072), load_profile("H100-SXM5-80GB"))


@pytest.mark.parametrize(("implementation", "head_dim", "compiled"), [("fa1", 80, 128), ("fa2", 80, 96)])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_heads_of_a_size_that_no_kernel_has_take_what_the_next_larger_take(
    implementation: str, head_dim: int, compiled: int, direction: str
) -> None:
    """FlashAttention fills them up: the same GEMMs, of zeros in part."""
    shape = {"batch": 8, "seq_q": 8192, "seq_kv": 8192, "heads": 32, "kv_heads": 32, "causal": True}
    small, large = (
        Attention(head_dim=dim, implementation=implementation, direction=direction, **shape)  # type: ignore[arg-type]
        for dim in (head_dim, compiled)
    )
    assert kernel_head_dim(small) == kernel_head_dim(large) == compiled
    taken = seconds(small, "A100-SXM4-80GB"), seconds(large, "A100-SXM4-80GB")
    assert taken[0] == pytest.approx(taken[1], rel=0.02)
    assert kernel_head_dim(replace(small, implementation="cudnn")) == head_dim
