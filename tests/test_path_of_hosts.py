"""The critical path where a host is late: it goes along the host, whatever the GPU did meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_scenarios import lowered, scenario

from stepsim.sim.brief.step import brief_step
from stepsim.sim.engine import blocks
from stepsim.sim.engine.blocks import Moments, since_host
from stepsim.sim.engine.critical_path import _issued_late, critical_path
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Compute, Op
from stepsim.sim.simulate import simulate

SLOW_S, QUICK_S = 2e-4, 1e-7


def job(host_s: float, **fields: Any) -> Any:
    software = {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": host_s}}
    return scenario(software=software, microbatches=8, hidden_size=1024, seq_length=512, **fields)


def host_on_path_s(host_s: float, **fields: Any) -> tuple[float, float]:
    """Seconds of the host on the critical path, and of the step."""
    result = simulate(job(host_s, **fields))
    named = {segment.name: segment.seconds for segment in result.critical_path}
    assert sum(named.values()) == pytest.approx(result.step_time_s, rel=1e-6)
    return named.get("host", 0.0), result.step_time_s


@pytest.mark.parametrize("fields", [{}, {"tp": 2}, {"dp": 2, "zero": 1}, {"pp": 2, "schedule": "1f1b"}])
@pytest.mark.parametrize("host_s", [SLOW_S, 4e-5])
def test_the_hosts_time_on_the_path_is_what_a_step_grows_by_when_launches_do(
    host_s: float, fields: dict[str, Any]
) -> None:
    more = 1e-4
    on_path_s, step_s = host_on_path_s(host_s, **fields)
    _, longer_s = host_on_path_s(host_s * (1 + more), **fields)
    grows_s = (longer_s - step_s) / more
    assert on_path_s == pytest.approx(grows_s, abs=0.03 * step_s)


@pytest.mark.parametrize("fields", [{}, {"dp": 2, "zero": 1}, {"pp": 2, "schedule": "1f1b"}])
@pytest.mark.parametrize(
    ("preset", "host_s"),
    [("megatron-core-2025", 2e-5), ("megatron-core-2025", 4e-5), ("megatron-2022-sp", 4e-5)],
)
def test_a_host_that_is_late_for_some_kernels_of_a_block_is_on_the_path_up_to_the_last_of_them(
    preset: str, host_s: float, fields: dict[str, Any]
) -> None:
    """Kernels behind it are on the path themselves; parts of windows of a step are the time of these."""

    def replayed(host_s: float) -> Record:
        host = {"preset": preset, "host": {"host_s_per_kernel": host_s}}
        run = scenario(software=host, microbatches=4, hidden_size=2048, seq_length=1024, **fields)
        return replay(lowered(run).programs)

    more, record = 1e-5, replayed(host_s)
    path, step_s = critical_path(record), record.step_s
    grows_s = (replayed(host_s * (1 + more)).step_s - step_s) / more
    assert path["host"] == pytest.approx(grows_s, abs=1e-4 * step_s)
    for until_s in (0.3 * step_s, 0.55 * step_s, 0.9 * step_s):
        early, late = (critical_path(record, one) for one in ((0.0, until_s), (until_s, step_s)))
        assert sum(early.values()) == pytest.approx(until_s, rel=1e-6)
        assert sum(late.values()) == pytest.approx(step_s - until_s, rel=1e-6)


@pytest.mark.parametrize(
    ("since_s", "late"),
    [(0.25, True), (0.25 * (1 - 1e-12), True), (0.25 * (1 + 1e-12), True), (0.25 * (1 - 1e-6), False)],
)
@pytest.mark.parametrize("awaited", [-1, 0])
def test_an_op_is_issued_late_where_it_begins_as_its_host_is_done(
    awaited: int, since_s: float, late: bool
) -> None:
    """Both times are sums in another order: they differ by rounding where they are the same. An op that began
    later than that waited for something else."""
    ended_s = 0.125 if awaited >= 0 else 0.0
    record = SimpleNamespace(issues=lambda _: [(awaited, since_s)], end=[[0.125]])
    now_s = ended_s + 0.25
    assert _issued_late(cast(Record, record), (0, 0), now_s) is late


def test_blocks_that_run_alike_are_asked_for_their_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the path is asked for anew, of a part of the step."""
    host = {"preset": "megatron-core-2025", "host": {"host_s_per_kernel": 2e-5}}
    run = scenario(software=host, microbatches=16, hidden_size=2048, seq_length=1024, num_layers=8)
    asked: list[tuple[float, ...]] = []
    real = blocks.since_host

    def counted(ops: list[Op], times: Moments, at: float) -> Any:
        asked.append((at, *times[0], *times[2]))
        return real(ops, times, at)

    monkeypatch.setattr(blocks, "since_host", counted)
    record = replay(lowered(run).programs)
    path = critical_path(record)
    once = len(asked)
    assert path["host"] > 0.0
    assert 0 < once < 16
    critical_path(record, (0.2 * record.step_s, 0.8 * record.step_s))
    assert len(asked) == once


def block_of(*, collective_s: float, behind_s: float) -> tuple[list[Op], Moments]:
    """Two GEMMs, each behind a collective but the very first: the first collective starts then, and what
    follows it."""
    product = Compute(seconds=1.0, kind="gemm", flops=1.0, bytes=1.0)
    moved = Transfer(latency_s=0.0, bytes=1.0, ceiling_bytes_per_s=1.0)
    sum_ = Collective(kind="all_reduce", communicator="tp", transfer=moved)
    ops = [
        Op("first", "compute", "compute", product),
        Op("reduce", "tp", "tp", sum_, after=(0,)),
        Op("second", "compute", "compute", product, after=(1,)),
        Op("reduce", "tp", "tp", sum_, after=(2,)),
        Op("third", "compute", "compute", product, after=(3,)),
    ]
    start = [0.0, collective_s, behind_s, behind_s + 1, behind_s + 3]
    end = [1.0, collective_s + 2, behind_s + 1, behind_s + 3, behind_s + 4]
    return ops, (start, start, end)


@pytest.mark.parametrize(
    ("collective_s", "behind_s", "found"),
    [
        (1.0, 3.0, None),
        (1.5, 3.5, (1.5, {"tp": 4.0, "gemm": 2.0})),  # issued half a second late; the rest is awaited
        (1.0, 3.5, (3.5, {"tp": 2.0, "gemm": 2.0})),  # the GEMM behind it was
        (1.5, 4.0, (4.0, {"tp": 2.0, "gemm": 2.0})),  # both
    ],
)
def test_what_a_block_did_since_it_waited_for_its_host(
    collective_s: float, behind_s: float, found: tuple[float, dict[str, float]] | None
) -> None:
    ops, times = block_of(collective_s=collective_s, behind_s=behind_s)
    assert since_host(ops, times, 0.0) == found


def test_a_step_whose_hosts_are_ahead_has_kernels_on_its_path_and_one_whose_are_late_has_hosts() -> None:
    quick_s, step_s = host_on_path_s(QUICK_S)
    assert quick_s < 0.02 * step_s
    late_s, step_s = host_on_path_s(SLOW_S)
    assert late_s > 0.95 * step_s  # kernels take a third of it, beside the host
    sample = brief_step(job(SLOW_S)).doubt.sample
    assert sample.shares["host"] == pytest.approx(late_s / step_s, abs=0.02)
