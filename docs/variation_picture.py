"""docs/variation.svg, and its table in docs/faults.md: what a spread of 2 % costs jobs of 8 to 16,384 GPUs.

    python docs/variation_picture.py

Llama 3.1 405B in its layout on 16,384 GPUs, and the same model with fewer replicas and stages, each with some
draws; beside what it would cost if all GPUs waited for the slowest in every kernel, and if those of one
tensor-parallel group did. Takes some minutes.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.sim.report.drawing import chart
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.simulate import simulate

DOCS = Path(__file__).resolve().parent
CV = 0.02
JOBS = ((8, 1, 1, 60), (128, 16, 1, 20), (1024, 16, 8, 4), (16384, 16, 128, 2))
"""GPUs, pipeline stages, replicas, and draws; tensor parallelism is 8 in all."""
PLACE = re.compile(r"(<!-- made by docs/variation_picture.py -->\n).*?(<!-- end -->)", re.DOTALL)


def expected_maximum(count: float) -> float:
    """Of so many standard normals: the integral of 1 - F(x)^n above 0, less that of F(x)^n below."""
    from scipy.special import log_ndtr

    x = np.linspace(-12, 12, 200_001)
    power = np.exp(count * log_ndtr(x))
    return float(np.trapezoid(np.where(x > 0, 1 - power, -power), x))


def slowdown(z: float) -> float:
    """More time of a GPU that is ``z`` deviations slow."""
    return 1 / (1 - CV * z) - 1


def simulated(gpus: int, stages: int, replicas: int, draws: int) -> tuple[float, float]:
    """Mean and standard deviation, over draws, of how much longer the step is."""
    document: dict[str, Any] = load_scenario("llama3.1-405b-16k").to_document()
    for block in ("faults", "detection", "checkpoint", "recovery", "run", "published", "title"):
        document.pop(block, None)
    variation = {"gpu_speed": {"normal": {"cv": CV}}, "seed": 1, "draws": draws}
    document["cluster"] |= {"gpus": gpus, "variation": variation}
    document["parallelism"] |= {"pp": stages, "dp": replicas, "vpp": 8 if stages > 1 else 1}
    document["schedule"] = "interleaved" if stages > 1 else "none"
    document["training"]["global_batch"] = 16 * replicas
    found = simulate(scenario_from_document(document, "spread")).variation
    assert found is not None
    more = [one.step_time_s / found.equal_step_time_s - 1 for one in found.draws]
    return statistics.fmean(more), statistics.stdev(more)


def picture(rows: list[tuple[int, float, float]]) -> str:
    """The points over both formulas."""
    gpus = np.array([row[0] for row in rows], dtype=float)
    line = np.geomspace(gpus[0], gpus[-1], 60)
    with chart.canvas(720, 380) as figure:
        panel = figure.subplots()
        all_ = [slowdown(expected_maximum(count)) for count in line]
        (upper,) = panel.plot(line, all_, color=chart.AMBER)
        (lower,) = panel.plot(
            line, [slowdown(expected_maximum(8))] * len(line), color=chart.GREY, linestyle="--"
        )
        points = chart.dots(panel, gpus.tolist(), [row[1] for row in rows], chart.BLUE)
        panel.errorbar(
            gpus, [row[1] for row in rows], [row[2] for row in rows], fmt="none", ecolor=chart.BLUE
        )
        panel.set_xscale("log", base=2)
        panel.set_xticks(gpus, [f"{int(count):,}" for count in gpus])
        panel.set_ylim(0, 0.1)
        chart.written(panel.yaxis, lambda value: f"{value:.0%}")
        panel.set_xlabel("GPUs")
        panel.set_ylabel("longer step")
        series = [
            (upper, "all wait for the slowest GPU"),
            (points, "simulated, with deviation"),
            (lower, "the slowest of 8 GPUs"),
        ]
        chart.head(figure, "GPUs whose speed spreads by 2 %", "Llama 3.1 405B, TP 8", series)
        return chart.svg(figure, "Longer step over GPUs")


def table(rows: list[tuple[int, float, float]]) -> str:
    """The figures of the picture."""
    lines = [
        "| GPUs | longer step | deviation of draws | all wait for the slowest |",
        "| --: | --: | --: | --: |",
    ]
    for gpus, mean, deviation in rows:
        bound = slowdown(expected_maximum(gpus))
        lines.append(f"| {gpus:,} | {100 * mean:.2f} % | {100 * deviation:.2f} % | {100 * bound:.2f} % |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both."""
    rows = [(gpus, *simulated(gpus, stages, replicas, draws)) for gpus, stages, replicas, draws in JOBS]
    (DOCS / "variation.svg").write_text(picture(rows), encoding="utf-8")
    page = (DOCS / "faults.md").read_text(encoding="utf-8")
    (DOCS / "faults.md").write_text(
        PLACE.sub(lambda found: found[1] + table(rows) + found[2], page), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
