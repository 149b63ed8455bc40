"""Which algorithm and protocol NCCL takes for a collective of some size: the quickest by its own model.

As NCCL 2.28.9 chooses, with NCCL_ALGO and NCCL_PROTO; no tuner plugin, no FP8 reductions (for which
NCCL avoids rings of more than 8). An all_to_all, and send and receive, are not chosen: grouped messages.

Sources: NCCL v2.28.9 src/enqueue.cc (topoGetAlgoInfo: the argmin; fewer channels for small messages),
src/graph/tuning.cc (parseList: the two variables, a list for all functions or one for each; up to 2.23 a
ring is forbidden to all_reduce alone).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....hardware.catalogue import unknown_name
from ....schedules.transfers.collective import CollectiveKind
from .constants import BYTES_PER_THREAD, NVLS_CHANNELS, THREADS, NcclAlgorithm, NcclProtocol
from .cost_model import TUNED, lines, seconds_on
from .paths import Communicator
from .versions import parse_version

FUNCTIONS = {kind.replace("_", ""): kind for kind in TUNED}
"""NCCL's names of the collectives, in lower case, as NCCL_ALGO takes them."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmChoice:
    """``predicted_s`` is NCCL's own estimate; ``channels`` are the kernel's CTAs, one SM each."""

    algorithm: NcclAlgorithm
    protocol: NcclProtocol
    predicted_s: float
    channels: int


def legal_choices(
    kind: CollectiveKind | str,
    payload_bytes: float,
    comm: Communicator,
    *,
    nccl_algo: str | None = None,
    nccl_proto: str | None = None,
) -> list[AlgorithmChoice]:
    """All that is legal and asked for, the quickest first; in NCCL's order among equals.

    ``payload_bytes``: the whole buffer, as nccl-tests counts.

    Raises:
        ValueError: a collective that NCCL does not tune, a name that NCCL does not know, or variables
            that leave nothing which the communicator can run.
    """
    if kind not in TUNED:
        raise ValueError(f"NCCL chooses no algorithm for {str(kind)!r}; it does for {', '.join(TUNED)}")
    kind = CollectiveKind(kind)
    algorithms = allowed("NCCL_ALGO", nccl_algo, kind, list(NcclAlgorithm))
    if comm.version < (2, 24) and kind is not CollectiveKind.ALL_REDUCE:
        algorithms.add(NcclAlgorithm.RING)  # never forbidden where there is nothing else
    protocols = allowed("NCCL_PROTO", nccl_proto, kind, list(NcclProtocol))
    legal = lines(kind, comm)
    found = [
        AlgorithmChoice(
            algorithm=line.algorithm,
            protocol=line.protocol,
            predicted_s=seconds_on(line, kind, payload_bytes, comm),
            channels=channels(line.algorithm, line.protocol, payload_bytes, comm),
        )
        for line in legal
        if line.algorithm in algorithms and line.protocol in protocols
    ]
    if not found:
        asked = (
            f"NCCL_ALGO={nccl_algo or 'unset'} (software.exchange.nccl_algo), "
            f"NCCL_PROTO={nccl_proto or 'unset'} (software.exchange.nccl_proto)"
        )
        raise ValueError(
            f"{asked} leave nothing for {kind} on {comm.ranks} ranks over {comm.nodes} nodes; it can run "
            + ", ".join(f"{line.algorithm}/{line.protocol}" for line in legal)
        )
    return sorted(found, key=lambda choice: choice.predicted_s)


def channels(
    algorithm: NcclAlgorithm, protocol: NcclProtocol, payload_bytes: float, comm: Communicator
) -> int:
    """All channels of the communicator, or as many as a small message gives every thread enough to do."""
    most = NVLS_CHANNELS if algorithm in (NcclAlgorithm.NVLS, NcclAlgorithm.NVLS_TREE) else comm.channels
    each = BYTES_PER_THREAD[protocol] * THREADS[protocol]
    if algorithm is NcclAlgorithm.RING and protocol is NcclProtocol.LL:
        each *= comm.ranks
    return max(1, min(most, int(payload_bytes // each)))


def allowed(variable: str, value: str | None, kind: CollectiveKind, known: Iterable[str]) -> set[str]:
    """What NCCL_ALGO or NCCL_PROTO lets through: ``Ring,Tree``, ``^Tree``, ``allreduce:Tree;broadcast:Ring``.

    A list without a function holds for all; the last one that holds counts. Raises ValueError for
    names that NCCL does not know (NCCL itself passes over them in silence).
    """
    known = list(known)
    through = set(known)
    for part in (value or "").split(";"):
        function, _, listed = part.rpartition(":")
        holds = not function or _named(variable, [function], FUNCTIONS) == {kind.replace("_", "")}
        names = [name for name in listed.strip().removeprefix("^").split(",") if name.strip()]
        if names and holds:
            named = _named(variable, names, known)
            through = set(known) - named if listed.strip().startswith("^") else named
    return through


def check_variable(field: str, value: str) -> None:
    """ValueError for names in ``nccl_algo`` or ``nccl_proto`` that NCCL does not know, or for no version."""
    if field == "nccl_version":
        parse_version(value)
        return
    known = NcclAlgorithm if field == "nccl_algo" else NcclProtocol
    for kind in TUNED:
        allowed(field.upper(), value, kind, known)


def _named(variable: str, names: Iterable[str], known: Iterable[str]) -> set[str]:
    """The known names that are meant, whatever their case."""
    by_lower = {name.lower(): name for name in known}
    found = set()
    for name in names:
        lower = name.strip().lower()
        if lower not in by_lower:
            raise ValueError(f"{variable}: {unknown_name('choice', name.strip(), by_lower.values())}")
        found.add(by_lower[lower])
    return found
