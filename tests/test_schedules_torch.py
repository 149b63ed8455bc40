"""Orders against the installed torch.distributed.pipelining itself, over a grid of shapes.

torch computes its orders when a schedule is made, for which a stage that only says where it is will do: no
process group, no model. What GPipe and 1F1B run is written into a loop instead, so there the loop is run on
stages that note what they are told to do (torch 2.13's table for 1F1B is wrong on the last rank: it names
microbatches 1 to m).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get

pytestmark = pytest.mark.torch


# Not at the top: .ci/run asks for tests marked torch before it installs torch.
@pytest.fixture(scope="module")
def torch_schedules() -> ModuleType:
    pytest.importorskip("torch")
    return pytest.importorskip("torch.distributed.pipelining.schedules")


@dataclass
class Stage:
    """One stage of a pipeline, without a model, that notes what it is told to run."""

    stage_index: int
    num_stages: int
    group_rank: int
    group_size: int
    submod: None = None
    done: list[str] = field(default_factory=list)

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def forward_one_chunk(self, microbatch: int, *args: Any, **options: Any) -> None:
        self.done.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch: int, *args: Any, **options: Any) -> None:
        self.done.append(f"{self.stage_index}B{microbatch}")

    def _no_messages(self, microbatch: int) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _no_messages

    def perform_reduce_grad(self, divisor: int) -> None:
        pass


def stages(shape: Shape, rank: int) -> list[Stage]:
    return [
        Stage(stage_index=stage, num_stages=shape.stages, group_rank=rank, group_size=shape.ranks)
        for stage in range(rank, shape.stages, shape.ranks)
    ]


def ours(name: str, shape: Shape) -> list[list[str]]:
    return [[str(step) for step in order] for order in get(name).orders(shape)]


# What torch runs, where the order is a loop ---------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "name"), [("ScheduleGPipe", "gpipe"), ("Schedule1F1B", "1f1b")])
def test_orders_are_those_that_torch_executes(
    torch_schedules: ModuleType, monkeypatch: pytest.MonkeyPatch, theirs: str, name: str
) -> None:
    schedule = getattr(torch_schedules, theirs)
    monkeypatch.setattr(schedule, "_initialize_stage", lambda *_: None)
    for p, m in product(range(1, 9), range(1, 25)):
        shape = Shape(ranks=p, microbatches=m)
        made = [stages(shape, rank)[0] for rank in range(p)]
        if name == "1f1b" and m < p:
            with pytest.raises(ValueError, match="of microbatches"):
                schedule(made[0], m)
            continue
        for stage in made:
            schedule(stage, m)._step_microbatches()
        assert [stage.done for stage in made] == ours(name, shape), shape


def test_tables_of_gpipe_and_1f1b(torch_schedules: ModuleType) -> None:
    """1F1B's but for the last rank; should torch mend that, this fails and may go."""
    for p, m in product(range(1, 9), range(8, 20)):
        shape = Shape(ranks=p, microbatches=m)
        for theirs, name in (("ScheduleGPipe", "gpipe"), ("Schedule1F1B", "1f1b")):
            schedule = getattr(torch_schedules, theirs)(stages(shape, 0)[0], m)
            *others, last = table(schedule)
            expected = ours(name, shape)
            assert others == expected[:-1], shape
            assert (last == expected[-1]) == (name == "gpipe"), shape


# What torch tabulates -------------------------------------------------------------------------------------


def table(schedule: Any) -> list[list[str]]:
    """The compute actions of every rank."""
    return [
        [str(action) for action in schedule.pipeline_order[rank] if action and "REDUCE" not in str(action)]
        for rank in sorted(schedule.pipeline_order)
    ]


def torch_group(shape: Shape) -> int | None:
    """Microbatches per round of torch; None where it refuses, because the rounds do not divide them."""
    rounds = max(1, shape.microbatches // shape.ranks)
    return None if shape.microbatches % rounds else shape.microbatches // rounds


def assert_both_refuse_or_agree(schedule: Any, name: str, shape: Shape) -> bool:
    """Whether they agree."""
    try:
        theirs = schedule(stages(shape, 0), shape.microbatches)
    except ValueError:
        with pytest.raises(ValueError, match="use "):
            get(name).check(shape)
        return False
    assert table(theirs) == ours(name, shape), shape
    mapping = theirs.stage_index_to_group_rank
    placed = [get(name).rank_of(stage, 0, shape) for stage in range(shape.stages)]
    assert [mapping[stage] for stage in range(shape.stages)] == placed
    return True


@pytest.mark.parametrize(
    ("theirs", "name", "chunks"),
    [
        ("ScheduleLoopedBFS", "looped-bfs", (1, 2, 3)),
        ("ScheduleInterleavedZeroBubble", "interleaved-zb", (1, 2, 3)),
        ("ScheduleZBVZeroBubble", "zb-v", (1, 2, 3)),
        ("ScheduleDualPipeV", "dualpipev", (1, 2, 3)),
    ],
)
def test_orders_placement_and_refusals_are_torchs(
    torch_schedules: ModuleType, theirs: str, name: str, chunks: tuple[int, ...]
) -> None:
    """Orders, placement, and which shapes are refused."""
    agreed = [
        assert_both_refuse_or_agree(
            getattr(torch_schedules, theirs), name, Shape(ranks=p, microbatches=m, chunks=v)
        )
        for p, m, v in product((1, 2, 3, 4, 5, 8), (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 17), chunks)
    ]
    assert sum(agreed) >= 30


def test_table_of_interleaved_1f1b(torch_schedules: ModuleType) -> None:
    """With torch's groups, which we are told; one chunk or one rank is 1F1B's business with us."""
    schedule = torch_schedules.ScheduleInterleaved1F1B
    agreed = 0
    for p, m, v in product((2, 3, 4, 5, 8), (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 17), (2, 3, 4)):
        shape = Shape(ranks=p, microbatches=m, chunks=v)
        group = torch_group(shape)
        if group is None:
            with pytest.raises(ValueError, match="of rounds"):
                schedule(stages(shape, 0), m)
            continue
        theirs = table(schedule(stages(shape, 0), m))
        assert theirs == ours("interleaved", Shape(ranks=p, microbatches=m, chunks=v, group=group)), shape
        agreed += 1
    assert agreed >= 90
