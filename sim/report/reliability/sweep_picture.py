"""A sweep as a picture in SVG: ETTR over one field with its interval, or a map of two.

The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...reliability.study.sweep import Axis, Ranking, SweepPoint, rank
from ..timeline import palette
from ..timeline.svg import document, element, escape, group, line, paper, rect, text

WIDTH, HEIGHT = 900.0, 460.0
LEFT, RIGHT, TOP, BOTTOM = 130.0, 30.0, 92.0, 80.0
LOW, HIGH = (240, 246, 251), (43, 92, 143)


def sweep_svg(axes: Sequence[Axis], points: Sequence[SweepPoint], title: str) -> str:
    """An SVG document. ValueError for more than two fields."""
    if len(axes) > 2:
        raise ValueError(f"--svg draws sweeps over one field or two, not {len(axes)}")
    ranking = rank(points)
    body = _curve(axes[0], ranking) if len(axes) == 1 else _map(axes[0], axes[1], ranking)
    what = "ETTR of the GPUs held" if ranking.by == "ettr_held" else "ETTR"
    head = (
        paper(WIDTH, HEIGHT),
        text(24, 30, f"{what}: {title}", font_size=18, font_weight="bold", fill=palette.INK),
        text(
            24,
            50,
            f"{len(points[0].study.outcomes)} replications of each point, the same chance",
            font_size=12.5,
            fill=palette.FAINT_INK,
        ),
    )
    return document(f"{what}: {title}", (*head, *body), WIDTH, HEIGHT)


def _curve(axis: Axis, ranking: Ranking) -> Iterator[str]:
    points, value = ranking.points, ranking.value
    low = min(value(point).low for point in points)
    high = max(value(point).high for point in points)
    pad = max((high - low) * 0.08, 1e-4)
    low, high = low - pad, high + pad
    room, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(number: int) -> float:
        return LEFT + room * (number + 0.5) / len(points)

    def y(share: float) -> float:
        return TOP + tall * (high - share) / (high - low)

    for step in range(5):
        share = low + (high - low) * step / 4
        yield line(LEFT, y(share), WIDTH - RIGHT, y(share), stroke=palette.GRID)
        yield text(
            LEFT - 10,
            y(share) + 4,
            f"{share * 100:.2f} %",
            font_size=12,
            text_anchor="end",
            fill=palette.FAINT_INK,
        )
    colour, top = palette.RAMPS["F"][0], None if ranking.no_difference else ranking.best
    path = " ".join(
        f"{'M' if n == 0 else 'L'}{x(n):.2f} {y(value(point).mean):.2f}" for n, point in enumerate(points)
    )
    yield element("path", d=path, fill="none", stroke=colour, stroke_width=2)
    for n, point in enumerate(points):
        yield line(x(n), y(value(point).low), x(n), y(value(point).high), stroke=colour, stroke_width=1.5)
        fill = palette.RAMPS["B"][0] if point is top else colour
        said = element("title", escape(f"{axis.field} {point.values[0]}: {value(point).mean:.4f}"))
        yield element("circle", said, cx=x(n), cy=y(value(point).mean), r=5, fill=fill)
        yield text(
            x(n), HEIGHT - BOTTOM + 22, point.values[0], font_size=12, text_anchor="middle", fill=palette.INK
        )
    yield text(
        LEFT + room / 2, HEIGHT - 24, axis.field, font_size=13, text_anchor="middle", fill=palette.FAINT_INK
    )


def _map(first: Axis, second: Axis, ranking: Ranking) -> Iterator[str]:
    points = ranking.points
    values = [ranking.value(point).mean for point in points]
    low, high, top = min(values), max(values), None if ranking.no_difference else ranking.best
    wide = (WIDTH - LEFT - RIGHT) / len(second.values)
    tall = (HEIGHT - TOP - BOTTOM) / len(first.values)
    found = {point.values: point for point in points}
    for row, a in enumerate(first.values):
        y = TOP + row * tall
        yield text(LEFT - 10, y + tall / 2 + 4, a, font_size=12, text_anchor="end", fill=palette.INK)
        for column, b in enumerate(second.values):
            point = found[a, b]
            mean = ranking.value(point).mean
            part = (mean - low) / (high - low) if high > low else 1.0
            fill = "#" + "".join(f"{round(p + part * (q - p)):02x}" for p, q in zip(LOW, HIGH, strict=True))
            x = LEFT + column * wide
            edge = palette.RAMPS["B"][0] if point is top else "#ffffff"
            yield rect(
                x + 1,
                y + 1,
                wide - 2,
                tall - 2,
                f"{a}, {b}",
                fill=fill,
                stroke=edge,
                stroke_width=3 if point is top else 1,
            )
            label = text(
                x + wide / 2,
                y + tall / 2 + 4,
                f"{mean * 100:.1f}",
                font_size=min(13.0, wide / 3.4, tall / 1.3),
            )
            yield group([label], text_anchor="middle", fill=palette.ink_on(fill))
    for column, b in enumerate(second.values):
        yield text(
            LEFT + (column + 0.5) * wide,
            HEIGHT - BOTTOM + 20,
            b,
            font_size=12,
            text_anchor="middle",
            fill=palette.INK,
        )
    yield text(
        (LEFT + WIDTH - RIGHT) / 2,
        HEIGHT - 26,
        second.field,
        font_size=13,
        text_anchor="middle",
        fill=palette.FAINT_INK,
    )
    yield text(24, TOP - 10, first.field, font_size=13, fill=palette.FAINT_INK)
