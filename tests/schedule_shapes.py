"""Shapes to draw pipeline schedules from: what each registered schedule accepts, and goldens by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stepsim.schedules.orders.action import Orders, parse_step
from stepsim.schedules.orders.schedule import ActivationUnits, Costs, Schedule, Shape
from stepsim.schedules.pipeline import get, names

any_costs = st.builds(
    Costs,
    forward=st.integers(1, 4),
    input_grad=st.integers(1, 4),
    weight_grad=st.integers(1, 4),
    latency=st.integers(0, 3),
)

any_shape = st.builds(
    Shape,
    ranks=st.integers(1, 6),
    microbatches=st.integers(1, 14),
    chunks=st.integers(1, 4),
    group=st.none() | st.integers(1, 15),
    costs=any_costs,
    memory=st.builds(ActivationUnits, limit=st.none() | st.integers(1, 30)),
)


def legal(schedule: Schedule, shape: Shape) -> bool:
    try:
        schedule.check(shape)
    except ValueError:
        return False
    return True


@st.composite
def shapes_of(draw: st.DrawFn, name: str) -> Shape:
    """Shapes that the schedule accepts: one that is drawn, else the nearest of those that it turns into.

    A schedule may need two ranks, an even number of them, some number of chunks, no fewer microbatches
    than twice the ranks or an even number of those, a group size of its own, and may know no memory limit.
    """
    p, m, v = draw(st.integers(1, 6)), draw(st.integers(1, 14)), draw(st.integers(1, 4))
    group = draw(st.none() | st.integers(min(p, m), m))
    limit = draw(st.none() | st.integers(1, 4 * p))
    costs = draw(any_costs)
    schedule = get(name)
    shapes = (
        Shape(ranks=ranks, microbatches=count, chunks=chunks, group=size, costs=costs, memory=memory)
        for memory in (
            ActivationUnits(limit=limit),
            ActivationUnits(limit=limit and limit + 2 * p),
            ActivationUnits(),
        )
        for chunks in dict.fromkeys((v, max(v, 2), 2, 1))
        for ranks in dict.fromkeys((p, max(p, 2), p + p % 2))
        for count in dict.fromkeys((m, m + m % 2, m + 2 * ranks, m + m % 2 + 2 * ranks))
        for size in dict.fromkeys((group, None, count))
    )
    shape = next((shape for shape in shapes if legal(schedule, shape)), None)
    assert shape is not None, f"no candidate is a shape of {name}: teach shapes_of what its check wants"
    return shape


@st.composite
def schedules_and_shapes(draw: st.DrawFn) -> tuple[Schedule, Shape]:
    """Any registered schedule with a shape that it accepts."""
    name = draw(st.sampled_from(names()))
    return get(name), draw(shapes_of(name))


def parse(actions: list[list[str]]) -> Orders:
    return tuple(tuple(parse_step(text) for text in order) for order in actions)


def goldens(folder: Path, pattern: str) -> list[tuple[str, dict[str, Any]]]:
    """Golden files by name; asserts that there are some."""
    found = [
        (path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob(pattern))
    ]
    assert found, f"no {pattern} in {folder}"
    return found


def golden_shape(golden: dict[str, Any]) -> Shape:
    """The shape of any golden; DualPipe's name no count of chunks. torch's group is m // max(1, m // p)."""
    p, m, v = golden["p"], golden["m"], golden.get("v", 1)
    torch_group = m // max(1, m // p) if golden["schedule"] == "Interleaved1F1B" else None
    return Shape(ranks=p, microbatches=m, chunks=v, group=golden.get("group", torch_group) if v > 1 else None)
