"""Groups of classes whose blocks meet one another in collectives; most classes are one by themselves.

Says who they are and whether the rest of repeated blocks ends on none of them before all have begun it, so
that it can be replayed for all of them together. Knows no time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import Literal

from ..program.program import Binding, Block, Collective, Programs, RepeatedBlocks

How = Literal["alone", "together", "detail"]
"""How repeated blocks can run from one of them on: none meets others, all members meet, or neither."""

IN_DETAIL: How = "detail"


@dataclass(eq=False)
class JointGroup:
    """``kind`` is the same for groups whose blocks run alike: as slow, over the same links, with equal
    collectives between members.

    ``communicators`` are those that join members, by their numbers in the group; ``bindings`` and ``links``
    are by member, and so are ``repeated_blocks`` where there are several: all of each one's program, which
    correspond in order. When a member or a link changes speed, so do ``kind``, ``bindings`` and ``links``
    (``JointGroups.renew``).
    """

    members: tuple[int, ...]
    kind: int
    communicators: Mapping[str, tuple[int, ...]]
    bindings: tuple[Binding, ...]
    links: tuple[Mapping[str, float], ...]
    repeated_blocks: tuple[tuple[RepeatedBlocks, ...], ...]

    def rendezvous(self, number: int) -> tuple[RepeatedBlocks, ...] | None:
        """The ``number``-th repeated blocks of all members, if any of their blocks meet others; else None."""
        found = tuple(mine[number] for mine in self.repeated_blocks if number < len(mine))
        names = (binding.communicators for binding in self.bindings)
        if all(s.communicators.isdisjoint(mine) for s, mine in zip(found, names, strict=False)):
            return None
        assert len(found) == len(self.members), (
            "repeated blocks that meet correspond in their order (matching.py)"
        )
        return found


@dataclass
class JointGroups:
    """The groups of one set of programs."""

    programs: Programs
    _alone: dict[int, JointGroup] = field(default_factory=dict)
    _joint: dict[int, JointGroup] = field(default_factory=dict)
    _kinds: dict[Hashable, int] = field(default_factory=dict)
    _links: dict[int, int] = field(default_factory=dict)
    _ways: dict[tuple[int, tuple[int, ...]], tuple[How, ...]] = field(default_factory=dict)
    _through: dict[tuple[int, tuple[Block, ...]], tuple[list[int], bool]] = field(default_factory=dict)
    _routed: dict[int, frozenset[str]] = field(default_factory=dict)
    _called: dict[int, frozenset[str]] = field(default_factory=dict)

    def alone(self, r: int) -> JointGroup:
        """Class ``r`` by itself."""
        if r not in self._alone:
            self._alone[r] = self._group((r,))
        return self._alone[r]

    def of(self, r: int) -> JointGroup:
        """Class ``r`` and all whose blocks meet its own, directly or through others."""
        found = self._joint.get(r)
        if found is None:
            members = self._members(r)
            found = self._group(members) if len(members) > 1 else self.alone(r)
            self._joint |= dict.fromkeys(members, found)
        return found

    def ways(self, group: JointGroup, repeated_blocks: tuple[RepeatedBlocks, ...]) -> tuple[How, ...]:
        """By number of a block, how the repeated blocks of all members can run from there on."""
        if any(self.crosses(r, s) for r, s in zip(group.members, repeated_blocks, strict=True)):
            return (IN_DETAIL,) * len(repeated_blocks[0].row)
        key = group.kind, tuple(map(id, repeated_blocks))
        if key not in self._ways:
            all_, ends = (1 << len(repeated_blocks)) - 1, [1 << m for m in range(len(repeated_blocks))]
            ways: list[How] = []
            meets = False
            for blocks in zip(*(reversed(s.row) for s in repeated_blocks), strict=True):
                through, rendezvous = self._awaited(group, blocks)
                ends = [_union(bits for m, bits in enumerate(through) if end >> m & 1) for end in ends]
                meets = meets or rendezvous
                ways.append(("together" if all(e == all_ for e in ends) else "detail") if meets else "alone")
            self._ways[key] = tuple(reversed(ways))
        return self._ways[key]

    def crosses(self, r: int, repeated: RepeatedBlocks) -> bool:
        """Whether collectives of these blocks of class ``r`` cross the fabric, whose links others use too."""
        if not self.programs.paths.collectives:
            return False
        if r not in self._routed:
            self._routed[r] = self.programs.paths.routed(r)
        to = self.programs.binding(r).communicators
        return any(to.get(name, name) in self._routed[r] for name in repeated.communicators)

    def _awaited(self, group: JointGroup, blocks: tuple[Block, ...]) -> tuple[list[int], bool]:
        """Bits of the members whose beginning the end of each one's block awaits, and whether any meet."""
        key = group.kind, blocks
        if key not in self._through:
            self._through[key] = _through(group, blocks)
        return self._through[key]

    def _members(self, r: int) -> tuple[int, ...]:
        found, stack = {r}, [r]
        while stack:
            mine = stack.pop()
            for name in self._calls(mine):
                joined = self.programs.joins(mine, name)
                for other in self.programs.communicators[joined] if joined else ():
                    if other not in found:
                        found.add(other)
                        stack.append(other)
        return tuple(sorted(found))

    def _calls(self, r: int) -> frozenset[str]:
        """The communicators that the repeated blocks of a class's program call."""
        program = self.programs.classes[r]
        found = self._called.get(id(program))
        if found is None:
            works = [op.work for op in program.ops if isinstance(op.work, RepeatedBlocks)]
            distinct = {id(work): work for work in works}.values()
            found = self._called[id(program)] = frozenset(
                [name for one in distinct for name in one.communicators]
            )
        return found

    def _group(self, members: tuple[int, ...]) -> JointGroup:
        programs, number = self.programs, {r: m for m, r in enumerate(members)}
        communicators: dict[str, tuple[int, ...]] = {}
        bindings, repeated_blocks = [], []
        for r in members:
            names = {}
            for name in self._calls(r) if len(members) > 1 else ():
                joined = programs.joins(r, name)
                if joined is not None:
                    meets = tuple(number[other] for other in programs.communicators[joined])
                    names[name] = f"{name} {meets}"
                    communicators[names[name]] = meets
            bindings.append(replace(programs.binding(r), communicators=names, peers={}))
            if len(members) > 1:
                ops = programs.classes[r].ops
                repeated_blocks.append(tuple(op.work for op in ops if isinstance(op.work, RepeatedBlocks)))
        links = tuple(programs.links[r] for r in members)
        group = JointGroup(members, 0, communicators, tuple(bindings), links, tuple(repeated_blocks))
        group.kind = self._kind(group)
        return group

    def renew(self, programs: Programs) -> None:
        """Take note that classes have other speeds and links: ``programs`` are the same as before except for
        these."""
        self.programs = programs
        for group in {id(one): one for one in (*self._alone.values(), *self._joint.values())}.values():
            slow = [programs.binding(r).slow for r in group.members]
            group.bindings = tuple(
                replace(binding, slow=now) for now, binding in zip(slow, group.bindings, strict=True)
            )
            group.links = tuple(programs.links[r] for r in group.members)
            group.kind = self._kind(group)

    def _kind(self, group: JointGroup) -> int:
        kinds = tuple(
            (binding.slow, binding.sms, self._links_kind(links), tuple(sorted(binding.communicators.items())))
            for binding, links in zip(group.bindings, group.links, strict=True)
        )
        return self._kinds.setdefault(kinds, len(self._kinds))

    def _links_kind(self, links: Mapping[str, float]) -> int:
        if id(links) not in self._links:
            self._links[id(links)] = self._kinds.setdefault(frozenset(links.items()), len(self._kinds))
        return self._links[id(links)]


def _through(group: JointGroup, blocks: tuple[Block, ...]) -> tuple[list[int], bool]:
    """What ``_awaited`` says, found by following the ops of all members in their order at once."""
    members, rendezvous = range(len(blocks)), False
    bits: list[list[int]] = [[] for _ in members]
    last: list[dict[str, int]] = [{} for _ in members]
    for i in range(len(blocks[0].ops)):
        for m in members:
            op = blocks[m].ops[i]
            mine = (1 << m) | last[m].get(op.stream, 0)
            bits[m].append(mine | _union(bits[m][d] for d in op.after))
        for m in members:
            work = blocks[m].ops[i].work
            name = (
                group.bindings[m].communicators.get(work.communicator)
                if isinstance(work, Collective)
                else None
            )
            if name:
                rendezvous = True
                bits[m][i] |= _union(bits[other][i] for other in group.communicators[name])
        for m in members:
            last[m][blocks[m].ops[i].stream] = bits[m][i]
    return [_union(((1 << m), *bits[m])) for m in members], rendezvous


def _union(bits: Iterable[int]) -> int:
    return reduce(or_, bits, 0)
