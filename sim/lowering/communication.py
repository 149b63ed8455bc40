"""Communications of a step as transfers: by the user's own measured curves where there are any.

Knows which measured group speaks for which: the very group as measured; another of the same kind and
tier by the ratio of measured to modelled time at the nearest number of ranks; no measurement, the
model alone. Links, SMs and what they share stay the model's. Remembers what was asked, so that a
result can say what it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...hardware.step_factors import AS_SHIPPED, StepFactors
from ..network.checks import check_s
from ..network.collectives import Distance, GroupPlacement, collective_transfer, message_transfer
from ..network.nccl.settings import NCCL_DEFAULTS, NcclSettings
from ..network.transfer import Transfer

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...hardware.collective_curve import CollectiveCurve
    from ..network.measured import MeasuredNetwork

MESSAGE = "sendrecv"
_MOST_LATENCY = 0.999  # of a measured time: bytes take some of it


@dataclass(frozen=True, slots=True)
class CollectiveRequest:
    """A communication that a step contains: ``kind`` of ``bytes`` in ``ranks`` over ``domains``."""

    kind: str
    ranks: int
    domains: int
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Communication:
    """What collectives and messages cost on ``cluster``.

    ``curves`` are measured collectives, ``factors`` those by which the user's own measured steps took longer.
    ``measured`` is the bandwidth that the job itself reached; it scales the model where no curve applies.
    ``nccl`` has the job's NCCL settings. ``checked``: hosts compare their calls before every collective
    (network/checks.py). ``others`` are the same for GPUs of every further kind: a group of several kinds runs
    at the pace of the slowest.
    """

    cluster: Cluster
    curves: tuple[CollectiveCurve, ...] = ()
    factors: StepFactors = AS_SHIPPED
    measured: MeasuredNetwork | None = None
    nccl: NcclSettings = NCCL_DEFAULTS
    checked: bool = False
    others: tuple[Communication, ...] = ()
    asked: dict[CollectiveRequest, float] = field(default_factory=dict)
    _known: dict[tuple[str, float, GroupPlacement, bool], Transfer] = field(default_factory=dict, repr=False)

    def collective(
        self, kind: str, payload_bytes: float, placement: GroupPlacement, *, scaled: bool = True
    ) -> Transfer:
        """One collective of a group; ``scaled``: the bandwidth that the job itself measured applies to it.

        Equal arguments return the same object: a step of small buckets asks tens of thousands of times.
        """
        key = kind, payload_bytes, placement, scaled
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._collective(*key)
        return known

    def _collective(
        self, kind: str, payload_bytes: float, placement: GroupPlacement, scaled: bool
    ) -> Transfer:
        if self.others and placement.kinds != (0,):
            alike = replace(placement, kinds=(0,))
            each = (
                self._of_kind(one).collective(kind, payload_bytes, alike, scaled=scaled)
                for one in placement.kinds
            )
            return max(each, key=lambda transfer: transfer.solo_s)
        curve = (
            nearest_curve(self.curves, kind, placement.ranks, placement.domains) if payload_bytes else None
        )
        if curve is None:
            measured = self.measured if scaled else None
            transfer = collective_transfer(
                kind, payload_bytes, placement, self.cluster, measured, self.nccl, checked=self.checked
            )
        else:
            model = collective_transfer(kind, payload_bytes, placement, self.cluster, nccl=self.nccl)
            there = GroupPlacement(ranks=curve.ranks, domains=curve.domains)
            transfer = _as_measured(
                model,
                curve,
                collective_transfer(kind, payload_bytes, there, self.cluster, nccl=self.nccl),
            )
        transfer = self._on_time(transfer, network=placement.domains > 1)
        if placement.ranks > 1 and kind != "ring_step":
            self._remember(
                CollectiveRequest(kind, placement.ranks, placement.domains, payload_bytes), transfer
            )
        return transfer

    def _of_kind(self, kind: int) -> Communication:
        return self.others[kind - 1] if kind else self

    @property
    def placements(self) -> set[tuple[str, GroupPlacement]]:
        """Every kind of collective that was priced, with the placement of its group."""
        return {(kind, placement) for kind, _, placement, _ in self._known}

    def has_measured(self, kind: str, placement: GroupPlacement) -> bool:
        """Whether a measured curve prices collectives of that kind and placement."""
        return nearest_curve(self.curves, kind, placement.ranks, placement.domains) is not None

    def message(
        self, payload_bytes: float, distance: Distance, *, messages: int = 1, kinds: Collection[int] = (0,)
    ) -> Transfer:
        """One message to another rank. ``messages`` counts it and the small ones that precede it; ``kinds``
        are the kinds of the GPUs at its two ends."""
        if self.others and set(kinds) != {0}:
            each = (self._of_kind(one).message(payload_bytes, distance, messages=messages) for one in kinds)
            return max(each, key=lambda transfer: transfer.solo_s)
        network = distance != "domain"
        model = self._on_time(
            message_transfer(payload_bytes, distance, self.cluster, messages=messages), network=network
        )
        domains = 2 if network else 1
        self._remember(CollectiveRequest(MESSAGE, 2, domains, payload_bytes), model)
        curve = nearest_curve(self.curves, MESSAGE, 2, domains) if payload_bytes else None
        if curve is None:
            return model
        transfer = self._on_time(_as_measured(model, curve, None), network=network)
        return replace(transfer, latency_s=messages * transfer.latency_s)

    def _on_time(self, transfer: Transfer, *, network: bool) -> Transfer:
        """The transfer with this cluster's latency factor, and as much slower as the user's own steps have
        shown."""
        late = self.cluster.latency
        timed = transfer if late == 1.0 else replace(transfer, latency_s=late * transfer.latency_s)
        return timed.slower(self.factors.of_communication(network=network))

    def check_s(self, placement: GroupPlacement) -> float:
        """Seconds that the check before a collective holds up each member's host, by what own steps have
        shown."""
        return self.factors.checks * check_s(placement) if self.checked else 0.0

    def apart(self) -> Communication:
        """A copy with the same costs that remembers separately, for questions besides the step."""
        return replace(self, asked={}, _known={})

    def _remember(self, asked: CollectiveRequest, transfer: Transfer) -> None:
        self.asked[asked] = transfer.solo_s


def nearest_curve(
    curves: tuple[CollectiveCurve, ...], kind: str, ranks: int, domains: int
) -> CollectiveCurve | None:
    """The measured curve of this group, or of the group of the same tier with the nearest size; None without
    any."""
    same = (
        [curve for curve in curves if curve.kind == kind and (curve.domains == 1) == (domains == 1)]
        if ranks > 1
        else []
    )
    return min(
        same,
        key=lambda curve: (
            abs(math.log(curve.ranks / ranks)),
            abs(math.log(curve.domains / domains)),
            curve.ranks,
        ),
        default=None,
    )


def _as_measured(model: Transfer, curve: CollectiveCurve, there: Transfer | None) -> Transfer:
    """``model`` with the latency and the rate of the curve, scaled by the ratio that the model sees between
    the two groups.

    ``there`` is the model's transfer of the measured group; None where the curve is of this very group.
    """
    size, whole_s = model.bytes, curve.solo_s(model.bytes)
    # A correction may undercut the latency at small sizes.
    latency_s = curve.alpha_s if curve.alpha_s < whole_s else _MOST_LATENCY * whole_s
    latency, rest = 1.0, 1.0
    if there is not None and there.latency_s > 0 and there.solo_s > there.latency_s:
        latency = model.latency_s / there.latency_s
        rest = (model.solo_s - model.latency_s) / (there.solo_s - there.latency_s)
    moving_s = (whole_s - latency_s) * rest
    return replace(model, latency_s=latency_s * latency, ceiling_bytes_per_s=size / moving_s)
