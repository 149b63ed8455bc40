"""How evenly a router spreads tokens over experts, and how much of that reaches the ranks that hold them.

- ``balanced``: every expert gets the same. ``zipf``: the k-th expert gets 1/k^s of the first one's tokens.
  ``counts``: tokens of each expert in a run, from a file.
- ``repeated``: the data has only a few distinct tokens, and equal tokens go to the same experts, which differ
  from layer to layer. All wait for the rank with the most rows of a layer; it is modelled as the same rank in
  every layer.

Rank 0 of an expert group holds the first experts, and so, under zipf, the busiest. In large groups, ranks of
similar loads are merged (``LEVELS``), so that few classes of ranks are replayed. With a capacity, an expert
drops rows above it and pads rows below it: all ranks are equal again, and only tokens are lost.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ....hardware.files import FileError, YamlLimits, load_json, load_yaml, read_text
from ...scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ...scenario.models import Scenario


LEVELS = 8
"""Loads that are told apart. The heaviest rank, which all others wait for, keeps its own; the rest are
ordered and cut into groups of like size, each with its mean."""


def expert_shares(scenario: Scenario) -> tuple[float, ...]:
    """Tokens of each expert over the mean of all. Raises ValueError for a file that does not fit the
    model."""
    moe, routing = scenario.model.moe, scenario.training.routing
    if moe is None:
        return ()
    if isinstance(routing, str):
        return (1.0,) * moe.num_experts
    if few := _few_tokens(scenario):
        return few.experts
    if routing.kind == "zipf":
        assert routing.exponent is not None
        return _over_mean([(k + 1) ** -routing.exponent for k in range(moe.num_experts)])
    assert routing.file is not None
    counts = _counts(routing.file)
    if len(counts) != moe.num_experts:
        raise NotSupported(
            "training.routing.file",
            f"{routing.file} has {len(counts)} counts, but the model has {moe.num_experts} experts",
        )
    return _over_mean(list(counts))


def rank_loads(scenario: Scenario) -> tuple[float, ...]:
    """Rows of each rank of an expert group over the mean, by its position in the group; () for a dense
    model."""
    moe, ep = scenario.model.moe, scenario.parallelism.ep
    if moe is None:
        return ()
    if moe.capacity_factor is not None:
        return (1.0,) * ep
    if few := _few_tokens(scenario):
        return _levelled(list(few.loads))
    shares, held = expert_shares(scenario), moe.num_experts // ep
    return _levelled([sum(shares[r * held : (r + 1) * held]) / held for r in range(ep)])


def _levelled(loads: list[float]) -> tuple[float, ...]:
    if len(set(loads)) <= LEVELS:
        return tuple(loads)
    heaviest, *others = sorted(range(len(loads)), key=lambda rank: -loads[rank])
    levelled = list(loads)
    for level in range(LEVELS - 1):
        members = others[level * len(others) // (LEVELS - 1) : (level + 1) * len(others) // (LEVELS - 1)]
        mean = sum(loads[rank] for rank in members) / len(members)
        for rank in members:
            levelled[rank] = mean
    levelled[heaviest] = loads[heaviest]
    return tuple(levelled)


def distinct_loads(scenario: Scenario) -> tuple[float, ...]:
    """The distinct loads of ranks, heaviest first; (1.0,) for a dense model."""
    return tuple(sorted(set(rank_loads(scenario)), reverse=True)) or (1.0,)


def busiest_share(scenario: Scenario) -> float:
    """Rows of the busiest expert over the mean of the experts on the heaviest rank; 1 where a capacity
    pads all."""
    moe = scenario.model.moe
    if moe is None or moe.capacity_factor is not None:
        return 1.0
    return max(expert_shares(scenario)) / distinct_loads(scenario)[0]


def experts_with_rows(scenario: Scenario) -> int:
    """How many experts of a layer get any token."""
    if few := _few_tokens(scenario):
        return few.chosen
    return sum(share > 0 for share in expert_shares(scenario))


class FewTokens(NamedTuple):
    """Loads of ranks and of experts over their means, largest first, for data with few distinct tokens;
    ``chosen`` counts the experts that get any."""

    loads: tuple[float, ...]
    experts: tuple[float, ...]
    chosen: int


_DRAWS = 1000
"""Layers that are drawn: the mean of the heaviest of eight ranks is within 1 % of that of 100,000."""


@lru_cache(maxsize=64)
def few_tokens(experts: int, topk: int, ep: int, tokens: int) -> FewTokens:
    """What ranks and experts have in the mean of layers in each of which every one of ``tokens`` different
    tokens goes to ``topk`` of ``experts``, any as likely as the others.

    >>> few_tokens(32, 4, 1, 2).loads
    (1.0,)
    >>> round(few_tokens(32, 4, 8, 2).loads[0], 1)
    2.5
    """
    import numpy as np

    drawn, chosen = np.random.default_rng(0), np.zeros((_DRAWS, experts))
    for _ in range(tokens):
        order = drawn.random((_DRAWS, experts)).argsort(axis=1)
        chosen += order < topk
    shares = chosen * experts / (tokens * topk)
    ranks = shares.reshape(_DRAWS, ep, -1).mean(axis=2)
    loads, each = ((-np.sort(-found, axis=1)).mean(axis=0) for found in (ranks, shares))
    hit = round(float((chosen > 0).sum(axis=1).mean()))
    return FewTokens(tuple(map(float, loads)), tuple(map(float, each)), hit)


def _few_tokens(scenario: Scenario) -> FewTokens | None:
    """The spread of data with a few tokens; None of any other."""
    moe, routing = scenario.model.moe, scenario.training.routing
    if moe is None or isinstance(routing, str) or routing.tokens is None:
        return None
    return few_tokens(moe.num_experts, moe.topk, scenario.parallelism.ep, routing.tokens)


def dropped_share(scenario: Scenario) -> float:
    """The share of all copies of tokens that experts drop, since their capacity is full: what each expert's
    load (over the mean of all) has above ``moe.capacity_factor``, in the mean of experts. 0 without one."""
    moe = scenario.model.moe
    if moe is None or moe.capacity_factor is None:
        return 0.0
    shares = expert_shares(scenario)
    return sum(max(0.0, share - moe.capacity_factor) for share in shares) / len(shares)


def _over_mean(tokens: list[float]) -> tuple[float, ...]:
    mean = sum(tokens) / len(tokens)
    return tuple(count / mean for count in tokens)


_COUNTS = YamlLimits(nodes=20_000)
"""One number for each expert; models have up to some hundred."""


def _counts(path: str) -> tuple[float, ...]:
    """A list of numbers in JSON or YAML, or one a line; read every time, so that the command knows of it."""
    try:
        return _parsed(path, read_text(path, limit=_COUNTS.bytes))
    except FileError as error:
        raise NotSupported("training.routing.file", str(error)) from None


@lru_cache(maxsize=16)
def _parsed(path: str, text: str) -> tuple[float, ...]:
    try:
        found = load_json(text, path) if path.endswith(".json") else load_yaml(text, path, _COUNTS)
        if isinstance(found, str | int | float):
            found = [float(word) for word in text.split()]
        counts = tuple(float(count) for count in found)
    except FileError:
        raise
    except (ValueError, TypeError):
        raise NotSupported("training.routing.file", f"{path} is not a list of numbers") from None
    if not counts or not all(math.isfinite(count) and count >= 0 for count in counts) or not sum(counts):
        raise NotSupported(
            "training.routing.file", f"{path} must hold finite counts of 0 or more, not all of them 0"
        )
    return counts
