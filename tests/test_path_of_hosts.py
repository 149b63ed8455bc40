"""The critical path where a host is late: it goes along the host, whatever the GPU did meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.brief.step import brief_step
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


def test_a_step_whose_hosts_are_ahead_has_kernels_on_its_path_and_one_whose_are_late_has_hosts() -> None:
    quick_s, step_s = host_on_path_s(QUICK_S)
    assert quick_s < 0.02 * step_s
    late_s, step_s = host_on_path_s(SLOW_S)
    assert late_s > 0.95 * step_s  # kernels take a third of it, beside the host
    sample = brief_step(job(SLOW_S)).doubt.sample
    assert sample.shares["host"] == pytest.approx(late_s / step_s, abs=0.02)
