"""All schedules of a comparison on one time axis: small multiples, fastest first.

Knows how the panels lie on the page; boxes and colours are those of all timelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...figures import TIMES, percent
from ..drawing import palette
from ..drawing.headings import headings
from ..drawing.svg import group, text
from ..timeline import legend, panel
from ..timeline.boxes import Track
from ..timeline.clock import counted
from ..timeline.page import LEFT, RIGHT, WIDTH, page
from ..timeline.panel import Panel
from .compare import ComparedSchedule, ComparisonShape
from .compare_table import asked_line, costs_line
from .picture import time_unit
from .rows import rows

HEADER = 74.0
MOST_RANKS = 16  # rows of a panel; of more ranks, evenly spaced ones are drawn
MOST_BOXES = 100_000  # of all panels together: two or three megabytes
TITLE = 19.0  # pixels over each panel for its name and figures
GAP = 8.0


def comparison_svg(entries: Sequence[ComparedSchedule], asked: ComparisonShape) -> str:
    """An SVG document, 1200 pixels wide. ValueError when no schedule takes the shape."""
    shown = [entry for entry in entries if entry.timed]
    if not shown:
        raise ValueError(f"no schedule takes {asked_line(asked)}, so there is nothing to draw")
    unit, name = time_unit(asked.costs.forward)
    last = max(entry.makespan for entry in shown) / unit
    ranks = drawn_ranks(asked.ranks)
    tracks = [_drawn(rows(entry.done, unit * entry.scale), ranks) for entry in shown]
    base = Panel(
        left=LEFT,
        top=0.0,
        width=WIDTH - LEFT - RIGHT,
        row_height=_row_height(len(ranks)),
        window=(0.0, last),
        strip=0.0,
        clock=counted(name),
        most_boxes=MOST_BOXES // len(shown),
        most_named=0,
    )
    found = _legend(tracks, base)
    room = WIDTH - 2 * RIGHT
    top = HEADER + legend.LINE * len(legend.lines(found, room)) + 6
    parts = [*_header(entries, asked, ranks), *legend.draw(found, RIGHT, HEADER, room)]
    for entry, rows_here in zip(shown, tracks, strict=True):
        labelled = entry is shown[-1]
        here = replace(base, top=top + TITLE, end=entry.makespan / unit, labelled=labelled)
        parts += [*_title(entry, unit, name, here), *panel.draw(here, rows_here)]
        top = here.top + here.height(len(rows_here)) + GAP
    return page(f"Pipeline schedules on {asked_line(asked)}", parts, top)


def _row_height(ranks: int) -> float:
    """A panel of 90 pixels, but rows of 6 to 22."""
    return min(22.0, max(6.0, 90.0 / ranks))


def drawn_ranks(ranks: int) -> tuple[int, ...]:
    """The first, the last, and evenly spaced ones between.

    >>> drawn_ranks(4), drawn_ranks(31)[:3], drawn_ranks(31)[-1]
    ((0, 1, 2, 3), (0, 2, 4), 30)
    """
    if ranks <= MOST_RANKS:
        return tuple(range(ranks))
    return tuple(round(k * (ranks - 1) / (MOST_RANKS - 1)) for k in range(MOST_RANKS))


def _drawn(tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
    """Every panel has the same ranks: the first and the last by name are enough."""
    named = (ranks[0], ranks[-1])
    return tuple(replace(tracks[r], name=tracks[r].name if r in named else "") for r in ranks)


def _legend(tracks: Sequence[tuple[Track, ...]], base: Panel) -> tuple[legend.LegendEntry, ...]:
    """One legend for all panels, since shades mean the same in each."""
    every = [track for rows_here in tracks for track in rows_here]
    chunks = max(track.chunks for track in every)
    shares = any(panel.shows_shares([track.work for track in rows_here], base) for rows_here in tracks)
    found = legend.entries(every, shares=shares, shades="")
    if chunks > 1:
        shades = tuple(palette.fill("F", chunk, chunks) for chunk in range(chunks))
        found += (
            legend.LegendEntry(shades, "shade: chunk of its rank; in DualPipe, where the microbatch enters"),
        )
    return found


def _header(
    entries: Sequence[ComparedSchedule], asked: ComparisonShape, ranks: Sequence[int]
) -> Iterator[str]:
    subject = f"{costs_line(asked)} · every rank computes as long under every schedule"
    if len(ranks) < asked.ranks:
        subject += f" · {len(ranks)} of the ranks are drawn"
    refused = [entry.name for entry in entries if entry.refused]
    if refused:
        subject += f" · not for this shape: {', '.join(refused)}"
    yield from headings(RIGHT, WIDTH - 2 * RIGHT, f"Pipeline schedules on {asked_line(asked)}", subject)


def _title(entry: ComparedSchedule, unit: int, name: str, here: Panel) -> Iterator[str]:
    figures = " · ".join(
        (
            f"step {entry.makespan / unit:,.6g} {name}",
            f"bubble {percent(entry.done.bubble_rate_makespan)}",
            f"peak {entry.peak_activations:.4g} stages",
            f"p2p {entry.p2p_volume:.3g}{TIMES}",
            f"weights {entry.weights:.3g}{TIMES}",
        )
    )
    chunks = f", {entry.chunks} chunks" if entry.chunks > 1 else ""
    yield text(
        here.left, here.top - 5, f"{entry.title}{chunks}", font_size=12, font_weight="bold", fill=palette.INK
    )
    figure = text(here.left + here.width, here.top - 5, figures, font_size=11.5)
    yield group([figure], text_anchor="end", fill=palette.FAINT_INK)
