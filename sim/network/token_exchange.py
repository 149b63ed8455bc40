"""The exchange that brings copies of tokens to experts, and their results back.

``alltoall``: NCCL's grouped messages; every copy travels by itself. ``deepep``: DeepSeek's kernels, and
``hybridep`` NVIDIA's beside them, which take a whole NVLink domain for one host; a token crosses the network
once for each host that has one of its experts, to the GPU of the same rail, and goes on over NVLink once for
each GPU that has one. Knows bytes and rates; not what experts compute.

How many hosts and GPUs a token visits is the expectation over a balanced router: its experts are drawn
without repetition from those of all hosts, or of ``node_limit`` hosts. Where domains hold different numbers
of ranks, experts, tokens and NICs are shared out alike, and the busiest NIC decides. Benchmarks that take
experts in turn (``Router.in_turn``) send a token to neighbours, and so to few ranks.

References:
    NCCL: hardware.md section 3.4 and algorithms.py. DeepEP: github.com/deepseek-ai/DeepEP, README
    (performance of normal kernels: H800, 4,096 tokens of 7,168, top-8 in top-4 groups) and
    docs/legacy.md; DeepSeek-V3, arXiv:2412.19437 section 3.2.2 (20 SMs; at most four hosts a token).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from .collectives import collective_transfer
from .transfer import Transfer

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from .group_placement import GroupPlacement

_Kernels = Literal["first", "elastic", "hybrid"]
"""DeepEP's first and second release, and HybridEP."""

# Of the line rate. NVLink: H800 153 to 158 of 200 GB/s, H100 320 to 332 of 450, Blackwell 643 to 740 of 900
# with the second release's kernels, which few trainers call (NVIDIA/Megatron-LM pull requests 4632, 5153).
# What the first one's take of NVLink between hosts is hidden by the network (B200 over EFA: 78 GB/s).
# Network: tokens for EP32 and EP64 count 58 and 51 GB/s, of which 3/4 and 7/8 leave the host: 44 of 50.
_NVLINK_SHARE = {"ampere": 0.75, "hopper": 0.75, "blackwell": 0.8}
# Within one host of Blackwell the first release's best count 169 and 135 GB/s on four GB200 for dispatch
# and combine on 24 SMs with its own buffers; 3/4 leave the GPU: 127 and 101 of 900 (deepseek-ai/DeepEP
# issue 394). Trainers take its own buffers (NVIDIA/Megatron-LM issue 4316); on 128 SMs, with twice the
# buffers, B200 counts 517 and 486 (NousResearch/torchtitan at 8b4b03d3, distributed/deepep/utils.py). That
# repository's table has 153 and 158 for B200 on 24 SMs, to the digit what DeepEP prints of H800: it is not
# taken as a measurement.
_ONE_HOST_SHARES = {"blackwell": 0.125}
_NETWORK_SHARE = 0.88
# Over EFA with NVSHMEM, whose NICs promise no order, of the usable rate. Where a GPU has several, over which
# messages are spread unevenly (NVIDIA/nvshmem pull 76): EP32 and EP64 on H100 count 43.7 and 46.1, 39.6 and
# 39.2 GB/s for dispatch and combine, of which 33 to 35 of 47 leave the host, on B300 97.1 and 95.4, 84.2 and
# 73.1, 64 to 74 of 94. Where it has one: EP16 and EP32 on B200 78.1 and 78.6, 56.9 and 55.8, 39 to 43 of 47
# (awslabs/awsome-distributed-ai at 46793a8d, micro-benchmarks/expert-parallelism/ep-backend-comparison).
_NETWORK_SHARES = {"efa": 0.72}
_ONE_NIC_SHARES = {"efa": 0.87}
# Over EFA a GPU cannot post its own messages: NVSHMEM's thread on the host does, one for each GPU. Where each
# copy of a token is a message (low-latency kernels, 128 tokens of 7,168, top-8), a copy that leaves the host
# takes 0.8 to 1.3 us, whatever its bytes and the GPU: H100 with EP32 and EP64 9.6 and 6.5 (8 bit), 20.7 and
# 15.6 GB/s (16 bit), B300 11.2 and 9.2, 25.2 and 18.6; B200 with EP16 and EP32, both ways, 1,018 and 1,554 us
# in 8 bit, 1,030 and 1,559 in 16 (awslabs/awsome-distributed-ai, ep-backend-comparison: RESULTS-p5.md and
# RESULTS.md at 46793a8d, RESULTS.md at 02328418).
_MESSAGE_S = {"efa": 1.0e-6}
# The kernels of training send chunks of tokens: the chunk, the signal of its tail, and the head that its
# receiver sends back (csrc/kernels/internode.cu, kRDMASenderCoordinator and kForwarderCoordinator).
_MESSAGES_A_CHUNK = 3
# Tokens of a chunk of dispatch and of combine, by the most ranks for which they hold (deep_ep/buffer.py at
# 567632d, get_dispatch_config and get_combine_config). DeepEP's own test tries chunks of 4 to 32 instead.
_CHUNKS = {16: (20, 12), 64: (8, 8), 160: (12, 8)}
# Before tokens may go the hosts meet twice (notify_dispatch and cached_notify), each time in log2 of their
# number rounds: 126 and 311 us on two and four hosts of B200 over EFA (RESULTS-b200.md at 46793a8d: latency
# less bytes over bandwidth, the mean of dispatch in 8 and 16 bit and combine).
_MEETING_ROUND_S = {"efa": 7.0e-5}
DEEPEP_SMS = 20
# DeepEP is made for eight GPUs that NVLink joins (csrc/kernels/configs.cuh, NUM_MAX_NVL_PEERS). Built for 32
# of a GB200 NVL72 (its pull request 218) it counts 400 GB/s of tokens to GPUs for dispatch, 190 for combine;
# each pass has one of each, or their gradients (Megatron-LM docs/discussions,
# deepseek-v3-gb200-optimization.md, 2.2.1).
_NVLINK_PEERS = 8
_WIDE_BYTES_PER_S = 2 / (1 / 400e9 + 1 / 190e9)

# HybridEP's kernels, of the line rate: B200 735 and 674 GB/s on 8 GPUs, GB200 764 and 737 on 8 and 642 and
# 605 on 32 (dispatch and combine in 16 bit; 7/8 and 31/32 of it leave the GPU), the mean over 8 to 36 GPUs;
# H100 as DeepEP. Recipes give it 32 SMs (deepseek-ai/DeepEP docs/README_Hybrid-EP.md; Megatron-Bridge,
# moe_hybridep_num_sms).
_HYBRIDEP_NVLINK_SHARE = {"blackwell": 0.70}
HYBRIDEP_SMS = 32
# Over the network it does as DeepEP, but between two hosts: H100, 4,096 tokens of 7,168 in 16 bit, top-8,
# eight experts a GPU, 16 SMs, kernels alone, GB/s of tokens to hosts for dispatch and combine: EP16 71.7 and
# 63.0, EP32 57.7 and 57.5, EP64 50.0 and 49.8, of which 1/2, 3/4 and 7/8 leave the host: 34, 43 and 44 of 50
# (the same README at 41cad944).
# Of other architectures nobody has published two hosts.
_HYBRIDEP_TWO_HOSTS = {"hopper": 0.67}
# A dispatch or combine of few tokens: low-latency kernels of EP8, 77 us and 114 us, less the bytes' own time.
_LATENCY_S = 3.0e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Where tokens may go: ``topk`` of ``experts``, on at most ``node_limit`` hosts, ``copies`` of each.

    ``in_turn``: to the ``topk`` that follow those of the token before, whatever a limit of hosts says.
    """

    experts: int
    topk: int
    copies: float
    node_limit: int | None = None
    in_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """What a token visits on average: domains and GPUs, its own among them."""

    domains: float
    gpus: float


def visits(router: Router, placement: GroupPlacement) -> Visits:
    """Expected visits of a token of a group that holds the experts evenly."""
    if router.in_turn:
        shares = visited_in_turn(router.experts, router.topk, (1,) * placement.ranks)
        return Visits(domains=sum(_domain_hits(router, placement)), gpus=sum(shares))
    domains, gpus = _reach(router, placement)
    hits = _domain_hits(router, placement)
    each = domains * placement.ranks / placement.domains if placement.parts else domains * placement.fewest
    return Visits(
        domains=domains * (sum(hits) / len(hits) if placement.parts else hits[0]),
        gpus=each * hit_probability(gpus, router.experts // placement.ranks, router.topk),
    )


def _reach(router: Router, placement: GroupPlacement) -> tuple[int, int]:
    """Domains that a token may go to, and how many experts these hold in the mean."""
    if router.in_turn:
        return placement.domains, router.experts
    least = math.ceil(router.topk * placement.domains / router.experts)  # a token's experts must have room
    domains = min(placement.domains, max(least, router.node_limit or placement.domains))
    return domains, router.experts * domains // placement.domains


def _domain_hits(router: Router, placement: GroupPlacement) -> list[float]:
    """For each domain, the probability that a token is sent there, of tokens that may be."""
    _, reachable = _reach(router, placement)
    parts = placement.parts or (placement.fewest,) * placement.domains
    if router.in_turn:
        return list(visited_in_turn(router.experts, router.topk, parts))
    return [
        hit_probability(reachable, part * router.experts // placement.ranks, router.topk) for part in parts
    ]


def _nic_copies(router: Router, placement: GroupPlacement) -> float:
    """Copies of a token through the busiest NIC, of those that a rank has one of each: out of its domain, or
    into it, where the NICs of a domain share what comes for its experts.
    """
    if not placement.parts:
        return visits(router, placement).domains * (placement.domains - 1) / placement.domains
    share = _reach(router, placement)[0] / placement.domains
    visited = [share * hit for hit in _domain_hits(router, placement)]
    into = (
        there * (placement.ranks - part) / part for there, part in zip(visited, placement.parts, strict=True)
    )
    return max(sum(visited) - min(visited), *into)


@lru_cache(maxsize=64)
def visited_in_turn(experts: int, topk: int, parts: tuple[int, ...]) -> tuple[float, ...]:
    """For each of ``parts``, which hold experts in proportion and one after the other, the share of tokens
    that go there, where each goes to the ``topk`` experts that follow those of the token before.

    >>> visited_in_turn(128, 8, (1,) * 8) == (1 / 8,) * 8
    True
    >>> visited_in_turn(256, 8, (1,) * 64) == (2 / 64,) * 64
    True
    """
    ends = [sum(parts[: last + 1]) * experts // sum(parts) for last in range(len(parts))]
    turns = experts // math.gcd(experts, topk)
    hits = [0] * len(parts)
    for turn in range(turns):
        chosen = {(turn * topk + one) % experts for one in range(topk)}
        for part in {bisect_right(ends, expert) for expert in chosen}:
            hits[part] += 1
    return tuple(hit / turns for hit in hits)


def hit_probability(experts: int, here: int, topk: int) -> float:
    """Probability that one of ``topk`` of ``experts``, any as likely as the others, is among the ``here``."""
    if here >= experts:
        return 1.0
    return 1.0 - math.comb(experts - here, topk) / math.comb(experts, topk)


def token_exchange(
    token_bytes: float,
    tokens: float,
    router: Router,
    placement: GroupPlacement,
    cluster: Cluster,
    dispatcher: str,
    *,
    elastic: bool = False,
) -> Transfer:
    """A dispatch or combine where every rank has ``tokens`` of ``token_bytes`` together, one copy of each.

    ``elastic``: DeepEP is its second release, where the dispatcher is DeepEP.
    """
    if dispatcher == "alltoall":
        sent = collective_transfer("all_to_all", token_bytes * router.copies, placement, cluster)
        return replace(sent, latency_s=cluster.latency * sent.latency_s) if cluster.latency != 1.0 else sent
    kept = router.copies / router.topk
    kernels: _Kernels = "hybrid" if dispatcher == "hybridep" else "elastic" if elastic else "first"
    return _deepep(token_bytes * kept, tokens * kept, router, placement, cluster, kernels)


def _deepep(
    token_bytes: float,
    tokens: float,
    router: Router,
    placement: GroupPlacement,
    cluster: Cluster,
    kernels: _Kernels,
) -> Transfer:
    hybrid = kernels == "hybrid"
    visited = visits(router, placement)
    nic = _nic_copies(router, placement) if cluster.nodes > 1 else 0.0
    nvlink = visited.gpus * (placement.most - 1) / placement.most
    share = _nvlink_share(cluster, placement, kernels)
    inside = share * cluster.gpu.nvlink_bytes_per_s / nvlink if nvlink else math.inf
    if placement.most > _NVLINK_PEERS and not hybrid:
        inside = min(inside, _WIDE_BYTES_PER_S / visited.gpus)
    outside, meeting_s = math.inf, 0.0
    if nic:
        share = _network_share(cluster, placement, kernels)
        outside = share * cluster.nic_bytes_per_s_per_gpu / nic
        meeting_s = 2 * cluster.interconnect.latency_s
    if nic and not hybrid and (network := cluster.interconnect.kind) in _MESSAGE_S:
        posting_s = _messages(tokens * nic, placement.ranks) * _MESSAGE_S[network]
        outside = min(outside, token_bytes / posting_s)
        meeting_s = 2 * math.ceil(math.log2(placement.domains)) * _MEETING_ROUND_S[network]
    weights: tuple[tuple[str, float], ...] = (("nvlink.out", nvlink), ("nvlink.in", nvlink)) if nvlink else ()
    if nic:
        weights += (("nic.out", nic), ("nic.in", nic))
    latency_s = cluster.latency * (_LATENCY_S + meeting_s)
    tier = "nic" if outside < inside else "nvlink"
    sms = min(HYBRIDEP_SMS if hybrid else DEEPEP_SMS, cluster.gpu.sms)
    return Transfer(latency_s, token_bytes, min(inside, outside), weights, sms, "rails", tier)


def _nvlink_share(cluster: Cluster, placement: GroupPlacement, kernels: _Kernels) -> float:
    """Share of NVLink's rate that exchanges of tokens reach."""
    shares = _NVLINK_SHARE
    if kernels == "hybrid":
        shares = shares | _HYBRIDEP_NVLINK_SHARE
    elif kernels == "first" and placement.domains == 1 and placement.most <= _NVLINK_PEERS:
        shares = shares | _ONE_HOST_SHARES
    return shares.get(cluster.gpu.collectives_as, 0.75)


def _network_share(cluster: Cluster, placement: GroupPlacement, kernels: _Kernels) -> float:
    """Share of the usable rate of a GPU's NICs that exchanges of tokens reach."""
    network = cluster.interconnect
    several = network.links_per_host > cluster.gpus_per_node
    found = (_NETWORK_SHARES if several else _ONE_NIC_SHARES).get(network.kind, _NETWORK_SHARE)
    pair = kernels == "hybrid" and placement.domains == 2 and placement.most <= _NVLINK_PEERS
    return min(found, _HYBRIDEP_TWO_HOSTS.get(cluster.gpu.collectives_as, found)) if pair else found


def _messages(sent: float, ranks: int) -> float:
    """Messages of a dispatch or combine that sends so many tokens off its host, in the mean of the two."""
    chunks = next((chunk for most, chunk in _CHUNKS.items() if ranks <= most), _CHUNKS[160])
    return _MESSAGES_A_CHUNK * sent * sum(1 / tokens for tokens in chunks) / len(chunks)
