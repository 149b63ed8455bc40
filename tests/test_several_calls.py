"""Several equal collectives in a row as one op: the same times as one by one, wherever links are free."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_programs import two_stages, written

from stepsim.sim.engine.replay import replay
from stepsim.sim.lowering.layers.layer_builder import KernelPricing
from stepsim.sim.lowering.updates.gradients import Gradients
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.file import read_program, write_program
from stepsim.sim.program.program import Collective, Compute, Op, Program, Programs
from stepsim.sim.program.program_builder import ProgramBuilder

SECONDS = st.floats(0.0, 3.0)
NOTHING = Transfer(0.0, 0.0, math.inf)
LINKS = {"nic.out": 10.0, "nic.in": 10.0}


def ends(one: Transfer, calls: int, host_s: float, ready: list[float], *, together: bool) -> list[float]:
    """When each class is through: a kernel, the calls, and another collective behind them."""
    whole = replace(one, latency_s=calls * one.latency_s, bytes=calls * one.bytes)
    classes = []
    for seconds in ready:
        ops = [Op("kernel", "compute", "compute", Compute(seconds, "gemm"), host_s=0.1)]
        if together:
            row = [(Collective("all_reduce", "dp", whole, calls), calls * host_s)]
        else:
            row = [(Collective("all_reduce", "dp", one), host_s)] * calls
        ops += [Op("reduce", "dp", "dp", work, (0,), host_s=issue_s) for work, issue_s in row]
        ops.append(Op("gather", "dp", "dp", Collective("all_gather", "dp", one), host_s=host_s))
        classes.append(Program(ops=tuple(ops)))
    record = replay(
        Programs(
            classes=tuple(classes),
            communicators={"dp": tuple(range(len(ready)))} if len(ready) > 1 else {},
            links=(LINKS,) * len(ready),
            sms=100,
            corun_slowdown=0.0,
        )
    )
    return [end for r in range(len(ready)) for end in list(record.end[r])[-2:]]


@given(
    one=st.builds(Transfer, SECONDS, SECONDS, st.floats(0.1, 10.0), st.just((("nic.out", 1.0),))),
    calls=st.integers(1, 30),
    host_s=st.one_of(st.just(0.0), SECONDS),
    ready=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=3),
)
def test_calls_in_one_op_end_when_calls_one_by_one_do(
    one: Transfer, calls: int, host_s: float, ready: list[float]
) -> None:
    apart = ends(one, calls, host_s, ready, together=False)
    assert ends(one, calls, host_s, ready, together=True) == pytest.approx(apart, rel=1e-9, abs=1e-9)


def test_the_host_holds_up_the_last_call() -> None:
    """Ten calls of 1 s that the host issues every 3 s, from 0.1 s on: the last begins at 30.1 s."""
    one = Transfer(1.0, 0.0, math.inf)
    assert ends(one, 10, 3.0, [0.0], together=True)[0] == pytest.approx(31.1)
    assert ends(one, 10, 3.0, [100.0], together=True)[0] == pytest.approx(110.1)


def reductions(elements: float, **other: Any) -> list[Collective]:
    """What leaves when so many gradients become ready at once, in buckets of 100."""
    free = KernelPricing(
        seconds=lambda _: 0.0, transfer=lambda *_: NOTHING, host_s=1e-6, host_collective_s=1e-6
    )
    gradients = Gradients(
        communicator="dp",
        transfer=lambda kind, size: Transfer(1e-6, size, 1e9),
        element_bytes=4,
        wire_bytes=4,
        bucket_elements=100.0,
        sharded=False,
        costs=free,
        **other,
    )
    writer = ProgramBuilder()
    gradients.add(writer, elements)
    gradients.flush(writer)
    return [op.work for op in writer.ops if isinstance(op.work, Collective)]


def test_buckets_that_are_full_at_once_are_one_op() -> None:
    first, rest = reductions(1250.0)
    assert (first.calls, first.transfer) == (12, Transfer(12e-6, 4800.0, 1e9))
    assert (rest.calls, rest.transfer.bytes) == (1, 200.0)
    assert [one.calls for one in reductions(99.0)] == [1]


def test_buckets_that_another_reduction_follows_stay_apart() -> None:
    follows = reductions(1250.0, over_replicas=lambda size: Transfer(1e-6, size, 1e9), replicas="replicas")
    assert [one.communicator for one in follows] == ["dp", "replicas"] * 13
    assert {one.calls for one in follows} == {1}


def test_a_file_holds_the_number_of_calls(tmp_path: Path) -> None:
    document = two_stages()
    for rank in document["classes"]:
        rank["ops"][-1]["calls"] = 5
    saved = read_program(written(document, tmp_path))
    work = saved.programs.classes[0].ops[-1].work
    assert isinstance(work, Collective)
    assert work.calls == 5
    write_program(saved.programs, tmp_path / "again.json", ranks=saved.ranks)
    assert read_program(tmp_path / "again.json").programs.classes[0].ops[-1].work == work


def test_a_block_has_its_calls_one_by_one(tmp_path: Path) -> None:
    document = two_stages()
    document["blocks"]["layer"][1]["calls"] = 2
    (problem,) = program_problems(read_program(written(document, tmp_path)).programs)
    assert problem.endswith("calls: in a block, each call is an op of its own")


@pytest.mark.parametrize("calls", [0, -1, 1.5, "two"])
def test_a_number_of_calls_is_whole_and_one_or_more(calls: object, tmp_path: Path) -> None:
    document = two_stages()
    document["classes"][0]["ops"][-1]["calls"] = calls
    with pytest.raises(ValueError, match="calls"):
        read_program(written(document, tmp_path))


def test_members_agree_on_the_number_of_calls(tmp_path: Path) -> None:
    document = two_stages()
    document["classes"][0]["ops"][-1]["calls"] = 2
    problems = program_problems(read_program(written(document, tmp_path)).programs)
    assert any("in 2 calls" in problem and "communicator 'world', call 0" in problem for problem in problems)
