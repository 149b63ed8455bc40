"""The tensors of a virtual stage as a framework holds them: queries, keys and values in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from .parameters import Parameter

if TYPE_CHECKING:
    from .plan import StepPlan

_JOINED = {
    f"{name}{kind}": f"queries, keys and values{kind}"
    for name in ("query", "key", "value")
    for kind in ("", " bias")
}
"""Parameters that are rows of one tensor, and what that is."""


def tensor_count(plan: StepPlan, stages: Iterable[int]) -> int:
    """How many tensors a rank that holds these virtual ``stages`` has."""
    return sum(1 for stage in stages for _ in tensors_of(plan, stage))


def tensors_of(plan: StepPlan, stage: int) -> Iterator[tuple[Parameter, bool]]:
    """Every tensor of a virtual stage in the order of the forward, with whether it belongs to a layer."""
    parameters = plan.parameters[stage]
    yield from ((one, False) for one in parameters.of_embedding)
    of_layer = {kind: _of_layer(listed) for kind, (_, listed) in parameters.of_layers.items()}
    for kind in plan.stages[stage].kinds:
        yield from ((one, True) for one in of_layer[kind])
    yield from ((one, False) for one in parameters.of_head)


@lru_cache(maxsize=256)
def _of_layer(listed: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The tensors of a layer; several shapes that a framework stores as one tensor are joined."""
    tensors: dict[str, list[Parameter]] = {}
    for one in listed:
        tensors.setdefault(_JOINED.get(one.name, one.name), []).append(one)
    found: list[Parameter] = []
    for first, *others in tensors.values():
        if others:
            rows = first.shape[0] + sum(one.shape[0] for one in others)
            first = replace(first, shape=(rows, *first.shape[1:]))
        found += [replace(first, count=1)] * first.count
    return tuple(found)
