"""A long step from a few short ones is the long step: the steady state repeats itself."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate
from stepsim.sim.validation.brief import brief_step
from stepsim.sim.validation.steady import extended, steady_groups

BASE: dict[str, Any] = {"micro_batch": 1, "gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}


@pytest.mark.parametrize(
    "fields",
    [
        {
            "pp": 4,
            "schedule": "1f1b",
            "microbatches": 400,
            "software": "megatron-core-2025",
            "dp": 2,
            "zero": 1,
        },
        {"pp": 4, "schedule": "1f1b", "microbatches": 400, "software": "nanotron-2024", "tp": 2},
        {"pp": 2, "vpp": 2, "schedule": "interleaved", "microbatches": 300, "software": "nemo-2025", "tp": 4},
        {
            "pp": 4,
            "schedule": "1f1b",
            "microbatches": 280,
            "software": "megatron-2022-sp",
            "recompute": "full",
        },
        {"microbatches": 1200, "software": "torchtitan-2024", "dp": 4, "zero": 3},
        {"pp": 2, "schedule": "1f1b", "microbatches": 600, "software": "llama3-meta-2024", "cp": 2, "tp": 2},
    ],
)
def test_a_long_step_is_two_short_ones(fields: dict[str, Any]) -> None:
    run = scenario(**BASE, **fields)
    assert steady_groups(run)
    whole, brief = simulate(run), brief_step(run)
    assert brief.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    for mine, other in zip(brief.memory, whole.memory, strict=True):
        assert mine.peak_bytes == pytest.approx(other.peak_bytes, rel=1e-12)


def test_steps_are_added_until_they_are_steady() -> None:
    """The first groups of this one take longer and longer; from the third on, all take the same."""
    run = scenario(**BASE, pp=4, schedule="1f1b", microbatches=400, software="nanotron-2024")
    asked: list[int] = []

    def seconds(one: Scenario) -> float:
        groups = one.num_microbatches // 4
        asked.append(groups)
        return 10.0 + min(groups, 3) ** 2 + 7.0 * max(0, groups - 3)

    found = extended(run, seconds, float)
    assert asked == [1, 2, 3, 4, 5]
    assert found.of(found.shorter, found.longer) == pytest.approx(seconds(run))


def test_what_never_becomes_steady_is_replayed_whole() -> None:
    run = scenario(**BASE, pp=4, schedule="1f1b", microbatches=400, software="nanotron-2024")
    found = extended(run, lambda one: float(one.num_microbatches**2), float)
    assert (found.longer, found.more) == (400.0**2, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"pp": 4, "schedule": "1f1b", "microbatches": 16},  # short enough
        {"pp": 4, "schedule": "1f1b", "microbatches": 402},  # no whole number of groups
        {"pp": 4, "schedule": "gpipe", "microbatches": 400},  # holds what every microbatch leaves
        {"pp": 4, "schedule": "zb-1p", "microbatches": 400},  # a search
    ],
)
def test_what_does_not_repeat_is_replayed_whole(fields: dict[str, Any]) -> None:
    assert steady_groups(scenario(**BASE, **fields)) == 0
