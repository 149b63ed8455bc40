"""The search for layouts: best first is exhaustive, whoever works on it, and however often it is cut off."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_plans import FIX, answer, small

from stepsim.hardware.files import FileError
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.search import front_search, searching
from stepsim.sim.plan.search.alternatives import ALTERNATIVES
from stepsim.sim.plan.search.best_first import Ranked, best_first
from stepsim.sim.plan.search.front import front_of, hopeful
from stepsim.sim.plan.search.goodput import goodput_share
from stepsim.sim.plan.search.journal import Journal, key_of
from stepsim.sim.plan.search.judged import JudgedLayout, ReplayOf, refused
from stepsim.sim.plan.search.judging import Answered, Answering, Asked, Judging
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.plan.search.searching import LayoutSearch, Wishes
from stepsim.sim.plan.search.shown import layout_figures
from stepsim.sim.plan.search.sure import CONTENDERS, contenders
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import simulate

TIMES = st.floats(0.1, 10.0)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Values and bounds that are no larger; ties, infinite bounds (no candidates) and values are in it."""
    values = draw(st.lists(st.one_of(TIMES, st.sampled_from([1.0, 2.0, math.inf])), min_size=1, max_size=30))
    shares = draw(st.lists(st.floats(0.3, 1.0), min_size=len(values), max_size=len(values)))
    bounds = [min(value, 10.0) * share for value, share in zip(values, shares, strict=True)]
    for i in draw(st.sets(st.integers(0, len(values) - 1), max_size=3)):
        bounds[i] = math.inf
    return values, bounds


@given(spaces(), st.integers(1, 5), st.data())
def test_best_first_is_exhaustive_and_judges_no_more_than_it_must(
    space: tuple[list[float], list[float]], top: int, data: st.DataObject
) -> None:
    values, bounds = space
    open_ones = [i for i in range(len(values)) if bounds[i] < math.inf]
    first = data.draw(st.lists(st.sampled_from(open_ones), max_size=1)) if open_ones else []
    found = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, first=first)
    true = sorted((values[i], i) for i in open_ones if values[i] < math.inf)[:top]
    assert found.proven
    # Equal values may be ruled out by an equal bound: it is the values that are proven.
    assert [values[i] for i in found.best] == [value for value, _ in true]
    if len(true) == top:
        assert all(bounds[i] < true[-1][0] or i in first for i in found.value if i not in found.best)


@given(spaces(), st.integers(1, 5), st.data())
def test_bounds_that_are_tightened_on_the_way_find_the_same_by_fewer(
    space: tuple[list[float], list[float]], top: int, data: st.DataObject
) -> None:
    values, bounds = space
    share = st.floats(0.0, 1.0)
    tight = [data.draw(share) * min(value, 10.0) for value in values]  # some are no better than before
    asked: list[int] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        asked.extend(numbers)
        return [tight[i] for i in numbers]

    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        return (values[i] for i in numbers)

    plain = best_first(bounds, judge, top=top)
    found = best_first(bounds, judge, top=top, tighten=tighten)
    assert found.proven
    assert [values[i] for i in found.best] == [values[i] for i in plain.best]
    assert len(set(asked)) == len(asked)
    if len(found.best) == top:
        worst = values[found.best[-1]]
        known = [max(bound, other) for bound, other in zip(bounds, tight, strict=True)]
        assert all(known[i] < worst or i in found.best for i in found.value)


@given(spaces(), st.integers(1, 3), st.floats(1.0, 2.0))
@example(space=([1.0, 1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.5, 1.0, 2.0]), top=3, dearer=2.0)
def test_what_is_dear_to_know_is_asked_of_few(
    space: tuple[list[float], list[float]], top: int, dearer: float
) -> None:
    """``final`` values are larger, layout by layout: the best by them are found without asking all."""
    values, bounds = space
    true = {
        i: values[i] * (1 + (dearer - 1) * (i % 3) / 2) for i in range(len(values)) if bounds[i] < math.inf
    }
    asked = []

    def final(i: int, _: float) -> float:
        asked.append(i)
        return true[i]

    found = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, final=final)
    assert [true[i] for i in found.best] == sorted(v for v in true.values() if v < math.inf)[:top]
    assert len(set(asked)) == len(asked)


def test_an_interrupt_leaves_the_best_so_far() -> None:
    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        for i in numbers:
            if i == 2:
                raise KeyboardInterrupt
            yield 5.0 - i

    found = best_first([1.0, 2.0, 3.0, 4.0], judge, top=1)
    assert (found.best, found.proven, found.interrupted) == ((1,), False, True)


@given(st.lists(st.tuples(*(st.integers(0, 4),) * 3), min_size=1, max_size=25))
def test_a_front_holds_what_nothing_dominates(rows: list[tuple[int, int, int]]) -> None:
    costs = np.array(rows, dtype=np.float64)
    front = front_of(costs)
    dominated = [any((other <= row).all() and (other < row).any() for other in costs) for row in costs]
    assert {tuple(costs[i]) for i in front} == {tuple(costs[i]) for i in range(len(rows)) if not dominated[i]}
    assert len({tuple(costs[i]) for i in front}) == len(front)
    # A row is hopeful beside others exactly where none of them is as good everywhere.
    may_be = hopeful(costs, costs[:3])
    assert may_be.tolist() == [not any((one <= row).all() for one in costs[:3]) for row in costs]


@pytest.fixture(scope="module")
def exhaustive() -> dict[int, float]:
    """Step times of the whole small space, by number."""
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    fits = np.flatnonzero(among.fit_probability >= 0.9).tolist()
    return {i: brief_step(among.layouts.scenario_of(i)).step_time_s for i in fits}


@pytest.mark.slow
def test_the_proposed_are_the_best_of_all_that_fit(exhaustive: dict[int, float]) -> None:
    found = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    assert 20 < len(exhaustive) < 300
    assert found.certificate.optimal
    assert found.certificate.replayed < len(exhaustive)
    best = sorted(exhaustive.values())[:4]
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(best, rel=1e-9)
    assert found.choices[0].figures.step_time_s == pytest.approx(simulate(found.best).step_time_s, rel=1e-9)


@pytest.mark.slow
def test_many_short_replays_are_bounded_first_and_prove_the_same(
    exhaustive: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    for name, value in (("QUICKLY_TIGHTENED", 0), ("QUICK", float("inf")), ("MANY_NEAR", 1)):
        monkeypatch.setattr(searching, name, value)
    found = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    assert found.certificate.optimal
    assert found.certificate.replayed < before.certificate.replayed
    best = sorted(exhaustive.values())[:4]
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("software", ["torchtitan-2024", "deepspeed-zero3-2021"])
def test_a_twin_takes_the_same_step_and_the_same_memory(software: str) -> None:
    layouts = candidates_of(small(software=software), FIX, {}, lambda _: None)[0].layouts
    zero = layouts.columns["parallelism.zero"]
    twins = [(i, layouts.twin(i)) for i in range(len(layouts)) if layouts.twin(i) != i]
    assert all(1 <= zero[j] < zero[i] for i, j in twins)
    assert all(layouts.twin(j) == j for _, j in twins)
    assert twins or software == "deepspeed-zero3-2021"
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory) == (other.step_time_s, other.memory)


@pytest.mark.slow
def test_orders_of_ranks_that_place_all_groups_alike_are_twins() -> None:
    orders = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
    run, vary = small(cluster__gpus=32), {"parallelism.order": orders}
    layouts = candidates_of(run, {**FIX, "parallelism.zero": 1}, vary, lambda _: None)[0].layouts
    order, pp, dp = (layouts.columns[f"parallelism.{name}"] for name in ("order", "pp", "dp"))
    second = np.flatnonzero((order == orders[1]) & (pp > 1) & (dp > 1)).tolist()
    twins = [(i, layouts.twin(i)) for i in second if layouts.twin(i) != i]
    assert 0 < len(twins) < len(second)  # whole hosts in one place or the other, or parts of hosts
    assert all(order[j] == orders[0] and layouts.twin(j) == j for _, j in twins)
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory, one.parts) == (other.step_time_s, other.memory, other.parts)


@pytest.mark.slow
def test_what_is_expected_of_a_contender_is_near_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    workers = Local(Answering(ReplayOf()), 1)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=workers)
    search = LayoutSearch(among=among, wishes=Wishes(top=2), judging=judging)
    values = contenders(search, search.best(top=2).best)
    assert len(values) == CONTENDERS
    expected = [i for i in values if i not in judging.known]
    assert expected
    for i in expected:
        assert values[i] >= search.bound[i]
        assert values[i] == pytest.approx(next(search.values([i])), rel=0.05)


def test_any_layout_may_be_audited_those_with_short_replays_rather_than_others() -> None:
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    work, ranked = among.replayed_actions, Ranked(best=(0,), value={0: 1.0}, proven=True)

    def drawn(count: int) -> list[int]:
        wishes = Wishes(audit=count, fits=0.5)
        judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(_square, 1))  # type: ignore[arg-type]
        return LayoutSearch(among=among, wishes=wishes, judging=judging).drawn(ranked)

    every = drawn(len(among.layouts))
    assert len(every) == len(set(every)) > 20
    assert 0 not in every
    assert drawn(10) == drawn(10)
    assert set(drawn(10)) < set(every)
    assert work[drawn(len(every) // 3)].mean() < work[every].mean()


@pytest.mark.slow
def test_the_front_is_that_of_all_that_fit(exhaustive: dict[int, float]) -> None:
    found = plan(small(), fix=FIX, top=1, audit=0, jobs=1)
    assert found.front_whole
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    near = [i for i, step_s in exhaustive.items() if step_s <= 1.5 * min(exhaustive.values())]
    free = np.floor(among.headroom_bytes / among.bounds.capacity_bytes * 40)
    costs = np.array([[exhaustive[i], -free[i]] for i in near])
    told = np.array([(point.step_time_s, -free[point.number]) for point in found.front])
    assert told == pytest.approx(costs[front_of(costs)], rel=1e-9)


@pytest.mark.slow
def test_the_front_waits_for_no_long_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(longest: float) -> tuple[bool, int]:
        monkeypatch.setattr(front_search, "MOST_ACTIONS", longest)
        among, _ = candidates_of(small(), FIX, {}, lambda _: None)
        workers = Local(Answering(ReplayOf()), 1)
        judging = Judging(scenario_of=among.layouts.scenario_of, workers=workers)
        search = LayoutSearch(among=among, wishes=Wishes(top=1), judging=judging)
        search.best(top=1)
        found, whole = front_search.front(search)
        assert found
        return whole, len(judging.known)

    none, nothing = searched(0.0)
    _, some = searched(np.inf)
    assert not none
    assert nothing < some


def test_replays_that_are_not_shortened_are_longer() -> None:
    """Of many microbatches: schedules that are never steady, and shards that move beside microbatches."""
    run = small(software="torchtitan-2024").with_({"training.global_batch": 512})
    fix = {**FIX, "parallelism.pp": 2, "parallelism.tp": 1, "parallelism.sequence_parallel": False}
    fix |= {"training.micro_batch": 1, "parallelism.vpp": 1}
    vary: dict[str, list[Any]] = {"schedule": ["1f1b", "zb-h1"], "parallelism.zero": [1, 2]}
    among, _ = candidates_of(run, fix, vary, lambda _: None)
    columns, work = among.layouts.columns, among.replayed_actions
    steady = (columns["schedule"] == "1f1b") & (columns["parallelism.zero"] == 1)
    assert steady.any()
    assert (~steady).any()
    assert work[steady].max() < work[~steady].min()


@pytest.mark.slow
def test_the_own_layout_is_always_judged() -> None:
    """Also where it is no choice: what is fixed leaves it out, or it does not fit."""
    fixed = plan(small(), fix={**FIX, "parallelism.tp": 1}, audit=0, jobs=1)
    mine = fixed.lost[0]
    assert mine.name == "your layout"
    step_s = brief_step(small()).step_time_s
    assert mine.factor == pytest.approx(step_s / fixed.choices[0].figures.step_time_s, rel=1e-9)
    free = plan(small(), fix=FIX, audit=0, jobs=1)
    assert free.lost[0].settings["parallelism.tp"] == 2


@pytest.mark.slow
def test_one_worker_and_two_give_the_same_answer() -> None:
    assert answer(plan(small(), fix=FIX, audit=4, jobs=1)) == answer(plan(small(), fix=FIX, audit=4, jobs=2))


def test_workers_in_a_pool_give_results_in_order_and_stop_early() -> None:
    workers = Local(_square, 2, after_s=0.0)
    try:
        results = workers.run(range(50))
        assert [next(results) for _ in range(7)] == [n * n for n in range(7)]
        results.close()
        assert list(workers.run(range(5))) == [0, 1, 4, 9, 16]
    finally:
        workers.close()


def _square(number: int) -> int:
    return number * number


def test_a_ray_cluster_of_two_nodes_gives_the_same_answer() -> None:
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        spread = plan(small(), fix=FIX, audit=2, ray=True)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert answer(spread) == answer(plan(small(), fix=FIX, audit=2, jobs=1))


class Counting:
    """A replay that counts what it was asked for, and is killed after ``most``; it is told later of what."""

    def __init__(self, most: int = 10**9) -> None:
        self.seen: list[int] = []
        self.most = most

    def of(self, *replay_and_layouts: Any) -> Counting:
        self.answering = Answering(*replay_and_layouts)
        return self

    def __call__(self, asked: Asked) -> Answered:
        if asked.number is not None and not asked.bounded:
            if len(self.seen) >= self.most:
                raise RuntimeError("killed")
            self.seen.append(asked.number)
        return self.answering(asked)


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.jsonl"
    whole = plan(small(), fix=FIX, audit=4, jobs=1)
    kills = [len(whole.replays) // 2, 10**9]
    workers = [Counting(most) for most in kills]
    waiting = iter(workers)
    monkeypatch.setattr("stepsim.sim.plan.search.plan.Answering", lambda *of: next(waiting).of(*of))
    with pytest.raises(RuntimeError, match="killed"):
        plan(small(), fix=FIX, audit=4, jobs=1, journal=path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key":"cut o')  # as the kill may leave it
    resumed = plan(small(), fix=FIX, audit=4, jobs=1, journal=path)
    assert answer(resumed) == answer(whole)
    assert resumed.remembered == kills[0]
    twice = set(workers[0].seen) & set(workers[1].seen)
    assert not twice
    assert len(workers[0].seen) + len(workers[1].seen) == len(whole.replays)


def test_what_a_pool_did_ahead_is_kept_but_not_told() -> None:
    scenario = small()
    judging = Judging(scenario_of=lambda _: scenario, workers=Local(Answering(Instant()), 2, after_s=0.0))
    results = judging(range(20))
    first = next(results)
    results.close()
    judging.workers.close()
    assert list(judging.known) == [0]
    assert first.step_time_s == 1.0


class Instant:
    """A replay of no work, and a bound below it."""

    def __call__(self, scenario: Scenario) -> JudgedLayout:
        return JudgedLayout(step_time_s=1.0, peak_memory_bytes=2.0, capacity_bytes=3.0)

    def floor_s(self, scenario: Scenario) -> float:
        return 0.5


@settings(max_examples=20)
@given(TIMES, TIMES)
def test_journals_keep_floats_and_refusals(step_s: float, peak: float) -> None:
    judged = JudgedLayout(step_time_s=step_s, peak_memory_bytes=peak, capacity_bytes=80e9)
    assert JudgedLayout.of_row(json.loads(json.dumps(judged.to_row()))) == judged
    row = json.loads(json.dumps(refused("because").to_row()))
    assert (JudgedLayout.of_row(row).refused, JudgedLayout.of_row(row).step_time_s) == ("because", math.inf)


def test_a_key_hangs_on_all_that_a_prediction_reads(tmp_path: Path) -> None:
    base = small()
    assert key_of(base) == key_of(small(name="other"))
    profile = tmp_path / "own.yaml"
    profile.write_text("profile: 1\ngpu: A100-SXM4-80GB\nclock_fraction: 0.9\n", encoding="utf-8")
    others = [
        small(parallelism__tp=4),
        small(cluster__what_if={"nic": 2}),
        small(software={"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 1e-6}}),
    ]
    keys = {key_of(one) for one in [base, *others]}
    assert len(keys) == 4


def test_other_files_are_no_journals(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text('{"model": 1}\n', encoding="utf-8")
    with pytest.raises(FileError) as error:
        Journal(path=path)
    assert error.value.file == str(path)
    assert path.read_text(encoding="utf-8") == '{"model": 1}\n'


PRICED = {"cluster__price_per_gpu_hour": 2.0, "training__tokens": 1e9}


@pytest.mark.slow
def test_objectives_rank_by_what_they_name() -> None:
    """Cheapest and fastest differ where the number of GPUs is free."""
    vary = {"cluster.gpus": [2, 8]}
    fast = plan(small(**PRICED), fix=FIX, vary=vary, top=1, audit=3, jobs=1)
    cheap = plan(small(**PRICED), fix=FIX, vary=vary, top=1, objective="tokens-per-dollar", audit=3, jobs=1)
    assert fast.choices[0].gpus == 8
    assert cheap.choices[0].gpus == 2
    assert cheap.choices[0].price is not None
    assert fast.choices[0].price is not None
    assert cheap.choices[0].price < fast.choices[0].price
    assert {point.gpus for point in cheap.front} == {2, 8}


@pytest.mark.slow
def test_limits_are_met_or_nothing_is_proposed() -> None:
    days = plan(small(**PRICED), fix=FIX, top=1, audit=0, jobs=1).choices[0].days
    assert days is not None
    met = plan(small(**PRICED), fix=FIX, audit=0, jobs=1, deadline_s=days * 86400 * 1.02)
    assert met.choices
    assert all(one.days is not None and one.days <= 1.02 * days for one in met.choices)
    missed = plan(small(**PRICED), fix=FIX, audit=0, jobs=1, deadline_s=days * 86400 * 0.9)
    assert not missed.choices
    assert missed.certificate.fit > 0
    assert missed.nearest is not None
    assert 1 < missed.nearest[1] <= 1 / 0.9 * (1 + 1e-9)
    assert met.nearest is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"objective": "tokens-per-dollar"}, "cluster.price_per_gpu_hour"),
        ({"objective": "days"}, "training.tokens"),
        ({"objective": "goodput"}, "faults"),
        ({"deadline_s": 1e6}, "training.tokens"),
    ],
)
def test_what_an_objective_needs_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(NotSupported) as error:
        plan(small(), fix=FIX, jobs=1, **asked)
    assert error.value.field == field


def test_one_price_for_two_gpus_is_refused() -> None:
    vary = {"cluster.gpu": ["A100-SXM4-80GB", "A100-SXM4-40GB"]}
    with pytest.raises(NotSupported) as error:
        plan(small(**PRICED), fix=FIX, vary=vary, objective="tokens-per-dollar", jobs=1)
    assert error.value.field == "cluster.price_per_gpu_hour"


@pytest.mark.slow
def test_a_price_list_prices_every_gpu_that_is_tried() -> None:
    gpus = ["H100-SXM5-80GB", "H200-SXM-141GB"]
    base = {"cluster__price_list": "median", "training__tokens": 1e9}
    asked: dict[str, Any] = {
        "fix": FIX, "objective": "tokens-per-dollar", "top": 1, "audit": 0, "jobs": 1,
    }  # fmt: skip
    found = plan(small(**base), vary={"cluster.gpu": gpus}, **asked)
    own = [plan(small(cluster__gpu=gpu, **base), **asked).choices[0].price for gpu in gpus]
    assert own[0] != own[1]
    assert found.choices[0].price == min(price for price in own if price is not None)


def test_fields_that_are_none_are_named() -> None:
    with pytest.raises(ScenarioError) as error:
        plan(small(), fix={"parallelism.tpp": 4}, jobs=1)
    assert error.value.problems[0].path == "parallelism.tpp"


def test_nothing_fits_is_an_answer() -> None:
    found = plan(small(training__seq_length=1 << 22, training__global_batch=8), fix=FIX, jobs=1)
    assert not found.choices
    assert found.certificate.fit == 0
    assert found.smallest is not None
    assert found.smallest[1] > found.smallest[2]
    with pytest.raises(ValueError, match="small"):
        _ = found.best


@pytest.mark.slow
def test_goodput_is_the_step_over_the_share_of_time_that_counts() -> None:
    faults = {
        "faults": {"processes": [{"kind": "gpu_fatal", "rate_per_unit_day": 0.5}]},
        "checkpoint": {"storage": {"every": "30 min", "mode": "blocking", "stall": "1 min", "load": "30 s"}},
        "recovery": {"spares": {"warm": 1, "cold": 1}},
        "run": {"horizon": "5 d"},
    }
    scenario = small(**faults)
    found = plan(scenario, fix=FIX, top=2, objective="goodput", audit=2, jobs=1)
    for choice in found.choices:
        step_s = choice.figures.step_time_s
        share = goodput_share(choice.scenario, step_s)
        assert 0.5 < share < 1.0
        assert choice.value == pytest.approx(step_s / share, rel=1e-9)
    assert found.choices[0].value <= found.choices[1].value
    assert found.certificate.optimal


def test_alternatives_are_what_they_are_called() -> None:
    among, _ = candidates_of(small(), {"parallelism.cp": 1}, {}, lambda _: None)
    masks = {one.name: one.of(among) for one in ALTERNATIVES}
    tp, pp = among.layouts.columns["parallelism.tp"], among.layouts.columns["parallelism.pp"]
    assert (masks["no tensor parallelism"] == (tp == 1)).all()
    assert (masks["tensor parallelism over a whole host"] == (tp == 8)).all()
    assert (masks["no pipeline"] == (pp == 1)).all()
    (guide,) = np.flatnonzero(masks["smallest model parallelism that fits (Megatron's guide)"])
    assert tp[guide] * pp[guide] == 1  # all of it fits into one GPU


@pytest.mark.slow
def test_why_names_what_takes_longer() -> None:
    found = plan(small(), fix=FIX, audit=0, jobs=1)
    best = found.choices[0].figures
    for one in found.lost:
        slow = layout_figures(small().with_(dict(one.settings)))
        assert slow.step_time_s / best.step_time_s == pytest.approx(one.factor, rel=1e-9)
        largest = max(slow.path, key=lambda name: slow.path[name] - best.path.get(name, 0.0))
        assert one.why.startswith(f"{largest} +")


@pytest.mark.skipif(sys.platform != "linux", reason="there is no pool elsewhere")
def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from stepsim.sim.plan.search.workers import Local
def note(number):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(0.2)
for _ in Local(note, 2, after_s=0.0).run(range(100)):
    pass
"""
    with subprocess.Popen([sys.executable, "-c", code]) as running:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.kill()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, workers))


def _runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
