"""Shapes to draw pipeline schedules from: what each registered schedule accepts, and goldens by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from stepsim.schedules.orders.action import Orders, parse_step
from stepsim.schedules.orders.schedule import Schedule, Shape
from stepsim.schedules.pipeline import get, names

any_shape = st.builds(
    Shape,
    ranks=st.integers(1, 6),
    microbatches=st.integers(1, 14),
    chunks=st.integers(1, 4),
    group=st.none() | st.integers(1, 15),
)


def legal(schedule: Schedule, shape: Shape) -> bool:
    try:
        schedule.check(shape)
    except ValueError:
        return False
    return True


@st.composite
def shapes_of(draw: st.DrawFn, name: str) -> Shape:
    """Shapes that the schedule accepts, drawn so that few are thrown away."""
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    v, group = draw(st.integers(1, 4)), draw(st.none() | st.integers(min(p, m), m))
    shapes = (
        Shape(ranks=ranks, microbatches=m, chunks=chunks, group=size)
        for ranks in (p, max(p, 2))
        for chunks in dict.fromkeys((v, max(v, 2), 2, 1))
        for size in (group, None, m)
    )
    shape = next((shape for shape in shapes if legal(get(name), shape)), None)
    assume(shape is not None)
    assert shape is not None
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
    """The shape of a torch or Megatron golden; torch's group is m // max(1, m // p)."""
    p, m, v = golden["p"], golden["m"], golden["v"]
    group = golden.get("group", m // max(1, m // p)) if v > 1 else None
    return Shape(ranks=p, microbatches=m, chunks=v, group=group)
