"""The answer of ``stepsim plan --find`` as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...figures import count, gigabytes, seconds
from ...plan.questions.find import FIELDS, FoundValue, Sought, Tried
from ...plan.refused import reasons
from ...plan.search.layout_in_words import short
from ...plan.search.layout_plan import written
from .. import captions

if TYPE_CHECKING:
    from rich.console import Console

SENTENCES = {
    Sought.GPUS: "fewest GPUs",
    Sought.SEQ_LENGTH: "longest sequence, in tokens",
    Sought.MICRO_BATCH: "largest microbatch, in sequences",
}


def found_document(found: FoundValue) -> dict[str, Any]:
    """The value, and all that were tried; ``value`` is None where none will do."""
    return {
        "scenario": found.scenario.name,
        "find": found.sought.value,
        "field": FIELDS[found.sought],
        "fits": found.fits,
        "value": found.value,
        "tried": [
            {
                "value": one.value,
                "good": one.good,
                "legal": one.legal,
                "fit": one.fit,
                "set": written(one.settings),
                "peak_memory_bytes": one.peak_bytes,
                "capacity_bytes": one.capacity_bytes,
                "step_time_s": one.step_time_s,
                "refused": dict(one.refused),
            }
            for one in found.tried
        ],
    }


def print_found(found: FoundValue, console: Console) -> None:
    """The value in one line, then what was tried."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(captions.subject(found.scenario, (FIELDS[found.sought],)), style="bold"))
    what = SENTENCES[found.sought]
    console.print(f"{what}: {'none of those tried' if found.value is None else count(found.value)}")
    if found.best is not None:
        least = "the fastest that meets the limits" if found.limited else "the layout with the least memory"
        console.print(f"{least}: {short(found.best.settings)}, {_size(found.best)}")
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    figure = "fastest that will do" if found.limited else "least memory"
    for name in (FIELDS[found.sought].rpartition(".")[2], "legal", "fit", figure):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("will do")
    for one in found.tried:
        table.add_row(count(one.value), count(one.legal), count(one.fit), _figure(one, found), _verdict(one))
    console.print(table)


def _figure(one: Tried, found: FoundValue) -> str:
    """The step of the fastest layout within the limits; without limits, the least memory of any."""
    if found.limited:
        return "-" if one.step_time_s is None else seconds(one.step_time_s)
    return gigabytes(one.peak_bytes) if one.legal else "-"


def _verdict(one: Tried) -> str:
    """Whether the value will do, and why not."""
    if one.good:
        return "yes"
    if not one.legal:
        why = reasons(one.refused, one.left_out)
        return f"no: no layout is legal: {why}" if why else "no: no layout is legal"
    return "no: none meets the limits" if one.fit else "no: none is sure to fit"


def _size(one: Tried) -> str:
    memory = f"{gigabytes(one.peak_bytes)} of {gigabytes(one.capacity_bytes)}"
    return memory if one.step_time_s is None else f"{seconds(one.step_time_s)}, {memory}"
