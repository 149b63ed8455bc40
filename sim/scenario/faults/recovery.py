"""The blocks ``recovery``, ``checkpoint`` and ``run``: what the job does after a fault, and how long it
goes on.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from ....hardware.fields import (
    YEAR_S,
    Chance,
    Count,
    PositiveShare,
    Rate,
    Ratio,
    Seconds,
    Size,
    number,
    quantity,
    whole,
)
from .fields import FaultsBlock, Interval
from .laws import Duration, Lasting, Lognormal

Policy = Literal["restart", "in_process", "hot_spare", "peer_memory", "elastic_dp", "per_step_ft"]
TierName = Literal["peer_memory", "local_disk", "storage"]


def _or(word: str) -> Any:
    """Tells the word that says where a number comes from, from the number; ``Tag`` names both."""
    return Discriminator(lambda value: "~word" if value == word else "~number")


FromBytes = Annotated[
    Annotated[Seconds, Tag("~number")] | Annotated[Literal["from_bytes"], Tag("~word")], _or("from_bytes")
]
FromStorage = Annotated[
    Annotated[Seconds, Tag("~number")] | Annotated[Literal["from_storage"], Tag("~word")], _or("from_storage")
]
"""A duration, or the word that says where it comes from."""
FactorFromBytes = Annotated[
    Annotated[Ratio, Tag("~number")] | Annotated[Literal["from_bytes"], Tag("~word")],
    _or("from_bytes"),
    Field(examples=["from_bytes"]),
]
"""A plain number: it has no unit to parse."""

Spare = Annotated[int, *whole(0, 100_000)]
"""Hosts in reserve: no fleet has as many hosts at all."""
Times = Annotated[int, *whole(1, 1_000_000)]
"""How often something small is repeated: replications, restarts, copies."""
Steps = Annotated[int, *whole(1, 10**9)]
Span = Annotated[float, *quantity("seconds", 1e-6, 10 * YEAR_S), Field(examples=["30 d"])]
"""A run: no cluster is older than ten years."""


class Requeue(FaultsBlock):
    """Waiting for the scheduler: ``base`` up to 128 hosts, and more for every doubling.

    Fitted to ByteRobust (arXiv:2509.16293): 454, 545, 635, 768 s at 128, 256, 512, 1,024 machines.
    """

    base: Seconds = Field(default=454.0, description="up to 128 hosts")
    per_doubling_over_128: Seconds = Field(default=100.0, description="more for every doubling")


class HostAllocation(FaultsBlock):
    """How long a restart waits for its hosts: with a warm spare or the same hosts, or out of the queue."""

    standby: Seconds = Field(
        default=60.0, description="ByteRobust: hot update and standby 46 to 70 s, at any size"
    )
    requeue: Requeue = Field(default=Requeue(), description="with a cold spare, or after preemption")


Point = tuple[Count, Seconds]


class Init(FaultsBlock):
    """Time to initialise communicators by number of GPUs, interpolated in the logarithm of both."""

    curve: tuple[Point, ...] = Field(
        default=((2048, 5.0), (12288, 30.0), (98304, 265.0)),
        min_length=1,
        description="MegaScale section 3 (2,048 and 12,288 GPUs), NCCLX (96k); secondary",
    )

    @model_validator(mode="after")
    def _ascending(self) -> Init:
        sizes = [gpus for gpus, _ in self.curve]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"numbers of GPUs must ascend, not {sizes}")
        return self


def _init(value: Any) -> Any:
    return {"curve": [[1, value]]} if isinstance(value, str) else value


class RestartCost(FaultsBlock):
    """What a restart takes, part by part. ``fixed`` stands for all of it, as one restore.

    kill and schedule come before hosts compute again (never exposed to failures of the job's own clock);
    init, load, compile and warm-up are the restore.
    """

    fixed: Duration | None = Field(default=None, description="all of it, as one restore")
    kill: Seconds = Field(default=15.0, description="ft_launcher: workers stop within 15 s")
    schedule: HostAllocation = Field(default=HostAllocation(), description="until hosts are there")
    init: Annotated[Init, BeforeValidator(_init, json_schema_input_type=str | Init)] = Field(
        default=Init(), description="communicators, by number of GPUs"
    )
    load: FromStorage = Field(
        default="from_storage", description="the checkpoint; from_storage: as its tier says"
    )
    compile: Seconds = Field(default=60.0, description="and warm caches; an assumption")
    warmup_steps: Annotated[int, *whole(0, 1_000_000)] = Field(
        default=3, description="steps that take twice as long"
    )

    @model_validator(mode="after")
    def _either(self) -> RestartCost:
        if self.fixed is not None and self.model_fields_set - {"fixed"}:
            other = min(self.model_fields_set - {"fixed"})
            raise ValueError(f"fixed stands for the whole restart; leave {other} or fixed out")
        return self


class SpareRule(FaultsBlock):
    """Spares by rule: the 99th percentile of the hosts that fail in a day (ByteRobust)."""

    p99_binomial: Literal["daily"] = Field(description="of the hosts that fail in a day")


class Spares(FaultsBlock):
    """Hosts in reserve. Warm ones stand by; cold ones come by the queue. None given: always enough warm
    ones.
    """

    warm: Spare | None = Field(default=None, description="standing by; none given: always enough")
    cold: Spare = Field(default=0, description="out of the queue")
    rule: SpareRule | None = Field(default=None, description="the number of warm spares by rule")
    promote: Seconds = Field(default=600.0, description="to make a cold spare a warm one; an assumption")


class Repair(FaultsBlock):
    """How a host comes back: a reboot first, and if that does not mend it, a repair.

    Times are assumptions without a public source; GB200 trays 1 to 4 h and backplanes 8 to 24 h bound them.
    """

    reboot: Duration = Field(default=Lasting(constant=600.0), description="tried first")
    replace: Duration = Field(
        default=Lasting(lognormal=Lognormal(median=86400.0, sigma=1.0)),
        description="if a reboot does not help",
    )
    p_reboot_fixes: Chance = Field(default=0.25, description="chance that a reboot helps")
    exclude_after: Times | None = Field(
        default=None, description="failures of one host after which another takes its place for good"
    )


class Elastic(FaultsBlock):
    """Going on with fewer data-parallel replicas."""

    replicas: Times | None = Field(default=None, description="default: parallelism.dp")
    min_replicas: PositiveShare = Field(
        default=0.9, description="share of replicas below which the job waits"
    )
    batch: Literal["keep_global", "keep_micro", "refuse"] = Field(
        default="keep_global",
        description="keep_global: more accumulation on fewer replicas, steps take longer; keep_micro: "
        "smaller steps",
    )
    regrow_at: Literal["next_step", "checkpoint"] = Field(
        default="next_step", description="when replicas whose hosts are back join"
    )
    idle_hosts: Literal["wait", "regroup"] = Field(
        default="wait",
        description="healthy hosts of a replica that lacks one: wait for it (torchft, TPU slices), or make "
        "up other replicas (torchelastic, DLRover)",
    )
    rejoin: Duration | None = Field(default=None, description="per_step_ft: until a lost replica is back")


class CrashLoop(FaultsBlock):
    """Restarts that lead nowhere."""

    probability: Chance = Field(default=0.0, description="that a software crash comes again after a restart")
    after: Seconds = Field(default=60.0, description="how long such a restart lives")
    max_no_progress: Times = Field(
        default=100, description="restarts in a row without a new checkpoint after which the run stops"
    )


class Recovery(FaultsBlock):
    """What the job does after a fault."""

    policy: Policy = Field(default="restart", description="what a restart is")
    fallback: tuple[TierName, ...] = Field(
        default=("peer_memory", "local_disk", "storage"),
        description="tiers in the order in which they are tried",
    )
    p_bad_copy: Chance = Field(
        default=0.0,
        description="chance that a copy in memory or on disk is bad: one failed restart, then the next tier",
    )
    spares: Spares = Field(default=Spares(), description="hosts in reserve")
    repair: Repair = Field(default=Repair(), description="how hosts come back")
    restart_cost: RestartCost = Field(default=RestartCost(), description="part by part, or fixed")
    elastic: Elastic = Field(default=Elastic(), description="going on with fewer replicas")
    crash_loop: CrashLoop = Field(default=CrashLoop(), description="restarts that lead nowhere")
    in_process: Seconds = Field(
        default=30.0,
        description="in_process: abort, barrier and re-entry; NVRx: 0.5 s + 10 ms a kernel, grace 5 s, "
        "barriers",
    )


MOST_SLOWED = 10.0
"""How many times as long steps may take beside writes of a checkpoint: as long as a step that only
communicates and has a tenth of its NIC left."""


class StorageTier(FaultsBlock):
    """Checkpoints on shared storage.

    blocking: steps wait for ``stall``. async: they wait for ``snapshot_stall``; the copy is durable
    ``persist`` later. A new one that comes while the last is still being written follows ``on_overlap``.
    """

    every: Interval = Field(description="fault-free time or steps between checkpoints")
    mode: Literal["blocking", "async"] = Field(
        default="blocking", description="whether steps wait for the whole write"
    )
    stall: FromBytes = Field(default="from_bytes", description="blocking: the whole write")
    snapshot_stall: FromBytes = Field(default="from_bytes", description="async: copy to host memory")
    persist: FromBytes = Field(default="from_bytes", description="async: until durable, after the snapshot")
    persist_slow_factor: FactorFromBytes = Field(
        default=1.0,
        description="async: time of a step while a copy is being written, over the healthy one; 1: storage "
        "has a network of its own; from_bytes: writes take their share of every NIC of the back-end network",
    )
    load: FromBytes = Field(default="from_bytes", description="reading it back")
    on_overlap: Literal["skip", "queue", "block"] | None = Field(
        default=None, description="what to do when the last one is still being written"
    )
    keep: Times | None = Field(
        default=None,
        description="copies kept: corruption noticed later than they reach back has no way out; default: "
        "enough",
    )
    bytes: Size | None = Field(
        default=None, description="of a whole checkpoint; default: the model's, 14 a parameter"
    )
    bandwidth: Rate = Field(
        default=100e9,
        description="of writing; 40 measured runs 50 to 200 GB/s, ByteCheckpoint table 8: 111 GB/s",
    )
    read_bandwidth: Rate = Field(
        default=44e9,
        description="of loading; ByteCheckpoint table 8: 405B on 8,960 GPUs in 129 s (secondary)",
    )
    per_host: Rate = Field(default=25e9, description="of a host's front-end network; 200 Gb/s: an assumption")

    @model_validator(mode="after")
    def _of_its_mode(self) -> StorageTier:
        spare = (
            {"snapshot_stall", "persist", "persist_slow_factor", "on_overlap"}
            if self.mode == "blocking"
            else {"stall"}
        )
        wrong = sorted(spare & {key for key in self.model_fields_set if getattr(self, key) is not None})
        if wrong:
            raise ValueError(f"{wrong[0]} is for the other mode; this one is {self.mode}")
        factor = self.persist_slow_factor
        if isinstance(factor, float) and factor > MOST_SLOWED:
            raise ValueError(
                f"persist_slow_factor: {factor:g} is more than {MOST_SLOWED:g}: steps all but stand still "
                "while a copy is written; that is mode blocking"
            )
        return self


class LocalDisk(FaultsBlock):
    """Checkpoints on each host's own disk: there unless the host is lost."""

    every: Interval = Field(description="fault-free time or steps between checkpoints")
    stall: FromBytes = Field(default="from_bytes", description="steps wait for the write")
    load: FromBytes = Field(default="from_bytes", description="reading it back")
    bandwidth: Rate = Field(default=6e9, description="of one host's NVMe; an assumption")


class PeerMemory(FaultsBlock):
    """Copies in the host memory of other hosts, in groups of ``replicas`` hosts: there unless a group is
    lost.
    """

    every: Interval = Field(description="fault-free time or steps between copies")
    replicas: Annotated[int, *whole(2, 100_000)] = Field(
        default=2, description="hosts of a group that hold each other's copy"
    )
    placement: Literal["cross_failure_domain", "neighbours"] = Field(
        default="cross_failure_domain", description="members of a group far apart, or side by side"
    )
    stall: FromBytes = Field(default=0.04, description="ByteRobust: 0.01 to 0.04 s when saving every step")
    load: FromBytes = Field(default="from_bytes", description="a lost host's part from its peers")


class Checkpoint(FaultsBlock):
    """Where copies of the training state go, and how often."""

    storage: StorageTier | None = Field(default=None, description="shared storage")
    local_disk: LocalDisk | None = Field(default=None, description="each host's own disk")
    peer_memory: PeerMemory | None = Field(default=None, description="memory of other hosts")


class Run(FaultsBlock):
    """How long, and how often it is simulated.

    ``horizon`` ends the run on the wall clock, ``work`` after so much fault-free time of steps, ``steps``
    after so many. With none of them a scenario's token budget ends it, else 30 days. ``work`` and ``steps``
    may have a horizon besides.
    """

    horizon: Span | None = Field(default=None, description="wall clock")
    work: Span | None = Field(default=None, description="fault-free time of the steps to be done")
    steps: Steps | None = Field(default=None, description="steps to be done")
    replications: Annotated[
        Annotated[Times, Tag("~number")] | Annotated[Literal["auto"], Tag("~word")], _or("auto")
    ] = Field(default="auto", description="a number, or auto: until the interval is narrow enough")
    ci_half_width: Annotated[float, number(ge=1e-6, le=0.5)] = Field(
        default=0.001, description="of the ETTR's interval, for auto"
    )
    confidence: Annotated[float, number(ge=0.01, le=0.9999)] = Field(
        default=0.95, description="of all intervals"
    )
    max_replications: Times = Field(default=1000, description="for auto")

    @model_validator(mode="after")
    def _one_goal(self) -> Run:
        if self.work is not None and self.steps is not None:
            raise ValueError("work and steps both say when the run is done; give one")
        return self
