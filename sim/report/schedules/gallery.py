"""The page of all schedules: each with its picture, its words and its figures, then all side by side.

Written by ``stepsim schedule gallery``. Knows Markdown and where the pictures lie; words come from
texts.yaml, figures and pictures from the code that the commands use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....schedules.orders.schedule import Schedule, Shape
from ....schedules.pipeline import get, names
from ...figures import TIMES, percent
from .compare import ComparedSchedule, ComparisonShape, chunks_of, entries
from .compare_picture import comparison_svg
from .compare_table import HEADINGS, asked_line, cells, comparison_notes, costs_line
from .picture import schedule_svg
from .texts import texts, words_of
from .timed import TimedSchedule, timed

SMALL = ComparisonShape(ranks=4, microbatches=8)
LARGE = ComparisonShape(ranks=8, microbatches=32)

INTRODUCTION = """\
# Pipeline schedules

<!-- Written by `make gallery`; do not edit. Words are in sim/report/schedules/texts.yaml. -->

Who computes what when, for every schedule that stepsim knows. In the pictures a row is a rank, a box is an
action on one microbatch (its number), blue a forward, amber a backward or the input gradient of a split one,
green its weight gradient; the pale ground is idle time. Chunks of a rank differ in shade.

In the formulas p is the number of ranks, m of microbatches, v of chunks per rank; tF, tB and tW are the times
of a forward, an input gradient and a weight gradient of a whole stage, r is a rank, counted from 0. Figures
are for tF = tB = tW and messages that take no time. "Bubble" is what a step takes beyond the work of a rank,
as a formula, and its share of the step, as a figure; activations are those of a whole stage, on the fullest
rank. The step ends for all ranks together unless it says "span": then each rank goes on by itself.

    stepsim schedule zb-v -p 4 -m 8            # the timeline in the terminal, and its figures
    stepsim schedule zb-v -p 4 -m 8 --picture zb-v.svg --tf 10 --tb 11 --tw 7 --tc 1
    stepsim schedule compare -p 8 -m 32        # the table at the end of this page
"""


def gallery_files(stem: str) -> dict[str, str]:
    """Content by name: the page ``<stem>.md``, and its pictures in the folder ``<stem>``.

    Raises ValueError for a registered schedule without words.
    """
    schedules = sorted(map(get, names()), key=_place)
    pictures = {
        f"{stem}/{schedule.name}.svg": schedule_svg(small_example(schedule)) for schedule in schedules
    }
    small = {entry.name: entry for entry in entries(schedules, SMALL)}
    large = entries(schedules, LARGE)
    by_name = {entry.name: entry for entry in large}
    parts = [INTRODUCTION, *_contents(schedules)]
    for schedule in schedules:
        parts += _section(schedule, stem, small[schedule.name], by_name[schedule.name])
    parts += _comparison(large, stem)
    page = "\n".join(parts) + "\n"
    return {f"{stem}.md": page, **pictures, f"{stem}/comparison.svg": comparison_svg(large, LARGE)}


def _place(schedule: Schedule) -> int:
    """The words tell of schedules from the simple to those that build on them."""
    words_of(schedule.name)
    return list(texts()).index(schedule.name)


def small_example(schedule: Schedule) -> TimedSchedule:
    """Four ranks and eight microbatches, or as many as it needs; the times of a chunk are equal."""
    chunks = chunks_of(schedule, SMALL.chunks)
    reason: ValueError | None = None
    for microbatches in range(SMALL.microbatches, 4 * SMALL.microbatches):
        try:
            return timed(schedule, Shape(ranks=SMALL.ranks, microbatches=microbatches, chunks=chunks))
        except ValueError as refused:
            reason = refused
    raise ValueError(f"no small shape shows {schedule.name}: {reason}")


def _contents(schedules: Sequence[Schedule]) -> Iterator[str]:
    for schedule in schedules:
        yield f"- [{schedule.title}](#{schedule.name})"
    yield "- [All of them side by side](#comparison)"
    yield ""


def _section(
    schedule: Schedule, stem: str, small: ComparedSchedule, large: ComparedSchedule
) -> Iterator[str]:
    """Anchors of our own: those that GitHub makes of titles would be of no fixed form."""
    words, shown = words_of(schedule.name), [entry for entry in (small, large) if entry.timed]
    yield f'<a id="{schedule.name}"></a>\n\n## {schedule.title}\n'
    yield f"![Timeline of {schedule.name}]({stem}/{schedule.name}.svg)\n"
    yield f"{words.what}\n"
    yield f"`stepsim schedule {schedule.name}` · Source: {words.source}\n"
    heads = [f"p = {e.done.shape.ranks}, m = {e.done.shape.microbatches}{_chunks(e)}" for e in shown]
    yield from _table(
        ["", "in general", *heads],
        [
            ["bubble", words.bubble, *(_bubble(entry) for entry in shown)],
            ["activations held", words.memory, *(f"{entry.peak_activations:.4g}" for entry in shown)],
            ["communication", words.communication, *(f"{e.p2p_volume:.3g}{TIMES} of 1F1B" for e in shown)],
        ],
    )
    yield f"\n**When to use it.** {words.use}\n"


def _chunks(entry: ComparedSchedule) -> str:
    return f", v = {entry.chunks}" if entry.chunks > 1 else ""


def _bubble(entry: ComparedSchedule) -> str:
    """The bubble of the makespan, and of the longest span where that differs."""
    makespan, span = entry.done.bubble_rate_makespan, entry.done.bubble_rate
    if round(makespan, 3) == round(span, 3):
        return percent(makespan)
    return f"{percent(makespan)}, span {percent(span)}"


def _comparison(large: Sequence[ComparedSchedule], stem: str) -> Iterator[str]:
    yield '<a id="comparison"></a>\n\n## All of them side by side\n'
    yield f"On {asked_line(LARGE)}; {costs_line(LARGE)}. Fastest first.\n"
    yield from _table(list(HEADINGS), [list(cells(entry)) for entry in large if entry.timed])
    yield ""
    yield from (f"- {line}" for line in comparison_notes(large, LARGE))
    yield from (
        f"- {entry.name} does not take this shape: {entry.refused}" for entry in large if entry.refused
    )
    yield f"\n![All schedules on one time axis]({stem}/comparison.svg)"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
