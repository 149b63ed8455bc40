"""Collective algorithms: what they refuse, and that the executor of the other tests notices broken plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from oracles.execute import execute

from stepsim.schedules import collectives
from stepsim.schedules.transfers.group import RankGroup
from stepsim.schedules.transfers.plan import TransferPlan
from stepsim.schedules.transfers.transfer import PieceTransfer
from stepsim.schedules.unknown import UnknownEntry


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownEntry) as refusal:
        collectives.get("nvlstree")
    assert (refusal.value.name, refusal.value.nearest) == ("nvlstree", "nvls-tree")
    assert "nvls-tree" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "group", "what"),
    [
        ("nvls", RankGroup(local=1, nodes=4), "1 rank .*4 nodes.*2 ranks"),
        ("nvls-tree", RankGroup(local=8), "8 ranks .*1 nodes.*nvls"),
        ("collnet-direct", RankGroup(local=8), "2 nodes, or nvls"),
        ("collnet-chain", RankGroup(local=8), "2 nodes, or nvls"),
    ],
)
def test_a_group_that_cannot_be_is_refused(name: str, group: RankGroup, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        collectives.get(name).plan("all_reduce", group)


def test_a_collective_that_an_algorithm_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pat .*'all_reduce'; .*all_gather, reduce_scatter"):
        collectives.get("pat").plan("all_reduce", RankGroup(local=4))


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ({"local": 1}, "1 rank"),
        ({"local": 0, "nodes": 2}, "1 rank"),
        ({"local": 4, "root": 4}, "root 4"),
    ],
)
def test_a_group_of_nothing_is_refused(sizes: dict[str, int], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        RankGroup(**cast(Any, sizes))


def broken(change: str) -> TransferPlan:
    """A ring of three with something wrong."""
    plan = collectives.get("ring").plan("all_reduce", RankGroup(local=3))
    right = list(plan.transfers())
    wrong = {
        "late": [t if t.step else t._replace(step=4) for t in right],
        "early": [
            t if t.step != 3 else t._replace(pieces=range(t.pieces[0] + 1, t.pieces[0] + 2)) for t in right
        ],
        "twice": [*right[:3], *(t._replace(step=t.step + 1) for t in right[:3])],
        "short": right[:-1],
        "clash": [*right, PieceTransfer(3, 0, 1, right[-3].pieces, False)],
        "gap": [t._replace(step=t.step + 1) for t in right],
        "unheld": [PieceTransfer(0, plan.group.node_switch(0), 0, range(1), False), *right],
    }
    return replace(plan, transfers=lambda: iter(wrong[change]))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("late", "step 0"),
        ("early", "ends with"),
        ("twice", "rank twice"),
        ("short", "ends with"),
        ("clash", "written twice"),
        ("gap", "step 0"),
        ("unheld", "piece 0"),
    ],
)
def test_the_executor_notices(change: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        execute(broken(change))


def test_the_executor_counts_steps() -> None:
    plan = collectives.get("ring").plan("all_gather", RankGroup(local=3))
    with pytest.raises(ValueError, match=r"5 steps, .*2"):
        execute(replace(plan, steps=5))
