"""What every pipeline schedule is: a pure function from a shape to each rank's order.

One file per schedule beside this one; each ends in ``SCHEDULE = Schedule(...)`` and is found by
its name (``schedules.pipeline.get("1f1b")``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from .action import Orders


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Times of the actions of one chunk, and of a message between two ranks: integers of any one unit.

    A whole backward lasts ``input_grad + weight_grad``. Schedules that search weigh them; the others
    are the same for any.
    """

    forward: int = 1
    input_grad: int = 1
    weight_grad: int = 1
    latency: int = 0

    def __post_init__(self) -> None:
        for name in ("forward", "input_grad", "weight_grad", "latency"):
            if getattr(self, name) < 0:
                raise ValueError(f"a time cannot be negative, but {name} is {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class ActivationUnits:
    """What the actions of one chunk add to what their rank holds: integers of any one unit.

    ``input_grad`` is what an input gradient frees already (0 or less); the weight gradient frees
    the rest. ``limit`` is the most that a rank may hold; None is the schedule's own.
    """

    forward: int = 1
    input_grad: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.forward < 1 or not -self.forward <= self.input_grad <= 0:
            raise ValueError(
                f"a forward keeps at least 1 and an input gradient frees at most that, not {self.forward} "
                f"and {self.input_grad}"
            )
        if self.limit is not None and self.limit < self.forward:
            raise ValueError(
                f"a memory limit of {self.limit} does not hold one activation ({self.forward}); raise it"
            )

    @property
    def weight_grad(self) -> int:
        """What a weight gradient adds: with the other two it makes nothing."""
        return -self.forward - self.input_grad


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a schedule is asked for: ``ranks`` p, ``microbatches`` m, ``chunks`` v per rank.

    ``group`` is Megatron's microbatch group size per virtual stage (None: ranks). ``costs`` and
    ``memory`` are what a search weighs. Raises ValueError when a count is not positive.
    """

    ranks: int
    microbatches: int
    chunks: int = 1
    group: int | None = None
    costs: Costs = Costs()
    memory: ActivationUnits = ActivationUnits()

    def __post_init__(self) -> None:
        for name in ("ranks", "microbatches", "chunks", "group"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"a pipeline needs {name} of at least 1, not {value}")

    @property
    def stages(self) -> int:
        """Virtual stages S = p·v."""
        return self.ranks * self.chunks


Placement = Callable[[int, int, Shape], int]
"""``rank_of(stage, microbatch, shape)``: the rank that runs a microbatch on a stage."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A named schedule.

    ``orders(shape)`` gives each rank's actions, and refuses the shapes that ``check(shape)`` refuses:
    with a ValueError saying which would do. ``rank_of(stage, microbatch, shape)`` places the stages.
    ``in_flight(rank, shape)`` is the largest number of chunk activations that a rank ever holds; None
    where only the orders tell. ``chunks`` per rank is what a shape has unless it says otherwise.
    ``uses_costs``: the orders depend on the costs and the memory of the shape.
    ``weight_versions(rank, shape)`` is how many versions of its weights a rank keeps, which it updates after
    every microbatch; None: one.

    Traits, which tests hold against the orders. ``splits_backward``: input and weight gradients are actions
    of their own. ``ends_meet``: the first rank holds both ends of the model. ``two_way``: microbatches
    travel both ways, so that every stage is there twice. ``overlaps``: a forward and a backward of different
    microbatches run as one, or may (overlapped.py). ``grouped``: groups of microbatches take turns on the
    chunks as in Megatron-LM, and messages follow its rule for one chunk.

    ``filling`` is how many groups of as many microbatches as ranks fill the pipeline, and drain it, where the
    steady state between repeats with every group and memory does not grow then; 0: it may not repeat.
    ``paired`` is how many microbatches more make a full pipeline run one turn more and change nothing else,
    where a turn is a forward with a backward from either side; 0: it runs other things, or is never full.
    ``limited`` are published names of it under a memory limit, with that limit as a multiple of the ranks.
    ``place`` orders it among the choices of a scenario: the plain ones come first.
    """

    name: str
    title: str
    orders: Callable[[Shape], Orders]
    check: Callable[[Shape], None]
    rank_of: Placement
    in_flight: Callable[[int, Shape], int] | None = None
    chunks: int = 1
    uses_costs: bool = False
    weight_versions: Callable[[int, Shape], int] | None = None
    splits_backward: bool = False
    ends_meet: bool = False
    two_way: bool = False
    overlaps: bool = False
    grouped: bool = False
    filling: int = 0
    paired: int = 0
    limited: Mapping[str, int] = field(default_factory=dict, hash=False)
    place: int = 1000


def loop_placement(stage: int, microbatch: int, shape: Shape) -> int:
    """Stage s sits on rank s mod p."""
    del microbatch  # all take the same way
    return stage % shape.ranks


def v_placement(stage: int, microbatch: int, shape: Shape) -> int:
    """Down the ranks and back up: stage s sits on rank s, from stage p on at rank 2p-1-s."""
    del microbatch
    return stage if stage < shape.ranks else 2 * shape.ranks - 1 - stage


def two_way_placement(stage: int, microbatch: int, shape: Shape) -> int:
    """The first half of the microbatches go down the ranks, the others up; every stage is there twice."""
    return stage if microbatch < shape.microbatches // 2 else shape.ranks - 1 - stage


def stage_to_rank(rank_of: Placement, shape: Shape) -> tuple[int, ...] | None:
    """The rank of each stage; None where that depends on the microbatch."""
    last = shape.microbatches - 1
    ranks = tuple(rank_of(stage, 0, shape) for stage in range(shape.stages))
    others = tuple(rank_of(stage, last, shape) for stage in range(shape.stages))
    return ranks if ranks == others else None


def holders(stage: int, rank_of: Placement, shape: Shape) -> set[int]:
    """The ranks that hold a stage: two where microbatches travel both ways."""
    return {rank_of(stage, microbatch, shape) for microbatch in (0, shape.microbatches - 1)}


def fixed_chunks(name: str, chunks: int, *, limited: bool = False) -> Callable[[Shape], None]:
    """The check of a schedule with so many chunks per rank and no groups; ``limited``: by memory."""
    return partial(_check_chunks, name, chunks, limited)  # which results can be pickled with


def _check_chunks(name: str, chunks: int, limited: bool, shape: Shape) -> None:
    if shape.chunks != chunks:
        has = "one chunk" if chunks == 1 else f"{chunks} chunks"
        another = "interleaved" if shape.chunks > 1 else "1f1b"
        raise ValueError(
            f"{name} has {has} per rank, not {shape.chunks}; "
            f"use chunks={chunks}, or another schedule, such as {another}"
        )
    no_groups(name, shape)
    if not limited:
        no_limit(name, shape)


def no_groups(name: str, shape: Shape) -> None:
    """Refuse a group size where microbatches are not grouped."""
    if shape.group is not None:
        raise ValueError(
            f"{name} does not group its microbatches, so group={shape.group} means nothing; leave it out"
        )


def no_limit(name: str, shape: Shape) -> None:
    """Refuse a memory limit where the schedule does not search."""
    if shape.memory.limit is not None:
        raise ValueError(
            f"{name} holds what it holds, so a memory limit of {shape.memory.limit} means nothing; leave it "
            "out, or use zb or zb-v-greedy"
        )
