"""Where a fault strikes, in words: ``gpu/37``, ``rail/3@node/12``, ``leaf/4``, ``job``.

Knows the grammar and which scope lies in which. Does not know how many of each a cluster has: a ``Counts``
says so.

    >>> parse_target("rail/3@node/12")
    Target(scope='rail', index=3, inside=Target(scope='node', index=12, inside=None))
    >>> str(parse_target("gpu/37")), str(parse_target("job"))
    ('gpu/37', 'job')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ....hardware.catalogue import unknown_name
from .kinds import ANYWHERE

_PART = re.compile(r"([a-z]+)(?:/(\d+))?")
WHOLE = ("job", "storage")
"""Scopes of which there is one."""

_INSIDE = {
    "gpu": ("node",),
    "nic": ("node",),
    "rail": ("node", "leaf"),
    "link": ("node",),
    "node": ("rack", "leaf"),
    "spine": ("leaf",),
}


@dataclass(frozen=True)
class Target:
    """``index`` counts from 0; None only for what there is one of. ``inside``: within that other target,
    where the index counts from its first; a rail inside a node is the node's own link to that rail, a spine
    inside a leaf the ports between both.
    """

    scope: str
    index: int | None = None
    inside: Target | None = None

    def __str__(self) -> str:
        own = self.scope if self.index is None else f"{self.scope}/{self.index}"
        return f"{own}@{self.inside}" if self.inside else own


def parse_target(text: str) -> Target:
    """The target that ``text`` names.

    Raises:
        ValueError: not of the form ``scope/index``; an unknown scope; one that does not lie inside the other.
    """
    own, _, rest = text.strip().partition("@")
    match = _PART.fullmatch(own)
    if match is None:
        raise ValueError(
            f"{text!r} names no target; write scope/index, such as gpu/37, rail/3@node/12 or job"
        )
    scope, number = match[1], match[2]
    if scope not in ANYWHERE:
        raise unknown_name("scope", scope, ANYWHERE)
    if (number is None) != (scope in WHOLE):
        how = f"write {scope}" if number else f"write {scope}/0 for the first"
        raise ValueError(f"{text!r}: {how}")
    inside = parse_target(rest) if rest else None
    if inside and inside.scope not in _INSIDE.get(scope, ()):
        known = " or ".join(_INSIDE.get(scope, ())) or "nothing"
        raise ValueError(f"{text!r}: {scope} lies inside {known}, not inside {inside.scope}")
    return Target(scope, None if number is None else int(number), inside)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many there are of each scope, and how many of one inside one of another."""

    total: Mapping[str, int]
    per: Mapping[tuple[str, str], int]

    def check(self, target: Target) -> None:
        """ValueError for a target that the cluster does not have."""
        if target.inside:
            self.check(target.inside)
        if target.index is None:
            return
        if target.inside:
            held = self.per.get((target.scope, target.inside.scope), 0)
            where = f"a {target.inside.scope}"
        else:
            held, where = self.total.get(target.scope, 0), "the cluster"
        if target.index >= held:
            last = f"{target.scope}/{held - 1}" if held else "none"
            raise ValueError(f"{target} does not exist: {where} has {held:,} of them, the last is {last}")
