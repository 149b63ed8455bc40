"""A sweep of one collective as a picture in SVG: bus bandwidth and time over size, predicted and measured.

Both axes of both panels are logarithmic. The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...sim.figures import seconds
from ...sim.network.group_placement import payload_factor
from ...sim.report.collective import CollectiveCost
from ...sim.report.drawing import chart

WIDTH, HEIGHT = 1000.0, 460.0
PREDICTED, MEASURED = chart.BLUE, chart.AMBER


def collective_svg(
    costs: Sequence[CollectiveCost], measured_s: Sequence[float] | None, log: str | None
) -> str:
    """An SVG document, 1000 pixels wide; ``measured_s`` are seconds of the same sizes, from ``log``.

    ValueError with fewer than two sizes.
    """
    if len(costs) < 2:
        raise ValueError("a picture of a sweep needs two sizes or more")
    first = costs[0]
    factor = payload_factor(first.kind, first.ranks)
    sizes = [cost.bytes for cost in costs]
    buses = [[cost.busbw_bytes_per_s / 1e9 for cost in costs]]
    times = [[cost.time_s for cost in costs]]
    legend = [(chart.key(PREDICTED), "predicted")]
    if measured_s is not None:
        buses.append([size * factor / s / 1e9 for size, s in zip(sizes, measured_s, strict=True)])
        times.append(list(measured_s))
        legend.append((chart.key(MEASURED), f"measured: {log or 'log'}"))
    with chart.canvas(WIDTH, HEIGHT) as figure:
        for panel, title, series, write in zip(
            figure.subplots(1, 2), ("bus bandwidth, GB/s", "time"), (buses, times), ("{:g}".format, seconds),
            strict=True,
        ):  # fmt: skip
            chart.logarithmic(panel, "x", (min(sizes), max(sizes)), chart.binary_bytes, base=16)
            chart.logarithmic(panel, "y", chart.decades([value for one in series for value in one]), write)
            panel.set(xlabel="size", title=title)
            for values, colour in zip(series, (PREDICTED, MEASURED), strict=False):
                panel.plot(sizes, values, color=colour)
            if measured_s is not None:
                chart.dots(panel, sizes, series[1], MEASURED)
        nodes = f"{first.nodes} node{'s' if first.nodes > 1 else ''}"
        chart.head(figure, f"{first.kind}, {first.ranks} GPUs, {nodes}", series=legend)
        return chart.svg(figure, f"{first.kind} of {first.ranks} GPUs over size")
