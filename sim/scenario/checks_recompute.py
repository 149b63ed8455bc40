"""What a scenario recomputes must be there: layers of a stage are counted as they are placed.

Knows how many layers a stage holds at most; which of them are recomputed is told by sim/lowering/layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...schedules.orders.schedule import Shape
from .finding import Finding
from .schedules import schedule_named

if TYPE_CHECKING:
    from .blocks import Parallelism, Training
    from .model.model import Model


def recompute_fits(
    model: Model, par: Parallelism, training: Training, schedule: str | None
) -> Iterator[Finding]:
    """A number of layers to recompute, or to count by, is at most what a stage holds.

    By a method a virtual stage counts, else all those of a pipeline rank.
    """
    recompute = training.recompute
    if isinstance(recompute, str):
        return
    held = most_layers(model, par, None if recompute.method else schedule)
    if recompute.layers and recompute.layers > held:
        stage = "virtual stage" if recompute.method else "stage"
        message = f"{recompute.layers} is more than the {held} layers of a {stage}; recompute: full takes all"
        yield Finding(path=("training", "recompute", "layers"), message=message)
    if recompute.every and recompute.every > held:
        message = (
            f"{recompute.every} is more than the {held} layers of a stage, so nothing would be recomputed;"
            f" every can be 1 to {held}, or write recompute: none"
        )
        yield Finding(path=("training", "recompute", "every"), message=message)
    if recompute.method == "uniform" and recompute.layers and recompute.layers > 1 and model.mtp_layers:
        message = f"{recompute.layers}: layers of multi-token prediction are recomputed one by one; set 1"
        yield Finding(path=("training", "recompute", "layers"), message=message)


def most_layers(model: Model, par: Parallelism, schedule: str | None) -> int:
    """The most layers of any pipeline rank under ``schedule``; of any virtual stage without one."""
    chunks, split = par.virtual_stages, par.stage_split
    ranks = chunks if schedule is None else par.pp
    if isinstance(split, str):
        if split == "flops_balanced":  # costs decide: what they leave to a stage is known later
            return model.num_layers
        ends = 0  # what stands for layers on the first and last stage, so that those between hold more
        if split == "embedding_and_loss_as_layers" and ranks > 2:
            ends = 2
        elif split == "uneven_unspecified" and model.mtp_layers:
            ends = 2 * model.mtp_layers + 1
        return -(-(model.num_layers + ends) // ranks)
    if schedule is None or len(split) != chunks:
        return max(split)
    try:
        rank_of = schedule_named(schedule).rank_of
    except ValueError:  # reported elsewhere
        return model.num_layers
    shape, held = Shape(ranks=par.pp, microbatches=par.pp, chunks=par.vpp), [0] * par.pp
    for stage, layers in enumerate(split):
        held[rank_of(stage, 0, shape)] += layers
    return max(held)
