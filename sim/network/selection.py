"""Which algorithm and protocol run for a collective: NCCL's own choice, or what a user asks for.

NCCL takes the quickest by its own model (``nccl``), not the quickest there is; the time of what it takes
comes from the calibrated curves. Where NCCL's tables lack the GPU (AMD's RCCL), the quickest curve runs.
What a user forces may also be an algorithm that NCCL does not have, or not here by itself (SHARP).

Sources: NCCL 2.18 to 2.30, src/graph/tuning.cc, src/enqueue.cc; which rule fits the measured logs is in
docs/decisions/0004.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from ...hardware.catalogue import unknown_name
from ...schedules import collectives as schedules
from ...schedules.transfers.collective import CollectiveKind
from .algorithms import ALGORITHMS, logged, logged_curves, logged_names
from .curve import Curve
from .nccl.choice import legal_choices
from .nccl.constants import ARCHITECTURES, NcclAlgorithm, NcclProtocol
from .nccl.cost_model import TUNED
from .nccl.paths import Communicator, communicator_on
from .nccl.settings import NCCL_DEFAULTS, NcclSettings
from .nccl.versions import USUAL, Version
from .place import Place
from .unlogged_algorithms import OF_NCCL, unlogged_curves

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...schedules.transfers.group import RankGroup


NAMES = {
    NcclAlgorithm.RING: "ring",
    NcclAlgorithm.TREE: "tree",
    NcclAlgorithm.NVLS: "nvls",
    NcclAlgorithm.NVLS_TREE: "nvls_tree",
} | {algorithm: name for name, algorithm in OF_NCCL.items()}
"""Names of curves by NCCL's algorithms."""

_OF_NCCL = {name: algorithm for algorithm, name in NAMES.items()}

_ALSO = {
    "nvls-tree": "nvls_tree",
    "nvlstree": "nvls_tree",
    "pairwise": "pairs",
    "hierarchical-all-to-all": "hierarchical-pairwise",
    "send-recv": "pairs",
    "sharp": "collnet-direct",
    "collnetdirect": "collnet-direct",
    "collnetchain": "collnet-chain",
}


def planned_names() -> tuple[str, ...]:
    """Names of algorithms of ``schedules/collectives`` that no log shows, NCCL's own first."""
    others = [schedules.get(name) for name in schedules.names() if _ALSO.get(name, name) not in ALGORITHMS]
    others = sorted(others, key=lambda one: (one.place, one.name))
    return tuple(dict.fromkeys((*OF_NCCL, *(one.name for one in others))))


def known_names() -> tuple[str, ...]:
    """All algorithms that can be priced."""
    return tuple(dict.fromkeys((*ALGORITHMS, *planned_names())))


def named(algorithm: str) -> str:
    """The curve's name of an algorithm, whatever its case and hyphens; ValueError with the known ones."""
    plain = algorithm.strip().lower().replace("_", "-")
    plain = _ALSO.get(plain, plain)
    known = known_names()
    if plain not in known:
        raise unknown_name("algorithm", algorithm, (*known, "sharp"))
    return plain


def selected_curves(
    kind: str,
    sizes: Sequence[float],
    place: Place,
    *,
    algorithm: str | None = None,
    protocol: str | None = None,
    nccl: NcclSettings = NCCL_DEFAULTS,
) -> list[Curve]:
    """The curve that runs for each payload; ``algorithm`` and ``protocol`` are our names of what is forced.

    ValueError for a kind that is not a collective, and for what cannot run here, with what can.
    """
    ways, name = logged(kind, place), None if algorithm is None else named(algorithm)
    if algorithm is protocol is None:
        return [selected_curve(kind, size, place, ways, nccl) for size in sizes]
    if name in planned_names() and name not in {way.algorithm for way in ways}:
        ways = unlogged_curves(name, kind, place)
        return [quickest(ways, size, name, protocol) for size in sizes]
    if not _allowed(ways, name, protocol):
        raise _none_allowed((*ways, *_planned_too(kind, place, ways)), name, protocol)
    if not _nccl_chooses(kind, place):
        return [quickest(ways, size, name, protocol) for size in sizes]
    algo = nccl.algo if name is None else _OF_NCCL[name].value
    asked = NcclSettings(algo=algo, proto=protocol or nccl.proto, version=nccl.version)
    return [selected_curve(kind, size, place, ways, asked) for size in sizes]


def selected_names(
    kind: str,
    sizes: Sequence[float],
    place: Place,
    *,
    algorithm: str | None,
    protocol: str | None,
    nccl: NcclSettings,
) -> tuple[tuple[str, str], ...] | None:
    """Algorithm and protocol of each of ``selected_curves``; None where the quickest of several runs.

    NCCL's choice looks at none of our constants: it is the same whatever those of ``place`` are.
    """
    names, name = logged_names(kind, place), None if algorithm is None else named(algorithm)
    beyond = name not in (None, *names) and name in planned_names()
    if beyond or not (_nccl_chooses(kind, place) or names == ("pairs",)):
        return None
    found = selected_curves(kind, sizes, place, algorithm=algorithm, protocol=protocol, nccl=nccl)
    return tuple((curve.algorithm, curve.protocol) for curve in found)


def curves_named(names: Iterable[tuple[str, str]], kind: str, place: Place) -> list[Curve]:
    """The curves that ``selected_names`` named, without those that it passed over."""
    names, there = tuple(names), logged_names(kind, place)
    curves = {
        (curve.algorithm, curve.protocol): curve
        for algorithm in dict.fromkeys(algorithm for algorithm, _ in names)
        for curve in (logged_curves if algorithm in there else unlogged_curves)(algorithm, kind, place)
    }
    return [curves[one] for one in names]


def _nccl_chooses(kind: str, place: Place) -> bool:
    return kind in TUNED and place.cluster.gpu.collectives_as in ARCHITECTURES


def selected_curve(kind: str, size: float, place: Place, ways: Sequence[Curve], nccl: NcclSettings) -> Curve:
    """The first in NCCL's order of ``ways`` and those that no log shows; without its tables the quickest.

    Where a job sets nothing, what the provider of its network has it set holds. ValueError where NCCL_ALGO
    and NCCL_PROTO leave nothing.
    """
    if not _nccl_chooses(kind, place):
        return quickest(ways, size)
    network = place.cluster.interconnect
    algo, proto = nccl.algo or network.nccl_algo, nccl.proto or network.nccl_proto
    comm = communicator(place, nccl.version)
    for algorithm, protocol in ranked(kind, size, comm, algo, proto):
        name = NAMES[algorithm]
        for way in ways:
            if (way.algorithm, way.protocol) == (name, protocol):
                return way
        if name in planned_names():
            return unlogged_curves(name, kind, place)[0]
    raise ValueError(
        f"NCCL_ALGO={algo or 'unset'}, NCCL_PROTO={proto or 'unset'} leave nothing that runs "
        f"{kind} here; there are: {_listed(ways)}"
    )


def quickest(
    ways: Iterable[Curve], payload_bytes: float, algorithm: str | None = None, protocol: str | None = None
) -> Curve:
    """The quickest of ``ways`` with that algorithm and protocol. ValueError where there is none."""
    ways = tuple(ways)
    allowed = _allowed(ways, algorithm, protocol)
    if not allowed:
        raise _none_allowed(ways, algorithm, protocol)
    return min(allowed, key=lambda way: way.solo_s(payload_bytes))


def _allowed(ways: Iterable[Curve], algorithm: str | None, protocol: str | None) -> list[Curve]:
    return [
        way
        for way in ways
        if algorithm in (None, way.algorithm)
        and (protocol is None or protocol.lower() == way.protocol.lower())
    ]


def _none_allowed(ways: Iterable[Curve], algorithm: str | None, protocol: str | None) -> ValueError:
    wanted = " with ".join(filter(None, (algorithm, protocol)))
    return ValueError(f"no {wanted} for this collective and group; there are: {_listed(ways)}")


def _planned_too(kind: str, place: Place, ways: Iterable[Curve]) -> Iterator[Curve]:
    """What the group can run besides ``ways``."""
    known = {way.algorithm for way in ways}
    for name in (name for name in planned_names() if name not in known):
        with suppress(ValueError):
            yield from unlogged_curves(name, kind, place)


def communicator(place: Place, version: Version | None = None) -> Communicator:
    """The group as NCCL sees it."""
    usual = USUAL[place.cluster.gpu.collectives_as]
    return _communicator(place.cluster, place.group, version or usual)


@lru_cache(maxsize=4096)
def ranked(
    kind: str, payload_bytes: float, comm: Communicator, algo: str | None, proto: str | None
) -> Sequence[tuple[NcclAlgorithm, NcclProtocol]]:
    """What is legal and asked for, the quickest by NCCL's model first."""
    choices = legal_choices(CollectiveKind(kind), payload_bytes, comm, nccl_algo=algo, nccl_proto=proto)
    return tuple((choice.algorithm, choice.protocol) for choice in choices)


@lru_cache(maxsize=256)
def _communicator(cluster: Cluster, group: RankGroup, version: Version) -> Communicator:
    return communicator_on(
        cluster, ranks=group.ranks, domains=group.nodes, fewest=group.local, version=version
    )


def _listed(ways: Iterable[Curve]) -> str:
    """Each algorithm with its protocols."""
    protocols: dict[str, list[str]] = {}
    for way in ways:
        protocols.setdefault(way.algorithm, []).append(way.protocol)
    return "; ".join(f"{algorithm} with {', '.join(names)}" for algorithm, names in protocols.items())
