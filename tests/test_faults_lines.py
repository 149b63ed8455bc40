"""Faults as people write them in text: lines, targets, traces, ranges of sweeps; what wrong ones are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.sim.reliability.planning.traces import read_trace
from stepsim.sim.reliability.study.sweep import parse_axis
from stepsim.sim.scenario.faults.faults import parse_fault
from stepsim.sim.scenario.faults.kinds import ANYWHERE
from stepsim.sim.scenario.faults.targets import Target, parse_target

# Lines and targets ------------------------------------------------------------------------------------------


def test_a_line_is_an_event() -> None:
    fault = parse_fault("gpu_throttle gpu/37 slow_factor=1.3 at=2s duration=40min")
    assert (fault.kind, fault.slow_factor, fault.at) == ("gpu_throttle", 1.3, 2.0)
    assert fault.where == Target("gpu", 37)
    assert fault.duration is not None
    assert fault.duration.constant == 2400.0
    assert parse_fault("link_degraded rail/3@node/12 bandwidth_factor=0.5").where.inside == Target("node", 12)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "kind target"),
        ("gpu_throtle gpu/1", "mean gpu_throttle"),
        ("gpu_throtle gpu/1", "storage_slow$"),
        ("gpu_throttle gpu/1 slow=2", "'slow'"),
        ("gpu_throttle gpu/1 slowfactor=2", "mean slow_factor"),
        ("gpu_throttle gpu/1 slow_factor=0.5", "slow_factor"),
        ("gpu_throttle gpu/1 gpu/2", "two targets"),
        ("gpu_throttle", "gpu/0"),
        ("gpu_fatal leaf/1", "gpu .*node .*rank, .*leaf"),
        ("gpu_fatal gpu/1 slow_factor=2", "takes no slow_factor"),
        ("gpu_fatal gpu", "gpu/0"),
        ("gpu_fatal gpux/3", "'gpux'"),
        ("gpu_fatal gpu/3@leaf/2", "gpu .*node, .*leaf"),
        ("gpu_fatal gpu/3 at=3", "3 has"),
        ("gpu_fatal gpu/3 at=-3s", "-3"),
        ("gpu_fatal gpu/3 at=nan s", "at: 'nan s'"),
        ("gpu_fatal gpu/3 at=3 seconds", "at: '3 seconds'"),
        ("gpu_fatal at=3 gpu/3", "at: 3 "),
        ("gpu_throttle gpu/3 slow_factor=1.3 s", "gpu/3 and s"),
        ("software_crash job duration=3s", "software_crash .*duration"),
    ],
)
def test_a_wrong_line_says_why(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_fault(line)


@given(st.sampled_from(ANYWHERE), st.integers(0, 99_999))
def test_targets_write_themselves_back(scope: str, index: int) -> None:
    text = scope if scope in ("job", "storage") else f"{scope}/{index}"
    assert str(parse_target(text)) == text


# Traces -----------------------------------------------------------------------------------------------------


def test_greyhounds_format_is_read(tmp_path: Path) -> None:
    path = tmp_path / "greyhound.trace"
    path.write_text("10;70;[0,3];2.5\ncomm;20;40;[1,2]\n")
    events = read_trace(path, step_s=10.0)
    assert [(event.kind, event.target, event.at) for event in events] == [
        ("gpu_throttle", "rank/0", 10.0),
        ("gpu_throttle", "rank/3", 10.0),
        ("link_degraded", "nic/1", 20.0),
        ("link_degraded", "nic/2", 20.0),
    ]
    assert events[0].slow_factor == 1.25
    assert events[0].duration is not None
    assert events[0].duration.constant == 60.0


def test_a_unit_may_stand_apart() -> None:
    together, apart = (
        "link_degraded nic/0 at=1.2s duration=3min",
        "link_degraded at=1.2 s duration=3 min nic/0",
    )
    assert parse_fault(apart) == parse_fault(together)
    assert parse_fault("software_crash at=1.2 s job") == parse_fault("software_crash job at=1.2s")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "time,kind,target\n10,gpu_fatal,gpu/1\n5,gpu_fatal,gpu/1\n",
            ":3: 5.*10",
        ),
        ("time,kind\n10,gpu_fatal\n", "column target"),
        ("time,kind,target\n10,gpu_fatl,gpu/1\n", ":2: .*mean gpu_fatal"),
        ("time,kind,target\n-1,gpu_fatal,gpu/1\n", r":2: time: -1"),
        ("time,kind,target\nsoon,gpu_fatal,gpu/1\n", r":2: time: 'soon'"),
        ("time,kind,target,duration,magnitude\n1,hang,job,,3\n", "hang .*magnitude"),
        ("time,kind,target\n", "no faults"),
        ("10;70;[0,3]\n", "write start;end;"),
        ("70;10;[0,3];1\n", "before it"),
        ("10;70;everyone;1\n", "everyone"),
    ],
)
def test_a_wrong_trace_says_where(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_trace(path, step_s=10.0)


# Sweeps -----------------------------------------------------------------------------------------------------


def test_ranges_of_a_sweep_give_their_values() -> None:
    assert parse_axis("recovery.spares.warm=0..16").values == (
        "0",
        "2",
        "4",
        "6",
        "8",
        "10",
        "12",
        "14",
        "16",
    )
    assert parse_axis("recovery.spares.warm=0..2").values == ("0", "1", "2")
    every = parse_axis("checkpoint.storage.every=5min..2h")
    assert every.field == "checkpoint.storage.every"
    assert (every.values[0], every.values[-1], len(every.values)) == ("5 min", "2 h", 7)
    assert parse_axis("x=1..100/3").values == ("1", "50", "100")
    assert parse_axis("x=a,b").values == ("a", "b")
    assert parse_axis("faults.scale=0.5..2/3").values == ("0.5", "1", "2")


@pytest.mark.parametrize("text", ["x", "x=", "=3", "x=2h..5min", "x=3..3", "x=1..9/1", "x=5min..3"])
def test_wrong_ranges_of_a_sweep_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--sweep"):
        parse_axis(text)
