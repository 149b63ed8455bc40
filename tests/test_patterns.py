"""Who sends to whom: every pattern sends what its algorithm sends, whatever the placements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.network.patterns import PATTERNS, sent


@st.composite
def placements(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Groups over equally many domains with equally many members in each, ranks in any order."""
    groups, parts, size = draw(st.integers(1, 3)), draw(st.integers(2, 9)), draw(st.integers(1, 4))
    order = np.array(draw(st.permutations(range(groups * parts * size))))
    place = np.arange(groups * parts * size)
    return (place // (parts * size))[order], (place // size)[order], parts, size


@given(placements(), st.sampled_from(PATTERNS))
def test_members_send_to_other_domains_of_their_group(
    drawn: tuple[np.ndarray, np.ndarray, int, int], pattern: str
) -> None:
    instance, domain, _, _ = drawn
    found = sent(pattern, instance, domain)
    assert (instance[found.sender] == found.instance).all()
    assert (instance[found.receiver] == found.instance).all()
    assert (domain[found.sender] != domain[found.receiver]).all()


@given(placements(), st.sampled_from(["ring", "pairs", "rails"]))
def test_every_nic_carries_the_same(drawn: tuple[np.ndarray, np.ndarray, int, int], pattern: str) -> None:
    instance, domain, _, _ = drawn
    found = sent(pattern, instance, domain)
    for end in (found.sender, found.receiver):
        assert np.bincount(end, found.share, len(instance)) == pytest.approx(np.ones(len(instance)))


@given(placements())
def test_two_trees_send_up_and_down_every_edge(drawn: tuple[np.ndarray, np.ndarray, int, int]) -> None:
    """2(N - 1) edges both ways, half of the payload on each; the busiest domain sends all of its share."""
    instance, domain, parts, size = drawn
    found = sent("tree", instance, domain)
    share = 0.5 if parts == 2 else 0.25
    assert len(found.share) == 4 * (parts - 1) * size * (instance.max() + 1)
    assert (found.share == share).all()
    out = np.bincount(found.sender, found.share, len(instance))
    assert out.max() <= 1.0 + 1e-12
    assert np.bincount(found.receiver, found.share, len(instance)) == pytest.approx(out)


def test_a_ring_goes_down_the_rails_from_domain_to_domain() -> None:
    ring = sent("ring", np.zeros(6, dtype=np.int64), np.arange(6) // 2)
    assert list(zip(ring.sender, ring.receiver, strict=True)) == [
        (0, 2),
        (1, 3),
        (2, 4),
        (3, 5),
        (4, 0),
        (5, 1),
    ]
    hop = sent("neighbours", np.zeros(6, dtype=np.int64), np.arange(6) // 2)
    assert list(zip(hop.sender, hop.receiver, strict=True)) == [(1, 2), (3, 4), (5, 0)]


def test_unequal_domains_share_what_crosses() -> None:
    """Three ranks beside one: as much leaves either, so the lone NIC carries what three share."""
    ring = sent("ring", np.zeros(4, dtype=np.int64), np.array([0, 0, 0, 1]))
    assert np.bincount(ring.sender, ring.share).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])
    pairs = sent("pairs", np.zeros(4, dtype=np.int64), np.array([0, 0, 0, 1]))
    assert np.bincount(pairs.sender, pairs.share).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])


def test_groups_inside_a_domain_send_nothing() -> None:
    for pattern in PATTERNS:
        assert len(sent(pattern, np.arange(8) // 4, np.arange(8) // 4).share) == 0
    with pytest.raises(ValueError, match="no pattern 'star'; known: ring, tree"):
        sent("star", np.zeros(4, dtype=np.int64), np.arange(4))
