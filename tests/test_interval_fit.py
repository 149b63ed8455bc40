"""What intervals widen by is fitted on runs that were left out, and the shipped files are what that gives."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml
from made_doubts import doubt
from typer.testing import CliRunner

from stepsim.calibration.fit.steps.interval_terms import (
    StepRow,
    fit_interval_terms,
    learnt_terms,
    steps_text,
    without_each_source,
)
from stepsim.calibration.validation.regions.deviations_file import deviations_text
from stepsim.cli.main import app
from stepsim.hardware.deviations import deviations_document, measured_collectives, shipped_deviations
from stepsim.sim.evidence.interval import REACHES, interval_of, parts_of, reach_of
from stepsim.sim.evidence.interval_slowest import SLOWEST
from stepsim.sim.evidence.measured_steps import (
    EXPERTS,
    WAITS,
    Regime,
    RoutedExperts,
    measured_steps,
    regime_of,
    spanning,
    steps_from_document,
)
from stepsim.sim.lowering.lower import lower
from stepsim.sim.result.step import IntervalPart
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster

NONE = RoutedExperts()


def made_rows(
    seed: int = 1, many: int = 240, experts_sigma: float = 0.2, waits: float = 0.0
) -> list[StepRow]:
    """Runs of thirty sources with normal errors: 0.05 each, more with experts, and above for every doubling
    of GPUs."""
    draw = Random(seed)
    rows = []
    for n in range(many):
        experts = RoutedExperts(share=1.0) if n % 4 == 0 else RoutedExperts()
        fitted = n // 6 % 3 == 0
        regime = Regime(software=f"s{n % 5}", gpu="H100", precision="bf16", sequence=4096, gpus=2 ** (n % 6))
        sigma = math.hypot(0.05, experts_sigma * experts.share)
        error = draw.gauss(0.0, sigma)
        if error > 0:
            error *= math.hypot(sigma, 0.5 * waits * math.log2(regime.gpus)) / sigma
        made = doubt(regime, experts=experts, network=0.5)
        rows.append(
            StepRow(
                family=f"f{n // 2}",
                source=f"source {n // 2 % 30}",
                error=error,
                doubt=made,
                fitted=fitted,
                outside=False,
            )
        )
    return rows


def test_the_fit_finds_what_experts_add_and_holds_nine_in_ten_of_unseen_runs() -> None:
    rows = made_rows()
    steps = fit_interval_terms(rows)
    assert steps.terms["experts"].sigma == pytest.approx(0.2, rel=0.4)
    assert learnt_terms(made_rows(experts_sigma=0.02)).terms["experts"].sigma < 0.1
    unseen = [row for row in rows if not row.fitted]
    held = [
        interval.low_s <= math.exp(row.error) <= interval.high_s
        for row in unseen
        for interval in [interval_of(1.0, row.doubt, steps)]
    ]
    assert 0.9 <= sum(held) / len(held) <= 0.96  # of thirty sources 0.93, so that it is 0.9 of one more
    assert 0.8 <= steps.left_out["medium trust"] <= 1.0


def test_names_of_sources_and_the_order_of_runs_change_nothing() -> None:
    rows = made_rows(many=90)
    once = learnt_terms(rows)
    renamed = [
        replace(row, family=f"x{hash_of(row.family)}", source=f"y{hash_of(row.source)}") for row in rows
    ]
    Random(3).shuffle(renamed)
    again = learnt_terms(renamed)
    assert again.families == once.families
    assert again.quantile == pytest.approx(once.quantile, rel=0.02)
    for name, one in once.terms.items():
        assert again.terms[name].sigma == pytest.approx(one.sigma, rel=0.05), name


def hash_of(name: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(name)) % 9973


def test_the_fit_finds_what_many_gpus_wait_for_one_another() -> None:
    some, none = (learnt_terms(made_rows(waits=waits)) for waits in (0.1, 0.0))
    assert some.terms[WAITS].sigma == pytest.approx(0.1, rel=0.4)
    assert none.terms[WAITS].sigma < 0.4 * some.terms[WAITS].sigma


def test_runs_that_are_slower_than_told_widen_intervals_above() -> None:
    """The same errors, and once with those of every fifth source slower."""
    rows = made_rows()
    slower = [
        replace(row, error=abs(row.error) + 0.1) if int(row.source.split()[1]) % 5 == 0 else row
        for row in rows
    ]
    even, late = learnt_terms(rows), learnt_terms(slower)
    assert even.quantile == pytest.approx(even.quantile_below, rel=0.15)
    assert late.quantile > 1.1 * late.quantile_below


def test_one_sweep_of_many_families_is_no_witness_of_each() -> None:
    """Thirty sources whose steps wait, and one of a hundred and twenty families whose steps do not."""
    rows = made_rows(waits=0.1)
    sweep = [
        replace(row, family=f"of the sweep {place}", source="sweep", doubt=replace(row.doubt, experts=NONE))
        for place, row in enumerate(made_rows(seed=2, many=120, experts_sigma=0.0))
    ]
    found, bare = (learnt_terms(some).terms[WAITS].sigma for some in (rows + sweep, rows))
    assert found > 0.9 * bare


def test_what_the_slowest_gpu_explains_no_wait_does() -> None:
    """The same errors, once with the cause that they are of."""

    def explained(row: StepRow) -> StepRow:
        sigma = 0.05 * math.log2(row.doubt.regime.gpus)
        part = IntervalPart(name="made", share=1.0, sigma=sigma, source="made", kind=SLOWEST)
        return replace(row, doubt=replace(row.doubt, causes=(*row.doubt.causes, part)))

    rows = made_rows(waits=0.1)
    bare, known = learnt_terms(rows), learnt_terms([explained(row) for row in rows])
    assert known.terms[WAITS].sigma < 0.5 * bare.terms[WAITS].sigma
    for name in (*EXPERTS, "software"):
        assert known.terms[name].sigma == pytest.approx(bare.terms[name].sigma, rel=0.08), name


def test_what_reaches_a_step_that_may_be_another_explains_no_error() -> None:
    made = [IntervalPart(name=kind, share=1.0, sigma=0.2, source="made", kind=kind) for kind in REACHES]
    rows = made_rows(waits=0.1, many=40)
    reaching = [replace(row, doubt=replace(row.doubt, causes=(*row.doubt.causes, *made))) for row in rows]
    found, bare = learnt_terms(reaching), learnt_terms(rows)
    assert (found.weights, found.terms) == (bare.weights, bare.terms)
    assert (found.quantile, found.quantile_below) == (bare.quantile, bare.quantile_below)


def test_a_source_is_judged_by_terms_of_all_others() -> None:
    rows = made_rows(many=90)
    odd = [replace(row, error=row.error + 5.0) if row.source == "source 0" else row for row in rows]
    known, changed = (dict(without_each_source(one)) for one in (rows, odd))
    assert set(known) == {row.source for row in rows}
    assert [source for source in known if known[source] == changed[source]] == ["source 0"]


def test_nothing_is_learnt_of_one_source() -> None:
    with pytest.raises(ValueError, match="two sources"):
        fit_interval_terms([row for row in made_rows(many=30) if row.source == "source 0"])
    done = CliRunner().invoke(app, ["calibrate", "residuals"])
    assert done.exit_code == 2


def test_the_shipped_files_are_what_the_command_writes() -> None:
    package = Path(__file__).parents[1]
    steps = measured_steps()
    text = (package / "sim" / "evidence" / "measured_steps.yaml").read_text(encoding="utf-8")
    assert steps_text(steps) == text
    assert steps_from_document(yaml.safe_load(text)) == steps
    text = (package / "hardware" / "deviations.yaml").read_text(encoding="utf-8")
    assert deviations_text(deviations_document()) == text


@pytest.mark.slow
def test_the_shipped_families_are_those_of_the_measured_steps(shared: Path) -> None:
    from stepsim.calibration.cases.case import read_cases
    from stepsim.calibration.cases.to_scenario import to_scenario
    from stepsim.sim.scenario.refusal import NotSupported

    found: dict[Regime, Scenario] = {}
    shipped = measured_steps().families
    for path in sorted((shared / "data").glob("**/cases/*.yaml")):
        for case in read_cases(path):
            if case.trust == "high" and case.measured.step_time_s is not None:
                scenario = to_scenario(case)
                found.setdefault(regime_of(scenario), scenario)
    while lacking := set(spanning(found)) - set(shipped):  # of runs that are refused nothing was learnt
        for regime in lacking:
            scenario = found.pop(regime)
            with pytest.raises(NotSupported):
                lower(scenario, build_cluster(scenario))
    assert shipped == tuple(spanning(found))


@pytest.mark.slow
def test_the_shipped_growth_is_what_regions_left_out_give(shared: Path) -> None:
    from stepsim.calibration.readers.measurements import read_measurements
    from stepsim.calibration.validation.regions.kernel_regions import kernel_growth

    points = [
        item
        for item in read_measurements([shared / "data" / "kernels.yaml"])
        if item.operation == "attention"
    ]
    for name, one in kernel_growth(points).items():
        assert one.sigma == pytest.approx(shipped_deviations()[name].sigma, rel=0.02), name
        assert one.source == shipped_deviations()[name].source


def test_the_shipped_range_of_collectives_is_that_of_the_logs(shared: Path) -> None:
    from stepsim.calibration.validation.regions.collective_regions import measured_range
    from stepsim.cli.collective_logs import observed, read_logs

    folders = (shared / "data" / "nccl_logs", shared / "data" / "second" / "nccl_logs")
    logs = read_logs(sorted(path for folder in folders for path in folder.glob("*.txt")))
    found, shipped = measured_range(observed(logs.cases, logs.unstated)), measured_collectives()
    assert found["domains"] == shipped.domains
    assert found["ranks_in_a_domain"] == shipped.ranks_in_a_domain
    assert tuple(found["architectures"]) == shipped.architectures


def test_standard_deviations_are_those_of_a_normal_distribution() -> None:
    """Of normal errors each term is as large as they are, although terms are found by a distribution with
    heavy tails."""
    steps = learnt_terms(made_rows(many=600))
    assert steps.terms["experts"].sigma == pytest.approx(0.2, rel=0.15)
    below, above = reach_of(parts_of(doubt(steps.families[0]), steps), steps)
    assert below == pytest.approx(above, rel=0.1)  # normal errors lie to neither side
    assert 0.8 * 1.645 * 0.05 < below < 1.3 * 1.645 * 0.05


def test_a_source_of_many_families_has_no_more_say_than_some_of_few() -> None:
    """Wild errors of every fourth family: in one source of many, or in as many sources of few."""
    rows = [row for row in made_rows(many=300) if not row.doubt.experts.share]
    wild = [replace(row, error=4 * row.error) if n % 4 == 0 else row for n, row in enumerate(rows)]
    one = [replace(row, source="one") if n % 4 == 0 else row for n, row in enumerate(wild)]
    assert learnt_terms(one).quantile < learnt_terms(wild).quantile
