"""Programs whose communications take their least, or their most, whoever else is on their links.

Shares of links are not monotone: a message that comes later may leave a collective more room. But no share is
above that of a communication alone, and none is below its share beside all that may ever move on its links.
If each communication takes one of these two times, and SMs are held as before, steps are monotone (decision
67). Knows programs and their links; replays nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..network.paths import NO_PATHS
from ..program.program import UNORDERED, Collective, Exchange, MessageEnd
from ..program.uncontended import Rewriter, rate_alone
from .messages_in_flight import messages_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from ..network.transfer import Transfer
    from ..program.program import Program, Programs
    from ..program.uncontended import Communication
    from .messages_in_flight import Between, MessagesBetween

SLACK = 1e-12
"""Relative amount by which a computed level may lie below the exact one."""

HALVINGS = 60
"""Steps of the bisection that finds the level of a share, from below."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What a communication puts on the links of one rank.

    At level ``phi``, which is bytes per second on its busiest link, it puts ``phi * share`` on each link; its
    level is at most ``ceiling``.
    """

    ceiling: float
    share: tuple[tuple[str, float], ...]

    def on(self, link: str) -> float:
        """Its share of one link; 0 where it does not use the link."""
        return next((share for name, share in self.share if name == link), 0.0)


@dataclass(frozen=True, kw_only=True)
class _Lane:
    """Flows of one stream of which at most ``times`` move at once on a rank."""

    stream: str
    flows: frozenset[LinkUse]
    times: int = 1

    def load(self, link: str, level: float) -> float:
        """The most bytes per second that any one of the flows puts on a link at that level."""
        return max(min(one.ceiling, level) * one.on(link) for one in self.flows)


class Extremes:
    """The two extremes of a job's communications.

    ``programs`` has one program for each stage. Kernels of the fastest rank take ``fastest`` times as long as
    those of a healthy one.
    """

    def __init__(self, programs: Programs, fastest: float) -> None:
        self._links = programs.links[0]
        self._stage = {id(program): r for r, program in enumerate(programs.classes)}
        self._held = held(programs)
        self._joining = _joining(programs)
        self._known: dict[tuple[int, str, LinkUse], float] = {}
        messages = messages_between(programs, fastest)
        at_once = dict.fromkeys(messages, 1)
        while True:
            self._lanes = [_lanes(r, program, at_once) for r, program in enumerate(programs.classes)]
            self._known.clear()
            found = {pair: one.at_once(self._lasting_s(pair, one)) for pair, one in messages.items()}
            if all(count <= at_once[pair] for pair, count in found.items()):
                break  # the first to be more at once would have had to last longer before
            at_once = {pair: max(count, at_once[pair]) for pair, count in found.items()}

    def most(self, programs: Programs) -> Programs:
        """The programs with each communication as slow as it is beside everything that other streams of
        its ranks may move at the same time, holding the most SMs and HBM of any communication on its
        stream."""
        known: dict[tuple[object, ...], Transfer] = {}

        def change(r: int, stream: str, one: Communication) -> Transfer:
            ends = (one.send, one.peer) if isinstance(one, MessageEnd) else ()
            key = r, stream, one.transfer, *ends
            if key not in known:
                known[key] = _fixed(one.transfer, self._slowest(r, stream, one), self._held.get(stream), max)
            return known[key]

        writers = [Rewriter(partial(change, r)) for r in range(len(self._lanes))]
        classes = [writers[self._stage[id(program)]].program(program) for program in programs.classes]
        return replace(programs, classes=tuple(classes))

    def _slowest(self, r: int, stream: str, one: Communication) -> float:
        """The least rate, in payload bytes per second, of a communication of stage ``r`` on any rank where it
        moves: both ends of a message, all stages if its stream joins stages, else its own stage."""
        found = _flow(one.transfer)
        if found is None:
            return one.transfer.ceiling_bytes_per_s
        flow, heaviest = found
        if isinstance(one, MessageEnd):
            sender, receiver = (r, one.peer) if one.send else (one.peer, r)
            ends = [(sender, _half(flow, ".out")), (receiver, _half(flow, ".in"))]
            return min(self._level(stage, stream, half) for stage, half in ends) / heaviest
        stages = range(len(self._lanes)) if stream in self._joining else (r,)
        return min(self._level(stage, stream, flow) for stage in stages) / heaviest

    def _level(self, r: int, stream: str, flow: LinkUse) -> float:
        key = r, stream, flow
        if key not in self._known:
            self._known[key] = _level(flow, stream, self._lanes[r], self._links)
        return self._known[key]

    def _lasting_s(self, between: Between, messages: MessagesBetween) -> list[float]:
        ends = (MessageEnd(True, between[1], "", one) for one in messages.transfers)
        return [
            end.transfer.latency_s
            + (end.transfer.bytes / self._slowest(between[0], UNORDERED, end) if end.transfer.bytes else 0.0)
            for end in ends
        ]


def least(programs: Programs) -> Programs:
    """The programs with each communication as fast as its own links allow, holding the fewest SMs and the
    least HBM of any communication on its stream."""
    holding = held(programs)
    writers: dict[tuple[tuple[str, float], ...], Rewriter] = {}

    def alone(
        links: Mapping[str, float],
        known: dict[tuple[str, Transfer], Transfer],
        stream: str,
        one: Communication,
    ) -> Transfer:
        key = stream, one.transfer
        if key not in known:
            known[key] = _fixed(one.transfer, rate_alone(one.transfer, links), holding.get(stream), min)
        return known[key]

    classes = []
    for program, links in zip(programs.classes, programs.links, strict=True):
        writer = writers.setdefault(tuple(sorted(links.items())), Rewriter(partial(alone, links, {})))
        classes.append(writer.program(program))
    return replace(programs, classes=tuple(classes), paths=NO_PATHS)


def _fixed(
    transfer: Transfer,
    bytes_per_s: float,
    holding: Set[tuple[int, int]] | None,
    of: Callable[[Iterable[int]], int],
) -> Transfer:
    """A communication at that rate, whoever else is on its links; of what its stream may be ``holding`` of
    SMs and HBM it holds what ``of`` gives."""
    both = holding or {(transfer.sms, transfer.hbm)}
    return replace(
        transfer,
        ceiling_bytes_per_s=bytes_per_s,
        weights=(),
        sms=of(sms for sms, _ in both),
        hbm=of(hbm for _, hbm in both),
    )


def apart(programs: Programs) -> bool:
    """Whether no communication ever takes anything from another, so that both extremes are the step
    itself."""
    if any(len(each) > 1 for each in held(programs).values()):
        return False
    for r, program in enumerate(programs.classes):
        lanes = _lanes(r, program, {})
        for lane in lanes:
            for flow in lane.flows:
                alone = min([flow.ceiling, *(programs.links[r][link] / share for link, share in flow.share)])
                if _level(flow, lane.stream, lanes, programs.links[r]) < alone * (1 - SLACK):
                    return False
    return True


def _joining(programs: Programs) -> frozenset[str]:
    """Streams of collectives that join stages."""
    return frozenset(
        op.stream
        for program in programs.classes
        for op in program.ops
        if isinstance(op.work, Collective) and op.work.communicator in programs.communicators
    )


def held(programs: Programs) -> dict[str, set[tuple[int, int]]]:
    """The different pairs of SMs and thousandths of HBM's bandwidth that its collectives hold, by stream."""
    found: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for program in programs.classes:
        for op in program.each_op():
            if isinstance(op.work, Collective):
                found[op.stream].add((op.work.transfer.sms, op.work.transfer.hbm))
    return found


def _lanes(r: int, program: Program, at_once: Mapping[Between, int]) -> list[_Lane]:
    """What a rank of stage ``r`` may have on its links at once: one flow of each stream, and of the messages
    that no stream orders as many as ``at_once`` says, or all."""
    ordered: dict[tuple[str, int], set[LinkUse]] = defaultdict(set)
    free: dict[tuple[bool, int], list[LinkUse]] = defaultdict(list)
    for op in program.each_op():
        if isinstance(op.work, Collective):
            if found := _flow(op.work.transfer):
                ordered[op.stream, 0].add(found[0])
        elif isinstance(op.work, Exchange):
            for number, part in enumerate(op.work.parts):
                if found := _flow(part.transfer):
                    half = _half(found[0], ".out" if part.send else ".in")
                    if op.stream == UNORDERED:
                        free[part.send, part.peer].append(half)
                    else:
                        ordered[op.stream, number].add(half)
    lanes = [_Lane(stream=stream, flows=frozenset(flows)) for (stream, _), flows in ordered.items()]
    for (send, peer), several in free.items():
        most = at_once.get((r, peer) if send else (peer, r), len(several))
        lanes.append(_Lane(stream=UNORDERED, flows=frozenset(several), times=min(most, len(several))))
    return lanes


def _flow(transfer: Transfer) -> tuple[LinkUse, float] | None:
    """The links that a communication uses, and its bytes on the busiest one per byte of payload; None where
    it uses none."""
    weights = transfer.local_weights
    heaviest = max((weight for _, weight in weights), default=0.0)
    if not heaviest or not transfer.bytes:
        return None
    share = tuple((link, weight / heaviest) for link, weight in weights)
    return LinkUse(transfer.ceiling_bytes_per_s * heaviest, share), heaviest


def _half(flow: LinkUse, way: str) -> LinkUse:
    """The part of a message that is on the links of its sender (``.out``), or of its receiver (``.in``)."""
    return LinkUse(flow.ceiling, tuple(pair for pair in flow.share if pair[0].endswith(way)))


def _level(flow: LinkUse, stream: str, lanes: Sequence[_Lane], links: Mapping[str, float]) -> float:
    """The least level that a flow of a stream may have.

    If a link limits the flow, that link is full and nobody on it has a higher level. So the flow has at least
    the level at which everything that may be there together fills the link.
    """
    level = flow.ceiling
    for link, own in flow.share:
        here = [lane for lane in lanes if any(one.on(link) for one in lane.flows)]
        level = min(level, _filling(links[link], own, level, here, stream, link))
    return level


def _filling(
    capacity: float, own: float, ceiling: float, lanes: Sequence[_Lane], stream: str, link: str
) -> float:
    """The level, up to ``ceiling``, at which a flow of a stream and all that may be beside it fill a link."""

    def load(level: float) -> float:
        others = sum(lane.times * lane.load(link, level) for lane in lanes)
        mine = min((lane.load(link, level) for lane in lanes if lane.stream == stream), default=0.0)
        return own * level + others - mine

    if load(ceiling) <= capacity:
        return ceiling
    low, high = 0.0, ceiling
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if load(middle) <= capacity else (low, middle)
    return low
