"""A long step from a short one is the long step: the steady state repeats itself."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_scenarios import BARE_HOST, scenario

from stepsim.sim.brief.period import period_of
from stepsim.sim.brief.steady import Extended, extended, of_length, steady_groups
from stepsim.sim.brief.step import brief_step
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.lowering.lower import lower
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schedules import schedule_names, traits_of
from stepsim.sim.simulate import build_cluster, simulate

BASE: dict[str, Any] = {"micro_batch": 1, "gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8"}
GPU_BOUND: dict[str, Any] = {"hidden_size": 2048, "seq_length": 4096}
CORE_2025, NEMO_2025 = ({"preset": name, "host": BARE_HOST} for name in ("megatron-core-2025", "nemo-2025"))
HOST_BOUND: dict[str, Any] = {"pp": 4, "schedule": "1f1b", "software": "nanotron-2024"}


def _record(run: Scenario) -> Record:
    return replay(folded(lower(run, build_cluster(run))).programs)


def _shortened(run: Scenario) -> Extended[Record]:
    return extended(run, _record, lambda one: one)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {
            "pp": 4,
            "schedule": "1f1b",
            "microbatches": 400,
            "software": CORE_2025,
            "dp": 2,
            "zero": 1,
        },
        {"pp": 4, "schedule": "1f1b", "microbatches": 400, "software": "nanotron-2024", "tp": 2},
        {"pp": 2, "vpp": 2, "schedule": "interleaved", "microbatches": 300, "software": NEMO_2025},
        {
            "pp": 4,
            "schedule": "1f1b",
            "microbatches": 280,
            "software": "megatron-2022-sp",
            "recompute": "full",
        },
        {"microbatches": 1200, "software": "torchtitan-2024", "dp": 4, "zero": 3},
        {"pp": 2, "schedule": "1f1b", "microbatches": 600, "software": "llama3-meta-2024", "cp": 2, "tp": 2},
        {  # hosts get further ahead all the while, and buffers of collectives pile up
            "pp": 2,
            "tp": 4,
            "schedule": "1f1b",
            "microbatches": 240,
            "software": "nanotron-2025",
            "interconnect": "efa-3200",
        },
    ],
)
def test_a_long_step_is_a_short_one_that_goes_on(fields: dict[str, Any]) -> None:
    run = scenario(**BASE | GPU_BOUND | fields)
    assert _shortened(run).more > 0
    whole, brief = simulate(run), brief_step(run)
    assert brief.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert whole.interval is not None
    # Critical paths that tie end as rounding has it, and either has shares of its own.
    assert brief.interval.low_s == pytest.approx(whole.interval.low_s, rel=5e-3)
    for mine, other in zip(brief.memory, whole.memory, strict=True):
        assert mine.peak_bytes == pytest.approx(other.peak_bytes, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    pp=st.sampled_from([2, 4]),
    tp=st.sampled_from([1, 2, 4]),
    groups=st.integers(40, 60),
    software=st.sampled_from(["nanotron-2024", "nanotron-2025", "megatron-core-2025", "megatron-2021"]),
    hidden_size=st.sampled_from([256, 1024, 4096]),
    interleaved=st.booleans(),
)
def test_shortened_or_not_the_step_is_the_same(
    pp: int, tp: int, groups: int, software: str, hidden_size: int, interleaved: bool
) -> None:
    """Also where the host is what takes longest, or comes to be after some groups."""
    layout: dict[str, Any] = {"pp": pp, "tp": tp, "microbatches": groups * pp, "software": software}
    if interleaved and software.startswith("megatron"):
        layout |= {"schedule": "interleaved", "vpp": 2}
    else:
        layout |= {"schedule": "1f1b"}
    run = scenario(**BASE, **layout, hidden_size=hidden_size)
    found = _shortened(run)
    assume(found.period is not None)
    assert found.period is not None
    whole = _record(run)
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole.step_s, rel=1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {  # the all-gathers of ZeRO-3 fall back behind kernels that do not wait for them yet
            "gpu": "B200-SXM-180GB",
            "interconnect": "ib-hdr200-x8",
            "tp": 4,
            "dp": 2,
            "zero": 3,
            "num_attention_heads": 16,
            "hidden_size": 1024,
            "ffn_hidden_size": 4096,
            "vocab_size": 32768,
            "seq_length": 256,
            "num_layers": 1,
            "num_query_groups": 8,
            "tied_embeddings": False,
            "sequence_parallel": True,
            "software": {
                "preset": "deepspeed-zero3-2021",
                "host": {"host_s_per_kernel": 2.8062761773747473e-06},
            },
            "microbatches": 156,
        },
        {  # a host that gets ahead, and in a short step is still waited for at the end
            "gpu": "B200-SXM-180GB",
            "dp": 2,
            "num_attention_heads": 16,
            "hidden_size": 8192,
            "ffn_hidden_size": 32768,
            "seq_length": 512,
            "micro_batch": 4,
            "num_layers": 3,
            "precision": "fp8",
            "software": {"preset": "llm-foundry-2023", "host": {"host_s_per_kernel": 0.00015239399216006593}},
            "microbatches": 151,
        },
    ],
)
def test_what_no_end_of_a_group_shows_is_not_left_out(fields: dict[str, Any]) -> None:
    run = scenario(**BASE | fields)
    assert steady_groups(run)
    assert brief_step(run).step_time_s == pytest.approx(simulate(run).step_time_s, rel=1e-9)


def _short(groups: int, **fields: Any) -> tuple[Record, int]:
    run = scenario(**BASE, **HOST_BOUND | {"microbatches": 400} | fields)
    pp = run.parallelism.pp
    return _record(of_length(run, groups * pp)), pp


def _later(times: array[float], i: int, seconds: float) -> array[float]:
    moved = times[:]
    moved[i] += seconds
    return moved


def test_an_op_that_ends_later_than_its_like_is_not_steady() -> None:
    record, pp = _short(4, software=CORE_2025, **GPU_BOUND)
    assert period_of(record, pp, 1, 1e-9) is not None
    ops = record.programs.classes[2].ops
    i = next(i for i, op in enumerate(ops) if op.action == f"2B{3 * pp - 1}")
    record.end[2] = _later(record.end[2], i, 1e-6)
    assert period_of(record, pp, 1, 1e-9) is None


def test_a_host_that_falls_back_is_not_steady() -> None:
    """The time of a group is the same for a while: what will be the host's pace is not the GPU's yet."""
    record, pp = _short(4, software=CORE_2025, **GPU_BOUND)
    period = period_of(record, pp, 1, 1e-9)
    assert period is not None
    assert all(lead_s >= 0 for lead_s in period.leads_s.values())
    one = record.programs.classes[1]
    host_s = 1.1 * period.seconds / (4 * pp)  # a group has as many ops on this rank
    slow = replace(one, ops=tuple(op._replace(host_s=host_s, host_sync=False) for op in one.ops))
    record.programs = replace(
        record.programs, classes=(record.programs.classes[0], slow, *record.programs.classes[2:])
    )
    assert period_of(record, pp, 1, 1e-9) is None


def test_a_host_that_is_not_later_by_the_same_is_not_steady() -> None:
    """However far it is ahead: what it does in one group it does not do in the other."""
    record, pp = _short(4, software=CORE_2025, **GPU_BOUND)
    one = record.programs.classes[1]
    last = next(i for i, op in enumerate(one.ops) if op.action == f"1B{3 * pp - 2}")
    ops = tuple(op._replace(host_s=op.host_s + 1e-6 * (i == last)) for i, op in enumerate(one.ops))
    others = record.programs.classes
    record.programs = replace(record.programs, classes=(others[0], replace(one, ops=ops), *others[2:]))
    assert period_of(record, pp, 1, 1e-9) is None


def test_what_is_not_steady_in_half_of_the_step_is_replayed_whole() -> None:
    run = scenario(**BASE, **HOST_BOUND, microbatches=48)
    assert steady_groups(run) == 12
    asked: list[int] = []

    def record(one: Scenario) -> Record:
        asked.append(one.num_microbatches // 4)
        found = _record(one)
        for r in range(len(found.end)):
            found.end[r] = _later(found.end[r], len(found.end[r]) // 2, 1.0 + r)
        return found

    found = extended(run, record, lambda one: one)
    assert asked == [4, 12]
    assert (found.more, found.period) == (0, None)


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


def test_what_fills_a_pipeline_does_not_depend_on_what_follows() -> None:
    """The groups that are compared are neither among those that fill the pipeline nor those that drain it."""
    for schedule in schedule_names(lambda one: one.filling > 0):
        filling = traits_of(schedule).filling
        layout: dict[str, Any] = {"pp": 1} if schedule == "none" else {"pp": 4, "schedule": schedule}
        layout |= {"vpp": 2} if schedule == "interleaved" else {}
        run = scenario(**BASE, **layout, microbatches=400, software=CORE_2025, **GPU_BOUND)
        pp, number = run.parallelism.pp, 2 + 2 * filling
        short = period_of(_record(of_length(run, number * pp)), pp, filling, 1e-9)
        longer = period_of(_record(of_length(run, (number + 1) * pp)), pp, filling, 1e-9)
        assert short is not None
        assert longer is not None
        assert short.seconds == pytest.approx(longer.seconds, rel=1e-9)
