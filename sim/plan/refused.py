"""Why combinations are no layouts, in words: the reasons that a space counts by short names.

Knows those names (sim/plan/legality.py); does not know the rules behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..figures import count

if TYPE_CHECKING:
    from .base_scenarios import RefusedValues

LINES = 4
"""Reasons that are shown at most."""

WORDS = {
    "gpus": "tp × cp × pp does not divide the GPUs",
    "tp": "tp does not divide the heads and widths of the model",
    "axes": "there is nothing to shard sequences over, or the order names no axes",
    "experts": "ep or etp does not divide the experts, or tp lacks sequence parallelism beside them",
    "cp_a2a": "cp_a2a does not divide cp and the heads",
    "seq_length": "tp or cp does not divide the sequence",
    "layers": "pp × vpp does not split the layers",
    "schedule": "the schedule does not go with pp and vpp",
    "loss_scale": "the schedule skips no step, as a loss scale may",
    "recompute": "there is nothing like that to recompute",
    "shards": "shards or experts do not tile the data-parallel ranks",
    "global_batch": "micro_batch × dp does not divide the batch",
    "microbatches": "the schedule does not take so many microbatches",
    "the same twice": "it is another layout under another name",
    "shards over part of a domain": "shards fill no NVLink domain with tp",
    "not a quarter of the layers": "the recomputed layers are no quarter, half or three quarters of a stage",
    "parallelism.dp": "dp is another",
}


def reasons(refused: Mapping[str, int], left_out: Sequence[RefusedValues] = ()) -> str:
    """The last reasons that cut any layouts, with their counts: the first of all reasons cut most in any
    space, and the last ones decide which layouts remain. What was ``left_out`` has a sentence of its own.

    >>> reasons({"layers": 1200, "software: parallelism.zero": 8})
    'the software has no such parallelism.zero (8); pp × vpp does not split the layers (1,200)'
    """
    last, own = [*refused.items()][::-1][:LINES], {one.reason: f"{one.field}: {one.why}" for one in left_out}
    return "; ".join(f"{own.get(reason) or worded(reason)} ({count(number)})" for reason, number in last)


def told_left_out(left_out: Sequence[RefusedValues]) -> list[str]:
    """What was left out of a space, a line for each combination, and one for all that are too many."""
    lines = []
    for one in left_out[:LINES]:
        values = ", ".join(f"{name}={value}" for name, value in one.values.items())
        lines.append(f"left out: {values}: {one.field}: {one.why}")
    more = len(left_out) - len(lines)
    return [*lines, f"and {count(more)} more left out (--json)"] if more else lines


def worded(reason: str) -> str:
    """One reason; a field that a rule of the software, or the simulator, is about by its name."""
    whose, colon, field = reason.partition(": ")
    if colon and whose == "software":
        return f"the software has no such {field}"
    if colon:
        return f"{whose} with this {field}"
    return WORDS.get(reason, reason)
