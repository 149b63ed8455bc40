"""One step of a pipeline schedule: what a rank does with one microbatch on one stage.

Knows the notation that torch.distributed.pipelining prints (``2F0``: stage 2, forward,
microbatch 0). Knows nothing of seconds or bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_PATTERN = re.compile(r"(\d+)([FBIW])(\d+)")


class Kind(StrEnum):
    """What an action computes."""

    FORWARD = "F"
    BACKWARD = "B"  # input gradient, then weight gradient, fused
    INPUT_GRAD = "I"
    WEIGHT_GRAD = "W"


@dataclass(frozen=True, slots=True)
class Action:
    """One action: ``kind`` of ``microbatch`` on global (virtual) ``stage``.

    >>> str(Action(2, Kind.FORWARD, 0))
    '2F0'
    >>> Action.parse("3B1")
    Action(stage=3, kind=<Kind.BACKWARD: 'B'>, microbatch=1)
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read ``2F0``. Raises ValueError with the text when it is not an action."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError(f"not an action: {text!r} (expected <stage><F|B|I|W><microbatch>, as in 2F0)")
        stage, kind, microbatch = match.groups()
        return cls(int(stage), Kind(kind), int(microbatch))


Orders = tuple[tuple[Action, ...], ...]
"""One ordered list of actions per rank, rank 0 first."""
