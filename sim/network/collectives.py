"""What one collective costs on the cluster: latency, ceiling, and the weight it puts on each link.

Takes the algorithm and protocol that NCCL chooses (``selection``), whose costs are in ``algorithms`` and
``unlogged_algorithms``, and knows point-to-point messages. Payload and bus bandwidth are nccl-tests': a
collective on ``n`` ranks moves 2(n-1)/n bytes per payload byte for all_reduce, (n-1)/n for all_gather and
reduce_scatter (payload: the whole buffer).

References:
    nccl-tests doc/PERFORMANCE.md (bus bandwidth).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ...hardware.collectives import CollectiveConstants, collective_constants
from .algorithms import ALGORITHMS, logged
from .checks import check_s, mean_call_s
from .curve import Curve
from .group_placement import GroupPlacement, payload_factor, placement_in_a_row
from .nccl.settings import NCCL_DEFAULTS, NcclSettings
from .place import Place, on_network, place_of, share_above_the_leaf
from .selection import named, quickest, selected_curve, selected_curves
from .transfer import Transfer

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from .measured import MeasuredNetwork

Distance = Literal["domain", "host", "unit", "fabric"]
"""How far a message goes: one NVLink domain, one host, hosts on the same leaf switches, beyond."""

_PATTERNS = {"ring": "ring", "tree": "tree", "nvls_tree": "tree", "pairs": "pairs"}
"""Who sends to whom over the network, by algorithm (patterns.py). Others as a ring: nvls stays inside a
domain, and pat sends half of its bytes to the next, a quarter two on, ever less farther."""

IN_CLUSTERS = ("hopper", "blackwell", "rubin")
"""Architectures on which cuBLAS launches GEMMs as clusters of blocks (compute capability 9 and 10). Where
blocks have no multicast, as on workstations' Blackwell (12.0), a cluster is one block (NVIDIA/cutlass
media/docs/cpp/blackwell_functionality.md, Blackwell SM120 GEMMs)."""

REFERENCE_BYTES = float(1 << 30)
"""Payload of the job-wide measurements that a scenario may carry (1 GiB of FP32)."""

CHECKS_SHOWN, LINKS_SLOW = 0.75, 5.0
"""Shares of what a check adds. Of 488 jobs of the Ultra-Scale Playbook's sweep, those that were not checked
spread over half of it (449 to 462 GB/s inside a host), those that were lie at 1.4 to 4 of it (385 to 430):
their all-gathers and reduce-scatters inside the host, which are not read here, tell the same jobs apart."""


def collective_transfer(
    kind: str,
    payload_bytes: float,
    placement: GroupPlacement,
    cluster: Cluster,
    measured: MeasuredNetwork | None = None,
    nccl: NcclSettings = NCCL_DEFAULTS,
    *,
    checked: bool = False,
) -> Transfer:
    """``kind`` is all_reduce, all_gather, reduce_scatter, all_to_all, or one neighbour to the next: ring_step
    (userbuffers in an NVLink domain), neighbours (NCCL's send and receive, over whatever lies between).

    ``checked``: the calls that ``measured`` timed were checked (checks.py), and it is read accordingly.

    ValueError where ``nccl`` leaves NCCL nothing that the group can run.
    """
    if placement.ranks == 1:
        return Transfer(0.0, 0.0, math.inf)
    if kind == "ring_step" and placement.domains == 1:
        return ring_step_transfer(payload_bytes, cluster)
    if kind in ("ring_step", "neighbours"):  # userbuffers reach as far as NVLink does
        return neighbour_transfer(payload_bytes, placement, cluster)
    ratio = _measured_ratio(kind, placement, cluster, measured, nccl, checked=checked)
    place, ways = _surveyed(kind, placement, cluster, ratio)
    curve = selected_curve(kind, payload_bytes, place, ways, nccl)
    ceiling = payload_bytes / curve.transfer_s(payload_bytes) if payload_bytes else math.inf
    sms, pattern = _sms(curve.algorithm, placement, cluster), pattern_of(curve.algorithm)
    hbm = _hbm(placement, cluster)
    return Transfer(
        curve.latency_s, payload_bytes, ceiling, _weights(curve), sms, pattern, curve.binding, hbm
    )


_LARGE = 1e9
"""Bytes of a payload that is so large that latencies do not count."""
_TIMES_IN_HBM = 3.0
"""Bytes that a ring reads and writes at HBM for each byte that arrives; the source is in ``_hbm``."""


@lru_cache(maxsize=256)
def _hbm(placement: GroupPlacement, cluster: Cluster) -> int:
    """Thousandths of HBM's bandwidth that a collective takes of each member: what a ring of much does.

    What arrives is stored, read to be sent on, and written where the user wants it: three times the bytes of
    the links (NCCL's author, github.com/NVIDIA/nccl/issues/1428: at least two, with user data three).
    """
    _, ways = _surveyed("all_gather", placement, cluster, 1.0)
    quickest_s = min(way.transfer_s(_LARGE) for way in ways)
    arriving = (1 - 1 / placement.ranks) * _LARGE / quickest_s
    return round(1000 * min(1.0, _TIMES_IN_HBM * arriving / cluster.gpu.hbm_bytes_per_s))


def pattern_of(algorithm: str) -> str:
    """Who sends to whom over the network (patterns.py)."""
    return _PATTERNS.get(algorithm, "ring")


@lru_cache(maxsize=256)
def _surveyed(
    kind: str, placement: GroupPlacement, cluster: Cluster, ratio: float
) -> tuple[Place, tuple[Curve, ...]]:
    """The group's place and the logged curves there; kept, as a step asks for many sizes of few groups."""
    place = place_of(placement, cluster, collective_constants(), ratio)
    return place, logged(kind, place)


def collective_curve(
    kind: str,
    payload_bytes: float,
    placement: GroupPlacement,
    cluster: Cluster,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    nccl: NcclSettings = NCCL_DEFAULTS,
) -> Curve:
    """What runs for one of KINDS on an idle network; see ``selection`` for names and errors."""
    if kind == "sendrecv":
        name = None if algorithm is None else named(algorithm)
        return quickest([_neighbours(payload_bytes, placement, cluster)], payload_bytes, name, protocol)
    place = place_of(placement, cluster, collective_constants())
    return selected_curves(kind, [payload_bytes], place, algorithm=algorithm, protocol=protocol, nccl=nccl)[0]


def _neighbours(payload_bytes: float, placement: GroupPlacement, cluster: Cluster) -> Curve:
    """nccl-tests' sendrecv: each rank sends to the next; where some cross to another domain, those decide."""
    distance = _farthest(placement, cluster)
    sent = message_transfer(payload_bytes, distance, cluster)
    link = {"domain": "nvlink", "host": "pcie"}.get(distance, "nic")
    nvlink, nic = float(link == "nvlink"), float(link == "nic")
    return Curve(
        "pairs", "Simple", sent.latency_s, 1 / sent.ceiling_bytes_per_s, 0.0, nvlink, nic, link, 1, int(nic)
    )


def _farthest(placement: GroupPlacement, cluster: Cluster) -> Distance:
    if not on_network(placement, cluster):
        return "domain" if placement.domains == 1 else "host"
    return "fabric" if placement.units > 1 else "unit"


def neighbour_transfer(payload_bytes: float, placement: GroupPlacement, cluster: Cluster) -> Transfer:
    """Every rank of a ring sends to the next and receives from the one before; the farthest hop decides."""
    sent = message_transfer(payload_bytes, _farthest(placement, cluster), cluster)
    weights = tuple((f"{link}.{way}", share) for link, share in sent.weights for way in ("out", "in"))
    ceiling = sent.ceiling_bytes_per_s
    return Transfer(sent.latency_s, payload_bytes, ceiling, weights, sent.sms, "neighbours", sent.binding)


def ring_step_transfer(payload_bytes: float, cluster: Cluster) -> Transfer:
    """One chunk to the next GPU of the NVLink domain, as userbuffers' ring exchange sends it (1 SM)."""
    rate = cluster.gpu.nccl_nvlink_bytes_per_s * cluster.share_of_links(2)
    latency = collective_constants().architectures[cluster.gpu.collectives_as].step_s
    return Transfer(
        latency, payload_bytes, rate, (("nvlink.out", 1.0), ("nvlink.in", 1.0)), 1, "ring", "nvlink"
    )


def message_transfer(
    payload_bytes: float, distance: Distance, cluster: Cluster, *, messages: int = 1
) -> Transfer:
    """One point-to-point message; ``messages`` counts it and the small ones before it, each a latency."""
    p2p = collective_constants().point_to_point
    if distance == "domain":
        # Up to a size NCCL keeps to a few channels per peer; beyond, more channels keep the time level.
        few_channels = collective_constants().architectures[cluster.gpu.collectives_as].message_bytes_per_s
        rate = few_channels * max(1.0, payload_bytes / p2p.nvlink_few_channels_bytes)
        rate = min(
            rate, cluster.gpu.nccl_nvlink_bytes_per_s * cluster.share_of_links(2) * p2p.nvlink_efficiency
        )
        return Transfer(
            messages * p2p.nvlink_latency_s,
            payload_bytes,
            rate,
            (("nvlink", 1.0),),
            p2p.sms,
            binding="nvlink",
        )
    if distance == "host":
        rate = cluster.intra_node_bytes_per_s_per_gpu
        return Transfer(messages * p2p.nvlink_latency_s, payload_bytes, rate, (), p2p.sms, binding="pcie")
    share = 1.0 if distance == "unit" else share_above_the_leaf(1.0, cluster)
    # A channel has so many chunks on their way at once, whatever their size.
    most = p2p.network_bytes_per_s * cluster.interconnect.longer_chunks
    rate = min(most, cluster.nic_bytes_per_s_per_gpu * share)
    # The receiver says that it is ready, then the data come: two crossings besides NCCL's own time.
    latency_s = p2p.nvlink_latency_s + 2 * cluster.interconnect.latency_s
    return Transfer(messages * latency_s, payload_bytes, rate, (("nic", 1.0),), p2p.sms, binding="nic")


def _weights(curve: Curve) -> tuple[tuple[str, float], ...]:
    nvlink = (("nvlink.out", curve.nvlink), ("nvlink.in", curve.nvlink)) if curve.nvlink else ()
    return (*nvlink, ("nic.out", curve.nic), ("nic.in", curve.nic)) if curve.nic else nvlink


def _sms(algorithm: str, placement: GroupPlacement, cluster: Cluster) -> int:
    """SMs that kernels do without beside a collective, of whose channels each holds one.

    A cluster of blocks of which one finds no place waits, and what would hold its other blocks idles.
    """
    constants = collective_constants()
    rccl = constants.rccl_channels.get(cluster.gpu.architecture)
    if on_network(placement, cluster):
        channels = (rccl and rccl.network) or constants.sms["network"]
    elif rccl:
        channels = rccl.within(placement.ranks)
    else:
        channels = constants.sms["nvls" if algorithm == "nvls" else "node"]
    if cluster.gpu.architecture not in IN_CLUSTERS:
        return min(channels, cluster.gpu.sms)
    return min(constants.taken_in_clusters.get(channels, channels), cluster.gpu.sms)


def _measured_ratio(
    kind: str,
    placement: GroupPlacement,
    cluster: Cluster,
    measured: MeasuredNetwork | None,
    nccl: NcclSettings,
    *,
    checked: bool,
) -> float:
    """Measured bus bandwidth over predicted, at the size of the measurement and for its group (all GPUs).

    Between hosts it is held against what ``nccl`` runs there: a protocol may be slow where no link is.
    """
    if measured is None:
        return 1.0
    if on_network(placement, cluster):
        value = float(getattr(measured, f"{kind}_bytes_per_s") or 0.0)
        reference = placement_in_a_row(cluster.gpus, cluster.nvlink_domain, cluster.gpus_per_node)
    else:
        # The intra-host figures of all_gather and reduce_scatter contain copies of the list interface; the
        # state of the links is read off the all_reduce, which may not run as others are asked to.
        kind, value, nccl = "all_reduce", measured.all_reduce_intra_bytes_per_s or 0.0, NCCL_DEFAULTS
        reference = _without_network(cluster)
    if not value or reference.ranks < 2:
        return 1.0
    ideal = collective_transfer(kind, REFERENCE_BYTES, reference, cluster, nccl=nccl)
    if checked:
        mean_s = mean_call_s(ideal.solo_s, check_s(reference))
    else:
        mean_s = ideal.solo_s + _copies_s(kind, cluster, measured)
    return min(1.0, value / (REFERENCE_BYTES * payload_factor(kind, reference.ranks) / mean_s))


def _without_network(cluster: Cluster) -> GroupPlacement:
    """The GPUs of a whole NVLink domain, or of a host that has several."""
    ranks = max(cluster.nvlink_domain, min(cluster.gpus, cluster.gpus_per_node))
    return placement_in_a_row(ranks, cluster.nvlink_domain, cluster.gpus_per_node)


def _copies_s(kind: str, cluster: Cluster, measured: MeasuredNetwork) -> float:
    """Seconds that the list interface's copies of the reference payload took, as inside a host, where the
    links' part is known; they do not depend on the number of ranks. None in an all_reduce."""
    value, inside = float(getattr(measured, f"{kind}_intra_bytes_per_s") or 0.0), _without_network(cluster)
    ranks = inside.ranks
    if kind == "all_reduce" or not value or ranks < 2:
        return 0.0
    ideal = collective_transfer(kind, REFERENCE_BYTES, inside, cluster)
    return max(0.0, REFERENCE_BYTES * payload_factor(kind, ranks) / value - ideal.solo_s)


def shows_checks(measured: MeasuredNetwork, cluster: Cluster) -> bool:
    """Whether the calls that ``measured`` timed were checked (checks.py): the host's own all-reduce tells.

    Its links are those of every other host, so that what it takes longer than the model says is the call:
    at least CHECKS_SHOWN of what a check would add. Beyond LINKS_SLOW times that, links are slow.
    """
    value, host = measured.all_reduce_intra_bytes_per_s, _without_network(cluster)
    if value is None or host.ranks < 2:
        return False
    ideal_s = collective_transfer("all_reduce", REFERENCE_BYTES, host, cluster).solo_s
    added_s = mean_call_s(ideal_s, check_s(host)) - ideal_s
    measured_s = REFERENCE_BYTES * payload_factor("all_reduce", host.ranks) / value
    return CHECKS_SHOWN * added_s < measured_s - ideal_s < LINKS_SLOW * added_s


__all__ = [
    "ALGORITHMS",
    "CollectiveConstants",
    "Distance",
    "GroupPlacement",
    "NcclSettings",
    "collective_transfer",
    "message_transfer",
    "pattern_of",
    "payload_factor",
    "ring_step_transfer",
    "shows_checks",
]
