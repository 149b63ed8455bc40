"""NCCL's channels and its own time model, by hand.

Numbers are those of the project's table of hardware facts (section 3), read in NCCL 2.28.9.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from nccl_communicators import A100, AG, AR, B200, GIB, H100, H800, A, P, choose, on, on_racks, seconds

from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.schedules import collectives
from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.schedules.transfers.group import RankGroup
from stepsim.sim.network.nccl.constants import ARCHITECTURES
from stepsim.sim.network.nccl.cost_model import TUNED, bus_gb_per_s, bytes_per_s, latency_us
from stepsim.sim.network.nccl.paths import ChannelPaths, Communicator, communicator_on, ring_within_a_node

# Channels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "nodes", "channels", "gb_per_s", "of_the_communicator"),
    [
        (A100, 1, 12, 20, 24),
        (H100, 1, 12, 30, 24),
        (H800, 1, 8, 20, 16),
        (B200, 1, 16, 45, 32),
        (A100, 2, 8, 24, 16),
        (H100, 2, 8, 48, 16),
        (B200, 4, 8, 48, 16),
    ],
)
def test_the_channels_of_known_systems(
    gpu: str, nodes: int, channels: int, gb_per_s: float, of_the_communicator: int
) -> None:
    """Section 3.2: ring C x bw, and the communicator's channels as logs print them."""
    comm = on(gpu, nodes)
    assert comm.ring.channels == channels
    assert comm.ring.intra_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert comm.channels == of_the_communicator


def test_the_search_gives_up_far_below_the_best_rate_so_far() -> None:
    """54 GB/s bear 3 channels of 18, but 40 comes first and 18 is less than 0.49 of it: 1 x 40, doubled."""
    paths = ring_within_a_node(ARCHITECTURES["ampere"], 54e9)
    assert paths == ChannelPaths(channels=2, intra_bytes_per_s=20e9, inter_bytes_per_s=20e9)


@pytest.mark.parametrize(("gpu", "gb_per_s"), [(H100, 40), (B200, 80)])
def test_nvls_has_a_head_for_each_gpu(gpu: str, gb_per_s: float) -> None:
    paths = on(gpu, 1).nvls
    assert paths == ChannelPaths(channels=8, intra_bytes_per_s=gb_per_s * 1e9, inter_bytes_per_s=0.0)


def test_nvls_needs_three_gpus_and_switches_that_multicast() -> None:
    assert on(H100, 1, local=2).nvls is None
    assert on(H100, 1, local=3).nvls is not None
    assert on(A100, 1).nvls is None


def test_nvls_carries_what_its_algorithm_says() -> None:
    """Heads + 1 of them, (n+1)/n payloads: the search and the transfers count the same link."""
    for gpu in (H100, B200):
        paths = on(gpu, 1).nvls
        assert paths is not None
        payload = paths.channels * paths.intra_bytes_per_s
        carried = collectives.get("nvls").plan("all_reduce", RankGroup(local=8)).traffic(0).sent
        assert payload * carried <= get_gpu(gpu).nccl_nvlink_bytes_per_s < payload * carried * 1.1


@pytest.mark.parametrize("gpu", [name for name in gpu_names() if get_gpu(name).vendor != "AMD"])
@pytest.mark.parametrize("domains", [1, 2])
def test_every_gpu_of_the_catalogue_has_channels(gpu: str, domains: int) -> None:
    """Also pairs of cards, whose hosts NVLink does not join, and racks of 72."""
    local = max(2, on_racks(gpu, 1).nvlink_domain)
    comm = communicator_on(on_racks(gpu, domains), ranks=local * domains, domains=domains)
    assert 0 < comm.channels <= 32
    for kind in TUNED:
        assert 0 < choose(kind, GIB, comm).predicted_s < 1


# Bandwidths and latencies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "nodes", "algorithm", "bus"),
    [
        (A100, 1, A.RING, 240),
        (A100, 2, A.RING, 192),
        (H100, 1, A.RING, 360),
        (H100, 2, A.RING, 384),
        (H800, 1, A.RING, 160),
        (B200, 1, A.RING, 720),
        (H100, 1, A.NVLS, 476),
        (B200, 1, A.NVLS, 829),
        (H100, 2, A.NVLS_TREE, 462),
        (H100, 4, A.NVLS_TREE, 364),
        (B200, 2, A.NVLS_TREE, 768),
    ],
)
def test_the_bus_bandwidths_of_known_systems(gpu: str, nodes: int, algorithm: A, bus: float) -> None:
    """Section 3.2, columns "ring C x bw (bus)" and "NVLS"."""
    comm = on(gpu, nodes)
    assert bus_gb_per_s(algorithm, P.SIMPLE, AR, comm) == pytest.approx(bus, rel=2e-3)
    factor = 2 * (comm.ranks - 1) / comm.ranks
    assert bytes_per_s(algorithm, P.SIMPLE, AR, comm) * factor == pytest.approx(bus * 1e9, rel=2e-3)


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol", "kind", "microseconds"),
    [
        (on(H100, 1), A.RING, P.SIMPLE, AR, 8.4 + 14 * 3.4),
        (on(H100, 1), A.RING, P.LL128, AG, 14.0 + 7 * 1.9),
        (on(H100, 4), A.RING, P.SIMPLE, AR, 8.4 + 56 * 3.4 + 6 * 14.0),
        (on(H100, 4), A.RING, P.LL, AG, 6.6 + 28 * 1.0 + 3 * 2.7),
        (on(H100, 4, cpu="amd"), A.RING, P.LL, AG, 6.6 + 28 * 2.0 + 3 * 2.7),
        (on(H100, 4, cpu="amd"), A.RING, P.SIMPLE, AG, 8.4 + 28 * 6.0 + 3 * 14.0),
        (on(H100, 4), A.TREE, P.LL, AR, 6.8 + 2 * (7 * 0.6 + 2 * 5.0)),
        (on(H100, 1), A.NVLS, P.SIMPLE, AR, 25.0),
        (on(H100, 4), A.NVLS_TREE, P.SIMPLE, AR, 25.0 + 4 * 20.9),
        (on(H100, 4, sharp=True), A.NVLS, P.SIMPLE, AR, 25.0 + 18.0),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AR, 2 * (3.7 + 7 * 0.4) + 31.0),
        (on(H100, 4, sharp=True), A.COLLNET_CHAIN, P.SIMPLE, AR, 14 * 2.8 + 30.0),
        (on(H100, 4, local=1), A.PAT, P.SIMPLE, AG, 8.0 + 2 * 14.0 / 3.5 + 2.8 * 4),
        (on(H100, 4, local=1), A.RING, P.LL, AG, 6.6 + 3 * 5.0),
        (on(H100, 1), A.RING, P.LL, CollectiveKind.BROADCAST, 6.6 + 0.6),
        (on(H100, 2), A.RING, P.SIMPLE, CollectiveKind.REDUCE, 8.4 + 14.0),
        (replace(on(H100, 2), same_channels=False), A.RING, P.SIMPLE, CollectiveKind.REDUCE, 8.4 + 16 * 14.0),
        (replace(on(H100, 1), nvlink=False), A.TREE, P.LL128, AR, 14.0 + 14 * 1.9),
        (replace(on(H100, 2), network_latency_s=3e-6), A.TREE, P.SIMPLE, AR, 8.4 + 2 * (28.0 + 14.0 + 6.0)),
    ],
)
def test_latencies_by_hand(
    comm: Communicator, algorithm: A, protocol: P, kind: CollectiveKind, microseconds: float
) -> None:
    """Section 3.1, "Latency (us) = base + terms"."""
    assert latency_us(algorithm, protocol, kind, comm) == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("comm", "algorithm", "protocol", "kind", "bus"),
    [
        (on(H100, 1), A.RING, P.LL, AR, 141.0),
        (on(H100, 2), A.RING, P.LL, AR, 39.0),
        (on(H100, 3, cpu="amd"), A.RING, P.LL, AR, 19.0),
        (on(H100, 1), A.RING, P.LL128, AG, 0.92 * 360),
        (on(H100, 2), A.RING, P.LL128, AG, 8 * 36.7),
        (on(H100, 2), A.TREE, P.SIMPLE, AR, 8 * 41.4),
        (on(A100, 3), A.TREE, P.SIMPLE, AR, 8 * 17.8),
        (on(A100, 1), A.TREE, P.LL128, AR, 0.92 * 240 * 7 / 9),
        (on(A100, 1), A.TREE, P.LL, AR, 0.92 * 240 / 3.8),
        (on(B200, 3), A.TREE, P.LL128, AR, 8 * 20.0),
        (on(H100, 1), A.NVLS, P.SIMPLE, AG, 320 * 0.85 * 7 / 8 * 7 / 8),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AR, 384 * 0.85),
        (on(H100, 4, sharp=True), A.COLLNET_DIRECT, P.SIMPLE, AG, 8 * 0.9 * 48),
        (on(H100, 4, local=1), A.PAT, P.SIMPLE, AG, 0.75 * 48),
        (on(H100, 4, local=1), A.TREE, P.SIMPLE, AR, 0.85 * 0.92 * 48),
    ],
)
def test_bandwidths_by_hand(
    comm: Communicator, algorithm: A, protocol: P, kind: CollectiveKind, bus: float
) -> None:
    """Section 3.1, "Bandwidth (v2.28.9)" and the table of constants."""
    assert bus_gb_per_s(algorithm, protocol, kind, comm) == pytest.approx(bus, rel=1e-3)


def test_the_rate_between_nodes_counts_from_three_nodes_on() -> None:
    uneven = ChannelPaths(channels=4, intra_bytes_per_s=40e9, inter_bytes_per_s=20e9)
    two, three = (replace(on(H100, nodes, sharp=True), ring=uneven) for nodes in (2, 3))
    assert bus_gb_per_s(A.RING, P.SIMPLE, AR, two) == 160
    assert bus_gb_per_s(A.RING, P.SIMPLE, AR, three) == 80
    # CollNet: always the rate within; and with two GPUs to a NIC 1.5 times the bytes.
    assert bus_gb_per_s(A.COLLNET_CHAIN, P.SIMPLE, AR, three) == 160
    assert bus_gb_per_s(A.COLLNET_DIRECT, P.SIMPLE, AR, three) == pytest.approx(160 / 1.5 * 0.85)


def test_corrections_by_size() -> None:
    """A tree at 1 MB has half of its bandwidth (2^14 times 64 B); a ring between nodes more latency."""
    one, many = on(H100, 1), on(H100, 2)
    rate = bytes_per_s(A.TREE, P.SIMPLE, AR, one)
    at_a_megabyte = seconds(A.TREE, P.SIMPLE, AR, 1 << 20, one)
    assert at_a_megabyte == pytest.approx(64.4e-6 + (1 << 20) / (0.5 * rate))
    assert seconds(A.TREE, P.SIMPLE, AR, 1 << 29, one) == pytest.approx(64.4e-6 + (1 << 29) / rate)
    assert seconds(A.TREE, P.SIMPLE, AR, 63, one) == pytest.approx(64.4e-6 + 63 / rate, rel=1e-9)
    ring = bytes_per_s(A.RING, P.SIMPLE, AR, many)
    assert seconds(A.RING, P.SIMPLE, AR, 64 * 256, many) == pytest.approx(1.4 * 131.6e-6 + 64 * 256 / ring)
    assert seconds(A.RING, P.SIMPLE, AR, 64 * 255, many) == pytest.approx(131.6e-6 + 64 * 255 / ring)
