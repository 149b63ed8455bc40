"""The block ``detection``: how long until someone knows that the job is in trouble."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ....hardware.fields import Chance, Count, Seconds, number
from .fields import FaultsBlock
from .laws import Duration, Lasting

Path = Literal["heartbeat", "health_check", "error", "watchdog"]


class HealthCheck(FaultsBlock):
    """How long a check of each class of component takes to find it broken.

    Defaults: ByteRobust (arXiv:2509.16293) table 3. ``uniform_phase``: the fault falls anywhere into the
    period, so half of it on average; ``fixed``: the whole of it.
    """

    gpu: Seconds = Field(default=10.0, description="of GPUs")
    nic: Seconds = Field(default=30.0, description="of NICs and links")
    switch: Seconds = Field(default=60.0, description="of switches")
    host: Seconds = Field(default=2.0, description="of hosts")
    period: Literal["uniform_phase", "fixed"] = Field(
        default="uniform_phase", description="a fault falls anywhere into the period, or waits for all of it"
    )


class Watchdog(FaultsBlock):
    """Ends a job that makes no progress. Default: PyTorch's NCCL timeout, 600 s (pytorch#110947)."""

    timeout: Seconds = Field(default=600.0, description="without progress")
    false_positive_per_ckpt: Chance = Field(
        default=0.0, description="chance that a checkpoint is taken for a hang (torchtune#2093)"
    )


class Straggler(FaultsBlock):
    """A monitor of step times: what it does when steps take ``threshold`` times as long for ``window``
    steps.
    """

    threshold: Annotated[float, number(gt=1, le=1000)] = Field(
        default=1.2, description="step time over the fault-free one"
    )
    window: Annotated[Count, BeforeValidator(lambda v: int(v.split()[0]) if _is_steps(v) else v)] = Field(
        default=50, description="steps that must be slow"
    )
    action: Literal["tolerate", "drain_at_checkpoint", "evict"] = Field(
        default="drain_at_checkpoint",
        description="leave it, swap the host after the next checkpoint, or at once",
    )


def _is_steps(value: object) -> bool:
    words = value.split() if isinstance(value, str) else []
    return len(words) == 2 and words[0].isdigit() and words[1] in ("step", "steps")


class Detection(FaultsBlock):
    """Who notices a fault, and when: the earliest applicable of ``order``.

    ``fixed`` stands for all of it: every fault that stops the job is noticed after that time. ``diagnosis``
    follows, whoever noticed: to find out which host it was.
    """

    fixed: Duration | None = Field(default=None, description="every fault that stops the job, hangs included")
    order: tuple[Path, ...] = Field(
        default=("heartbeat", "health_check", "error", "watchdog"),
        description="ways of noticing that are there; the earliest applicable wins",
    )
    heartbeat: Seconds | None = Field(default=None, description="missed by a dead host; none unless given")
    health_check: HealthCheck = Field(default=HealthCheck(), description="periods of checks")
    error: Seconds = Field(
        default=60.0, description="from a process's own error to its abort; ByteRobust section 2: about 60 s"
    )
    watchdog: Watchdog = Field(default=Watchdog(), description="ends a job that hangs")
    silent: Duration = Field(
        default=Lasting(constant=4289.0),
        description="until corrupt data is noticed and its host found; ByteRobust, with NaN: 4,289 s on "
        "average, 7,200 s at most; one took over 8 h of offline tests",
    )
    straggler: Straggler = Field(default=Straggler(action="tolerate"), description="finds slow hosts")
    diagnosis: Duration = Field(
        default=Lasting(constant=0.0), description="after detection: to find the host"
    )
    flap_budget: Seconds = Field(
        default=30.0,
        description="a link that is down for longer ends the job; NCCL_IB_TIMEOUT 20, 7 retries: about 30 s "
        "(unverified)",
    )

    @model_validator(mode="after")
    def _either(self) -> Detection:
        paths = {"order", "heartbeat", "health_check", "error"} & self.model_fields_set
        if self.fixed is not None and paths:
            raise ValueError(f"fixed stands for every way of noticing; leave {min(paths)} or fixed out")
        if self.fixed is not None and "timeout" in self.watchdog.model_fields_set:
            raise ValueError("fixed stands for every way of noticing; leave watchdog.timeout or fixed out")
        return self
