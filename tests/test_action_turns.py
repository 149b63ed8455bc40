"""Actions of all ranks in turn: each behind what it waits for, whatever the schedule."""

from __future__ import annotations

import pytest
from small_scenarios import scenario

from stepsim.schedules.orders.action import Action
from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get, names
from stepsim.sim.brief.action_turns import numbers_of, turns_of_actions
from stepsim.sim.brief.search import Search
from stepsim.sim.lowering.without_messages import RankWithoutMessages
from stepsim.sim.scenario.models import Scenario

EXPERTS = {"num_experts": 4, "topk": 2, "expert_ffn_hidden_size": 512}
"""Whose rows the host waits for in each layer."""

ONE_WAY = [name for name in names() if not get(name).two_way]


def shape_of(name: str) -> Shape:
    """One that nearly every schedule takes."""
    chunks = next(chunks for chunks in (2, 1) if _takes(name, Shape(ranks=4, microbatches=8, chunks=chunks)))
    return Shape(ranks=4, microbatches=8, chunks=chunks)


def _takes(name: str, shape: Shape) -> bool:
    try:
        get(name).orders(shape)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in ONE_WAY if name != "none"])
def test_every_action_comes_once_and_behind_what_it_waits_for(name: str) -> None:
    shape = shape_of(name)
    orders = get(name).orders(shape)
    turns = turns_of_actions(orders, shape)
    if turns is None:
        assert get(name).overlaps
        return
    found = [turns.kinds[kind]._replace(microbatch=microbatch) for kind, microbatch in turns.rows]
    assert [turns.place_of(action) for action in found] == [*range(len(found))]
    for rank, order in enumerate(orders):
        own = [
            action for action, (kind, _) in zip(found, turns.rows, strict=True) if turns.ranks[kind] == rank
        ]
        assert own == [*order]
        places = [turns.place_of(action) for action in own]
        assert [turns.following[place] for place in places] == [*places[1:], len(found)]
    done: set[int] = set()
    for stage, kind, microbatch in found:
        first, awaited = numbers_of(stage, kind, shape)
        assert awaited < 0 or awaited + microbatch in done
        done.add(first + microbatch)
    assert [found[place] for place in turns.first] == [
        next(action for action in found if action[:2] == kind[:2]) for kind in turns.kinds
    ]


def test_pairs_have_no_turns() -> None:
    shape = Shape(ranks=4, microbatches=8, chunks=2)
    assert turns_of_actions(get("dualpipev").orders(shape), shape) is None


@pytest.mark.parametrize(
    "run",
    [
        scenario(pp=4, microbatches=8, schedule="1f1b"),
        scenario(pp=4, vpp=2, microbatches=8, schedule="interleaved", zero=1, dp=2),
        scenario(software="megatron-core-2024", pp=2, microbatches=8, schedule="1f1b", zero=3, dp=4),
        scenario(pp=4, microbatches=8, schedule="zb-h1", zero=1, dp=2),
        scenario(
            software="megatron-core-2024", moe=EXPERTS, pp=2, ep=2, dp=2, microbatches=8, schedule="1f1b"
        ),
    ],
    ids=["1f1b", "interleaved", "sharded", "split", "host waits in blocks"],
)
def test_actions_that_are_their_blocks_take_as_long_as_if_they_were_written(
    run: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then each of them waits for, begins and ends as its ops do."""
    floor_s = Search().floor_of(run)
    written: list[Action] = []
    write = RankWithoutMessages.write

    def counted(self: RankWithoutMessages, action: Action) -> None:
        written.append(action)
        write(self, action)

    monkeypatch.setattr(RankWithoutMessages, "write", counted)
    assert Search().floor_of(run) == floor_s > 0.0
    few = len(written)
    monkeypatch.setattr(RankWithoutMessages, "pieces_of", lambda *_: ())
    assert Search().floor_of(run) == pytest.approx(floor_s, rel=1e-12)
    assert few < len(written) - few
