"""Records of real faults: read as published, fitted by laws with closed forms, and replayed on a job."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_jobs import command

from stepsim.hardware.quantities import DAY_S
from stepsim.sim.reliability.planning.record import fault_lines, read_fault_record
from stepsim.sim.reliability.study.fits import fits, frailty, trend
from stepsim.sim.reliability.study.recorded import record_figures

DAYS = 100.0
JOB: dict[str, Any] = {
    "step_time": "10 s",
    "cluster": {"gpus": 64, "gpus_per_node": 8},
    "detection": "2 min",
    "recovery": {"restart_cost": "8 min"},
    "checkpoint": {"storage": {"every": "30 min", "mode": "blocking", "stall": "0 s", "load": "0 s"}},
    "run": {"horizon": "54 d"},
}


def event(host: str, day: float, kind: str, of: str = "GPU") -> dict[str, Any]:
    about = {"Level": "Hardware Failure", "Class": of, "Desc": "broken"}
    return {"node_id": host, "event_time": day, "event_type": f"fault_{kind}", "fault_type": about}


def written(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(events))
    return path


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Ten faults of four hosts in 100 days, ten days apart, each two days long."""
    events = []
    for number in range(10):
        host = f"host {number % 4}"
        begin = 5.0 + 10.0 * number
        events += [event(host, begin, "start"), event(host, begin + 2.0, "end")]
    events.append(event("host 0", DAYS, "start", "NIC"))
    return written(tmp_path / "record.json", events)


def test_what_is_in_a_record(record: Path) -> None:
    found = read_fault_record(record, 8)
    assert (found.hosts, found.length_s, len(found.faults)) == (8, DAYS * DAY_S, 11)
    assert [fault.repair_s for fault in found.faults] == [2 * DAY_S] * 10 + [None]
    assert [fault.host for fault in found.faults] == [*(n % 4 for n in range(10)), 0]
    assert Counter(fault.kind for fault in found.faults) == {"gpu_fatal": 10, "nic_down": 1}
    figures = record_figures(found)
    assert figures.away == pytest.approx(0.2)  # ten times two of a hundred days
    assert figures.per_host_day == pytest.approx(11 / 8 / DAYS)


def test_published_classes_are_those_of_the_record(shared: Path) -> None:
    """The summary that StepFun published beside its record has the same faults by level and class."""
    place = shared / "data" / "traces" / "failures"
    if not place.is_dir():
        pytest.skip(f"no record of faults at {place}")
    found = read_fault_record(place / "stepfun__fault_trace.json", 400)
    summary = json.loads((place / "stepfun__fault_statistics.json").read_text())
    classes = Counter((fault.level, fault.of) for fault in found.faults)
    assert sum(classes.values()) == 584
    for level, inside in summary.items():
        assert sum(n for (one, _), n in classes.items() if one == level) == inside["LevelTotal"]
        for name, counts in inside.items():
            if name != "LevelTotal":
                listed = sum(count for what, count in counts.items() if what != "ClassTotal")
                assert classes[level, name] in (counts["ClassTotal"], listed)
    figures = record_figures(found)
    assert figures.arrivals[0].law == "weibull"  # bursts: failures are likelier behind one another
    assert figures.arrivals[0].shape < 1
    assert figures.frailty > 0.5
    for laws in (figures.arrivals, figures.repairs):
        assert [one.aic for one in laws] == sorted(one.aic for one in laws)


# Fits ----------------------------------------------------------------------------------------------


@examples(20)
@given(st.integers(0, 2**31), st.floats(0.4, 3.0), st.floats(1.0, 1e6))
def test_fits_are_those_of_greatest_likelihood(seed: int, shape: float, scale: float) -> None:
    """Closed forms of two laws; of Weibull's, scipy's own search."""
    from scipy.stats import weibull_min

    times = scale * np.random.default_rng(seed).weibull(shape, 60)
    found = {one.law: one for one in fits(times.tolist())}
    assert found["exponential"].scale_s == pytest.approx(times.mean())
    assert found["exponential"].log_likelihood == pytest.approx(-60 * (1 + math.log(times.mean())))
    assert found["lognormal"].scale_s == pytest.approx(math.exp(np.log(times).mean()))
    assert found["lognormal"].shape == pytest.approx(np.log(times).std())
    own, _, size = weibull_min.fit(times / times.mean(), floc=0)
    best = weibull_min.logpdf(times / times.mean(), own, 0, size).sum() - 60 * math.log(times.mean())
    assert found["weibull"].log_likelihood >= best - 1e-4
    assert found["weibull"].log_likelihood >= found["exponential"].log_likelihood - 1e-9


def test_a_true_law_is_kept_and_a_wrong_one_is_not() -> None:
    random = np.random.default_rng(11)
    true = {one.law: one for one in fits(random.exponential(100.0, 300).tolist())}
    assert true["exponential"].p_value > 0.05
    assert true["weibull"].shape == pytest.approx(1.0, abs=0.1)
    assert true["lognormal"].p_value < 0.05
    other = fits(random.lognormal(3.0, 2.0, 300).tolist())
    assert other[0].law == "lognormal"
    assert {one.law: one.p_value < 0.05 for one in other}["exponential"]


def test_p_values_are_uniform_where_the_law_holds() -> None:
    """Of 40 samples of an exponential, about a tenth have a p-value below 0.1."""
    random = np.random.default_rng(7)
    values = []
    for seed in range(40):
        found = fits(random.exponential(1.0, 30).tolist(), seed)
        values += [one.p_value for one in found if one.law == "exponential"]
    assert 0 < sum(value < 0.25 for value in values) < 20
    assert np.mean(values) == pytest.approx(0.5, abs=0.15)


def test_trend_and_frailty() -> None:
    even = [float(n) for n in range(1, 100)]
    assert trend(even, 100.0) == pytest.approx(0.0)
    assert trend([99.0] * 12, 100.0) == pytest.approx(
        0.49 * 12
    )  # 12 faults: a deviation is 1/12 of the record
    assert frailty([3] * 50) == 0.0
    # Half of the hosts never fail and half at twice the rate: cv 1 by Var = mean + mean².
    counts = np.concatenate([np.zeros(4000), np.random.default_rng(3).poisson(8.0, 4000)]).astype(int)
    assert frailty(counts.tolist()) == pytest.approx(1.0, abs=0.02)
    with pytest.raises(ValueError, match="8"):
        fits([1.0, 2.0])


# Replays -------------------------------------------------------------------------------------------


def test_lines_are_faults_of_the_hosts_that_a_job_has(record: Path) -> None:
    found = read_fault_record(record, 8)
    assert len(fault_lines(found, 8, 0)) == 11
    fewer = fault_lines(found, 3, 0)
    hosts = {line.split()[1] for line in fewer}
    assert hosts <= {"node/0", "node/1", "node/2"}
    assert {fault_lines(found, 3, seed) == fewer for seed in range(5)} == {True, False}
    with pytest.raises(ValueError, match="--hosts"):
        fault_lines(found, 9, 0)


def test_a_job_loses_what_the_record_takes(record: Path, tmp_path: Path) -> None:
    """Eight hosts, spares enough: each of ten faults costs its detection and restart, and half of what lies
    between checkpoints; the eleventh comes as the record ends.
    """
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(JOB))
    found = json.loads(command("faults", job, "--record", record, "--hosts", 8, "-n", 4, "--json"))
    assert found["wall_s"]["mean"] == pytest.approx(DAYS * DAY_S, rel=1e-4)
    assert found["interruptions"]["mean"] == pytest.approx(10, abs=1)
    least = 10 * (120 + 480) / (DAYS * DAY_S)
    most = 11 * (120 + 480 + 1800 + 20) / (DAYS * DAY_S)
    assert 1 - most <= found["ettr"]["mean"] <= 1 - least


def test_without_spares_a_job_waits_for_repairs(record: Path, tmp_path: Path) -> None:
    """No spare: the job stands still for the two days of each of ten faults."""
    job = tmp_path / "job.yaml"
    recovery = {"restart_cost": "8 min", "spares": {"warm": 0, "cold": 0}}
    job.write_text(yaml.safe_dump(JOB | {"recovery": recovery}))
    found = json.loads(command("faults", job, "--record", record, "--hosts", 8, "-n", 2, "--json"))
    assert found["ettr"]["mean"] == pytest.approx(0.8, abs=0.005)


def test_a_record_by_itself(record: Path) -> None:
    found = json.loads(command("faults", "--record", record, "--hosts", 8, "--json"))
    assert (found["faults"], found["hosts"], found["hosts_that_failed"]) == (11, 8, 4)
    assert [one["law"] for one in found["between_incidents"]]
    assert command("faults", "--record", record)


def test_what_is_no_record_is_refused(record: Path, tmp_path: Path) -> None:
    assert "--hosts" in command("faults", "--record", record, "--hosts", 2, code=2)
    assert "--record" in command("faults", "llama3.1-405b-16k", "--hosts", 2, code=2)
    for name, events, what in (
        ("order.json", [event("a", 2.0, "start"), event("a", 1.0, "end")], "event_time"),
        ("end.json", [event("a", 2.0, "end")], "[0]"),
        ("kind.json", [event("a", 2.0, "middle")], "event_type"),
        ("time.json", [event("a", math.inf, "start")], "time.json"),
        ("none.json", [], "none.json"),
    ):
        assert what in command("faults", "--record", written(tmp_path / name, events), code=2)
