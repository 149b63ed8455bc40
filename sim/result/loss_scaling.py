"""What dynamic loss scaling costs a run in FP16: steps that overflow are skipped.

The scale grows until gradients overflow, which costs whole steps: forward, backward and the check, but no
update. Knows how the scale moves in steady state, not which scale a model bears: the share of skipped steps
does not depend on it. Early in a run, where the scale comes down from its start, more are skipped.

References:
    Megatron-LM core/optimizer/grad_scaler.py (DynamicGradScaler: initial scale 2^32, window 1000,
    hysteresis 2, factors 2 and 1/2), core/optimizer/optimizer.py (prepare_grads; a step that found
    infinities returns before clipping, update and gather). torch/amp/grad_scaler.py (GradScaler: 2^16, 2000,
    no hysteresis, 2 and 1/2). Micikevicius et al. 2018, arXiv:1710.03740 section 3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..scenario.loss_scale import LossScale

MOST_CYCLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaling:
    """``step_s`` of a step that updates, ``skipped_step_s`` of one that overflows, ``skipped_share`` of all
    steps in steady state; ``first_steps`` are skipped before the scale holds, None where nobody knows."""

    step_s: float
    skipped_step_s: float
    skipped_share: float
    first_steps: int | None = None

    @property
    def effective_step_s(self) -> float:
        """Time for each step that updates, its share of the skipped ones in it."""
        return self.step_s + self.skipped_step_s * self.skipped_share / (1 - self.skipped_share)

    @property
    def goodput(self) -> float:
        """Share of the time that goes into steps that update."""
        return self.step_s / self.effective_step_s


def skipped_share(scale: LossScale) -> float:
    """Skipped steps over all steps, by the moves of the scale around what gradients bear.

    >>> from ..scenario.loss_scale import LossScale
    >>> round(1 / skipped_share(LossScale(kind="torch"))), round(1 / skipped_share(LossScale()))
    (2001, 501)
    """
    up, down = math.log2(scale.growth), -math.log2(scale.backoff)
    level, good, skipped = 0.0, 0, 0  # of the scale, over what gradients bear
    for _ in range(MOST_CYCLES):
        good += scale.interval
        level += up
        if level > 1e-9:
            times = math.ceil(level / down - 1e-9)
            skipped += scale.patience - 1 + times
            level -= times * down
        if abs(level) < 1e-9:  # where it began
            break
    return skipped / (good + skipped)


def first_skipped(scale: LossScale) -> int | None:
    """Steps skipped before the initial scale has come down to the ``sustained`` one."""
    if scale.sustained is None:
        return None
    over = math.log2(scale.start) - math.log2(scale.sustained)  # their quotient may overflow
    return scale.patience - 1 + math.ceil(over / -math.log2(scale.backoff) - 1e-9) if over > 0 else 0
