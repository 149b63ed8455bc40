"""A step of a schedule whose full pipeline runs pairs, shortened to few of them, is the whole step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from small_experts import with_experts

from stepsim.schedules.orders.action import Action, Step
from stepsim.schedules.orders.schedule import Schedule, Shape
from stepsim.schedules.pipeline import get, names
from stepsim.sim.brief.search import Search
from stepsim.sim.brief.steady import extended, of_length
from stepsim.sim.brief.steady_pairs import period_of_pairs, turn_of_pairs
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.lowering.lower import lower
from stepsim.sim.read_record import path_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate

PAIRED = [get(name) for name in names() if get(name).paired]

LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (20, {"pp": 2, "tp": 2, "num_layers": 6}),
    (28, {"pp": 4, "num_layers": 8, "num_dense_layers": 1}),
    (28, {"pp": 4, "seq_length": 4096, "zero": 0, "host_s_per_kernel": 0.0}),
    (28, {"pp": 4, "recompute": "full", "gpus_per_node": 2, "host_s_per_kernel": 0.0}),
    (40, {"pp": 8, "num_layers": 8, "ep": 2, "gpus_per_node": 4, "host_s_per_kernel": 0.0}),
    (56, {"pp": 4, "microbatches": 120}),
    (20, {"pp": 4, "vpp": 2, "num_layers": 8, "schedule": "dualpipev", "host_s_per_kernel": 0.0}),
]
"""Microbatches that show the steady state: also of stages that differ, messages that leave their node, and
hosts that are ahead of their GPUs for so long that it takes a second step."""


def _run(fields: dict[str, Any]) -> Scenario:
    return with_experts(**{"schedule": "dualpipe", "ep": 4, "microbatches": 80} | fields)


def _record(run: Scenario) -> Record:
    return replay(folded(lower(run, build_cluster(run))).programs)


def _plain(step: Step) -> tuple[object, ...]:
    """A step without its microbatches."""
    actions = (step,) if isinstance(step, Action) else (step.forward, step.backward)
    return tuple((one.stage, one.kind) for one in actions)


@pytest.mark.parametrize("schedule", PAIRED, ids=lambda one: one.name)
@pytest.mark.parametrize("ranks", [2, 4, 6])
@pytest.mark.parametrize("more", [0, 2, 6])
def test_more_microbatches_are_one_turn_more_on_every_rank(schedule: Schedule, ranks: int, more: int) -> None:
    """Whole turns of pairs stand in the middle, and the rest of the order stays as it is."""
    shape = Shape(ranks=ranks, microbatches=2 * ranks + 2 + more, chunks=schedule.chunks)
    longer = replace(shape, microbatches=shape.microbatches + schedule.paired)
    for short, long in zip(schedule.orders(shape), schedule.orders(longer), strict=True):
        kinds, wanted = [_plain(step) for step in short], [_plain(step) for step in long]
        last = max(i for i, one in enumerate(kinds[:-1]) if len(one) == len(kinds[i + 1]) == 2)
        turn = kinds[last : last + 2]
        assert kinds[: last + 2] + turn + kinds[last + 2 :] == wanted


@pytest.mark.parametrize(("few", "fields"), LAYOUTS)
def test_a_step_shortened_to_few_pairs_is_the_step(few: int, fields: dict[str, Any]) -> None:
    run = _run(fields)
    short = extended(run, _record, lambda one: one)
    assert short.period is not None
    assert short.more == (run.num_microbatches - few) // turn_of_pairs(run)
    found, whole = Search().step_of(run), _record(run)
    assert found.step_time_s == pytest.approx(whole.step_s, rel=1e-9)
    assert found.peak_memory_bytes == pytest.approx(simulate(run).peak_memory_bytes, rel=1e-9)
    told = {part.name: part.seconds for part in found.path}
    assert told == pytest.approx({part.name: part.seconds for part in path_of(whole)}, rel=1e-6, abs=1e-9)


def test_dense_layers_run_one_after_the_other() -> None:
    """Where no exchange is to be overlapped, a pair is no op of its own."""
    assert not turn_of_pairs(_run({"pp": 2, "ep": 1}))


def test_a_pipeline_that_is_not_full_yet_is_not_steady() -> None:
    """Fewer pairs than are compared, or than it takes to fill the pipeline, show nothing."""
    run = _run(LAYOUTS[0][1])
    assert (
        period_of_pairs(_record(of_length(run, 2 * run.parallelism.pp)), run.parallelism.pp // 2, 1e-11)
        is None
    )
