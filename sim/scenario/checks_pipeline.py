"""What must hold between layers, stages and the pipeline schedule.

Knows how layers may be placed on stages and which schedule needs how many chunks per stage. Does not
know the order of any schedule.

References:
    Megatron-LM transformer_block.py (layer placement), arguments.py and schedules.py (interleaving).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hardware.files import FileError
from ...schedules.orders.schedule import Shape
from .blocks import Parallelism, ScheduleOptions, Training
from .finding import Finding, choices, divisors
from .pipeline_shape import pipeline_shape
from .schedules import is_table, schedule_named

if TYPE_CHECKING:
    from .model.model import Model


def layers_fit_stages(model: Model, par: Parallelism) -> Iterator[Finding]:
    """Findings where the layers cannot be placed on the pp × vpp chunks by the rule of
    ``parallelism.stage_split``, or where its given placement does not add up to them."""
    layers, chunks = model.num_layers, par.virtual_stages
    product = f"pp × vpp = {par.pp} × {par.vpp} = {chunks}"
    split = ("parallelism", "stage_split")
    if not isinstance(par.stage_split, str):
        yield from _explicit_split(par.stage_split, layers, chunks, product)
    elif par.stage_split == "uniform" and layers % chunks:
        message = f"{layers} layers cannot be split evenly over {product} chunks"
        yield Finding(path=split, message=f"{message}; {_ways_out(layers, par)}")
    elif par.stage_split == "embedding_and_loss_as_layers" and (layers + 2) % chunks:
        yield Finding(
            path=split,
            message=f"{layers} layers, embedding and loss are {layers + 2}, which cannot be split evenly"
            f" over {product} chunks; {_ways_out(layers, par)}",
        )
    elif par.stage_split == "flops_balanced" and par.vpp > 1:
        yield Finding(
            path=split, message=f"flops_balanced places one chunk per stage; set vpp to 1, not {par.vpp}"
        )
    elif par.stage_split in ("flops_balanced", "uneven_unspecified") and layers < chunks:
        message = f"{product} chunks are more than the {layers} layers; use fewer"
        yield Finding(path=("parallelism", "pp"), message=message)


def _ways_out(layers: int, par: Parallelism) -> str:
    """What else may be written where layers and chunks do not divide."""
    chunks, more = par.virtual_stages, layers + 2
    fits, other = (layers, more) if par.stage_split == "uniform" else (more, layers)
    rule = "embedding_and_loss_as_layers" if par.stage_split == "uniform" else "uniform"
    ways = [f"pp × vpp can be {choices(divisors(fits))}"]
    if other % chunks == 0:
        ways.append(f"stage_split: {rule} would fit")
    if layers >= chunks:
        ways.append("stage_split: uneven_unspecified spreads them as evenly as it can")
    example = ", ".join(str(layers // chunks + (i < layers % chunks)) for i in range(min(chunks, 4)))
    dots = ", ..." if chunks > 4 else ""
    ways.append(f"or list the layers of each chunk, as in stage_split: [{example}{dots}]")
    return "; ".join(ways)


def _explicit_split(split: tuple[int, ...], layers: int, chunks: int, product: str) -> Iterator[Finding]:
    path = ("parallelism", "stage_split")
    if len(split) != chunks:
        yield Finding(path=path, message=f"the list has {len(split)} entries; {product} chunks need one each")
    if sum(split) != layers:
        yield Finding(
            path=path, message=f"the list adds up to {sum(split)} layers, but the model has {layers}"
        )


def schedule_fits_layout(schedule: str, par: Parallelism) -> Iterator[Finding]:
    """A pipeline has a schedule, with the chunks per stage that it needs."""
    path = ("schedule",)
    if par.pp == 1:
        if schedule != "none":
            yield Finding(
                path=path, message=f"{schedule} needs a pipeline, but pp is 1; leave schedule out or raise pp"
            )
        if par.vpp > 1:
            message = f"{par.vpp} chunks per stage need a pipeline, but pp is 1; leave vpp out or raise pp"
            yield Finding(path=("parallelism", "vpp"), message=message)
        return
    if schedule == "none":
        example = "interleaved" if par.vpp > 1 else "1f1b"
        yield Finding(path=path, message=f"{par.pp} pipeline stages need a schedule, such as {example}")
    else:
        yield from _chunks_fit(schedule, par)


def schedule_accepts_shape(
    schedule: str, par: Parallelism, training: Training, options: ScheduleOptions | None
) -> Iterator[Finding]:
    """Check that the schedule is defined for these stages and microbatches, and for its options."""
    options = options or ScheduleOptions()
    if schedule == "none":
        if options != ScheduleOptions():
            message = "without a pipeline there is no schedule to tell anything; leave schedule_options out"
            yield Finding(path=("schedule_options",), message=message)
        return
    microbatches = training.global_batch // (training.micro_batch * par.dp)
    try:
        schedule_named(schedule).check(pipeline_shape(schedule, par, microbatches, options))
    except FileError as missing:
        yield Finding(path=("schedule",), message=str(missing))
    except ValueError as refusal:
        field = "schedule" if options == ScheduleOptions() else "schedule_options"
        yield Finding(path=(field,), message=f"{refusal} (pp = {par.pp}, {microbatches} microbatches)")


def _chunks_fit(schedule: str, par: Parallelism) -> Iterator[Finding]:
    """Check that the schedule takes this number of chunks per stage, on a shape that suits all schedules."""
    path = ("parallelism", "vpp")
    if is_table(schedule):
        return
    taken = [v for v in (1, 2, 3) if _takes(schedule, v)]
    if min(par.vpp, 3) in taken:
        return
    if taken == [1]:
        message = (
            f"{schedule} has one chunk per stage, not {par.vpp}; set vpp to 1, or schedule to interleaved"
        )
    elif taken == [2]:
        message = f"{schedule} has exactly 2 chunks per stage; set vpp to 2"
    else:
        message = f"{schedule} needs 2 or more chunks per stage; raise vpp, or set schedule to 1f1b"
    yield Finding(path=path, message=message)


def _takes(schedule: str, chunks: int) -> bool:
    try:
        schedule_named(schedule).check(Shape(ranks=4, microbatches=16, chunks=chunks))
    except ValueError:
        return False
    return True
