"""What a fault, in the words that all kinds share, does to a step: which ranks are slow, which links are weak
or gone.

Knows targets, hosts and switches; when in the step is windows.py's to say.

A slow GPU stretches its kernels; its host's launches and its links stay. A lost NIC without
``bandwidth_factor`` fails over to the other NICs of its host, a lost leaf to the other leaves of its hosts, a
lost spine to those beside it (outages.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.fabrics.tiers import Tiers
from ...hardware.quantities import format_quantity
from ...hardware.topology import RegularTopology
from ..fold.ranks import Degradation
from ..scenario.faults.faults import MAGNITUDES, Event, parse_fault
from ..scenario.faults.kinds import InStep, get_kind, step_kinds
from ..scenario.faults.targets import Target
from ..scenario.refusal import NotSupported
from .outages import PORTS, lost_nic, lost_switch, together, weak_link, weak_nic, weak_rail

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ..scenario.faults.faults import Faults
    from ..scenario.faults.machine import Machine
    from .checkpoint_write import CheckpointWrite

    Ids = np.typing.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The cluster, the GPU of every rank, the cluster as targets see it, the seed of chance, how long a link
    may be down before the job dies, and what writing a checkpoint takes.
    """

    cluster: Cluster
    gpu: Ids
    machine: Machine
    seed: int = 7
    flap_budget_s: float = 30.0
    checkpoint: CheckpointWrite | None = None

    def ranks(self, target: Target) -> list[int]:
        """The ranks on a GPU or a host."""
        index, per_node = target.index or 0, self.cluster.gpus_per_node
        if target.scope == "rank":
            return [index]
        if target.scope == "gpu":
            first = self.machine.nodes_of(target).start * per_node if target.inside else 0
            return np.flatnonzero(self.gpu == first + index).tolist()
        return self.on_hosts(self.machine.nodes_of(target))

    @property
    def hosts(self) -> list[int]:
        """The host of every rank."""
        found: list[int] = (self.gpu // self.cluster.gpus_per_node).tolist()
        return found

    def on_hosts(self, hosts: Iterable[int]) -> list[int]:
        """The ranks of some hosts."""
        return np.flatnonzero(np.isin(self.gpu // self.cluster.gpus_per_node, list(hosts))).tolist()

    def leaves(self, hosts: Iterable[int], field: str) -> list[str]:
        """The leaf switches of some hosts by name, in order. NotSupported where the fabric has none."""
        topology = self.cluster.topology
        network = topology.network if isinstance(topology, RegularTopology) else None
        if network is None or not network.tiers:
            raise NotSupported(field, "the fabric has no leaf switches by number")
        links = self.cluster.interconnect.links_per_host
        node, nic = (grid.ravel() for grid in np.meshgrid(list(hosts), np.arange(links), indexing="ij"))
        return [f"{network.tiers[0][0]} {leaf}" for leaf in np.unique(network.leaf(node, nic))]


def standing(faults: Faults | None) -> tuple[Event, ...]:
    """The faults of a scenario that are there from the start: events without a time. Others come later, and
    processes by chance: they are for weeks.
    """
    events = faults.events if faults else ()
    return tuple(e for e in events if e.trace is None and e.at is None and e.at_step is None)


def beginning(faults: Faults | None) -> tuple[Event, ...]:
    """Faults with a time, which strike a step if they come so early: a simulated step is the first."""
    events = faults.events if faults else ()
    return tuple(e for e in events if e.at is not None and e.kind in step_kinds())


def given(faults: Iterable[str | Event], machine: Machine) -> tuple[Event, ...]:
    """Faults as lines or events. ValueError for a target that is not there, or a time that is none."""
    found = []
    for fault in faults:
        event: object = parse_fault(fault) if isinstance(fault, str) else fault
        if not isinstance(event, Event):
            example = "'gpu_throttle gpu/37 slow_factor=1.3'"
            raise ValueError(f"faults: a line such as {example} or an Event is needed, not {fault!r:.200}")
        if event.trace is not None:
            raise NotSupported("faults: trace", "a step has no use for a trace; it is for stepsim faults")
        if event.at_step is not None:
            raise NotSupported(
                f"faults: {named(event)}: at_step",
                "one step is simulated; at=1.2s says when in it, and stepsim faults knows steps by number",
            )
        lasting = event.duration
        if lasting is not None and not lasting.constant:
            wrong = (
                "0 s is no time" if lasting.constant == 0 else "a step needs a length, not a law of lengths"
            )
            raise ValueError(f"fault {named(event)}: duration: {wrong}; write duration=0.5s, or leave it out")
        try:
            machine.counts.check(event.where)
        except ValueError as error:
            raise ValueError(f"fault {named(event)}: {error}") from None
        found.append(event)
    return tuple(found)


def named(event: Event) -> str:
    """``gpu_throttle gpu/37``."""
    return f"{event.kind} {event.where}"


def line_of(event: Event) -> str:
    """The event as ``--fault`` takes it."""
    keys = (key for key in MAGNITUDES if getattr(event, key) is not None)
    lasts_s = event.duration.constant if event.duration else None
    times = (("at", event.at), ("duration", lasts_s))
    return " ".join(
        (
            named(event),
            *(f"{key}={getattr(event, key):g}" for key in keys),
            *(f"{key}={_written(value)}" for key, value in times if value is not None),
        )
    )


def _written(seconds: float) -> str:
    return format_quantity(seconds, "seconds").replace(" ", "")


def degradation_of(events: Iterable[Event], job: Job) -> Degradation:
    """All faults together: slowness multiplies, and so do shares of what is left.

    Raises:
        NotSupported: a kind, or a key of it, that a step does not know.
        ValueError: what the job cannot go on without.
    """
    return combined(_one(event, job) for event in events)


def combined(degradations: Iterable[Degradation]) -> Degradation:
    """Several degradations at once, without those that change nothing."""
    found = together(degradations)
    return Degradation(
        slow={rank: factor for rank, factor in found.slow.items() if factor != 1.0},
        link_share={port: share for port, share in found.link_share.items() if share != 1.0},
        fabric_share={link: share for link, share in found.fabric_share.items() if share != 1.0},
    )


def _one(event: Event, job: Job) -> Degradation:
    assert event.kind is not None
    kind = get_kind(event.kind)
    if kind.in_step is None:
        why = "it ends the job" if kind.effect == "crash" else "no step feels it"
        raise NotSupported(
            f"faults: {named(event)}",
            f"a step does not know {event.kind} ({why}); it knows {', '.join(step_kinds())}; the others are "
            "for stepsim faults",
        )
    assert kind.in_step != "checkpoint"  # it has phases, which windows.py takes one by one
    return _RULES[kind.in_step](event, job, f"faults: {named(event)}")


def _usual(event: Event, key: str) -> float:
    """A magnitude that the event leaves out."""
    usual = get_kind(event.kind or "").keys[key]
    assert usual is not None
    return usual


def _throttled(event: Event, job: Job, field: str) -> Degradation:
    factor = event.slow_factor or _usual(event, "slow_factor")
    ranks = job.ranks(event.where)
    if not ranks:
        raise ValueError(f"{field}: no rank of the job runs there")
    return Degradation(slow=dict.fromkeys(ranks, factor))


def _jitter(event: Event, job: Job, field: str) -> Degradation:
    cv = _usual(event, "cv") if event.cv is None else event.cv
    whole = event.where.scope == "job"
    hosts = range(job.machine.nodes) if whole else job.machine.nodes_of(event.where)
    slow = {host: jitter_factor(job.seed, host, cv) for host in hosts}
    at = {rank: slow[host] for rank, host in enumerate(job.hosts) if host in slow}
    if not at:
        raise ValueError(f"{field}: no rank of the job runs there")
    return Degradation(slow=at)


def jitter_factor(seed: int, host: int, cv: float) -> float:
    """How many times as long a host's kernels take in a step: 1 + ``cv`` max(0, z) with z normal, the same
    whatever is drawn for others.

    What a profile holds is the time of kernels on a GPU that nothing disturbs, so jitter only adds to it
    (noise is a series of detours from the time without noise: Hoefler, Schneider & Lumsdaine, SC 2010,
    section 2; Petrini, Kerbyson & Pakin, SC 2003). Of n hosts that must meet the slowest decides, who takes
    1 + ``cv`` times the integral of 1 - Phi(x)^n over x > 0 on average (David & Nagaraja, Order Statistics,
    section 3.1): 0.40 for one host, 3.25 for 1,024.
    """
    return 1.0 + cv * max(0.0, float(np.random.default_rng((seed, host)).standard_normal()))


def _hung(event: Event, job: Job, field: str) -> Degradation:
    ranks = range(len(job.gpu)) if event.where.scope == "job" else job.ranks(event.where)
    return Degradation(slow=dict.fromkeys(ranks, math.inf))


def _weak(event: Event, job: Job, field: str) -> Degradation:
    _without(event, field, "latency_add", "slow_factor")
    share = event.bandwidth_factor or _usual(event, "bandwidth_factor")
    return _links(event, job, field, share)


def _flap(event: Event, job: Job, field: str) -> Degradation:
    """A flapping link: nothing gets through, and what waits in the transport goes on when the link is up
    again."""
    down_s = lasts_s(event)
    assert down_s is not None
    if down_s > job.flap_budget_s:
        raise ValueError(
            f"{field}: down for {_written(down_s)}, longer than the transport tries again "
            f"(detection.flap_budget, {_written(job.flap_budget_s)}): the job dies"
        )
    return _links(event, job, field, 0.0)


def lasts_s(event: Event) -> float | None:
    """How long a fault lasts: a link that flaps for a while in any case; None: until the end of the step."""
    if event.duration is not None:
        return event.duration.constant
    kind = get_kind(event.kind or "")
    return kind.duration_s if kind.effect == "pause" else None


def _links(event: Event, job: Job, field: str, share: float) -> Degradation:
    _has_network(job, field)
    where = event.where
    if where.scope == "rail" and where.inside is None:
        return weak_rail(job.cluster, job.gpu, where.index or 0, share)
    if where.scope == "rail" and where.inside and where.inside.scope == "leaf":
        hosts = job.machine.nodes_of(where.inside)
        return together(weak_nic(job.cluster, job.gpu, host, where.index or 0, share) for host in hosts)
    return weak_nic(job.cluster, job.gpu, *_nic(where, job), share)


def _nic_lost(event: Event, job: Job, field: str) -> Degradation:
    _has_network(job, field)
    if event.where.scope != "nic":
        raise ValueError(
            f"{field}: every NIC of the host is lost: the job stops; name one, as in nic/0@node/0"
        )
    host, nic = _nic(event.where, job)
    if event.bandwidth_factor is not None:
        return _ports(job, [host], event.bandwidth_factor)
    return _saying(field, lambda: lost_nic(job.cluster, job.gpu, host, nic))


def _leaf_lost(event: Event, job: Job, field: str) -> Degradation:
    """The loss of one leaf switch of a unit; where a host has several leaves, which of them makes no
    difference."""
    _without(event, field, "slow_factor")
    _has_network(job, field)
    hosts = job.machine.nodes_of(event.where)
    if event.bandwidth_factor is not None:
        return _ports(job, hosts, event.bandwidth_factor)
    leaf = job.leaves(hosts[:1], field)[0]
    return _saying(field, lambda: lost_switch(job.cluster, job.gpu, leaf))


def _spine_lost(event: Event, job: Job, field: str) -> Degradation:
    _without(event, field, "slow_factor")
    spine = f"spine {event.where.index}"
    if event.where.inside is None:
        return _saying(field, lambda: lost_switch(job.cluster, job.gpu, spine))
    leaves = job.leaves(job.machine.nodes_of(event.where.inside), field)
    return _saying(field, lambda: together(_ports_lost(job, leaf, event.where.index or 0) for leaf in leaves))


def _ports_lost(job: Job, leaf: str, number: int) -> Degradation:
    """Between a leaf and the spine of that number among those it reaches."""
    topology = job.cluster.topology
    network = topology.network if isinstance(topology, RegularTopology) else None
    if not isinstance(network, Tiers) or number >= network.spines_per_pod:
        held = network.spines_per_pod if isinstance(network, Tiers) else 0
        raise ValueError(f"{leaf} reaches {held} spines")
    pod = int(leaf.split(" ")[1]) // network.leaves_per_pod
    return weak_link(job.cluster, f"{leaf} -> spine {pod * network.spines_per_pod + number}", 0.0)


_RULES: dict[InStep, Callable[[Event, Job, str], Degradation]] = {
    "slow_kernels": _throttled,
    "hang": _hung,
    "jitter": _jitter,
    "weak_link": _weak,
    "flap": _flap,
    "nic_lost": _nic_lost,
    "leaf_lost": _leaf_lost,
    "spine_lost": _spine_lost,
}


def _nic(where: Target, job: Job) -> tuple[int, int]:
    """(host, NIC of it) of a NIC, a host's link, or a rail inside a host."""
    index = where.index or 0
    if where.inside:
        return job.machine.nodes_of(where.inside).start, index
    return divmod(index, job.machine.nics_per_node)


def _ports(job: Job, hosts: Iterable[int], share: float) -> Degradation:
    return Degradation(link_share={(rank, port): share for rank in job.on_hosts(hosts) for port in PORTS})


def _without(event: Event, field: str, *keys: str) -> None:
    for key in keys:
        if getattr(event, key):
            raise NotSupported(f"{field}: {key}", "a step does not know it; give bandwidth_factor or nothing")


def _has_network(job: Job, field: str) -> None:
    if not job.cluster.interconnect.links_per_host:
        raise ValueError(f"{field}: the cluster has no network")


def _saying(field: str, find: Callable[[], Degradation]) -> Degradation:
    try:
        return find()
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
