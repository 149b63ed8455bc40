"""How sure a plan is: fit probabilities by residuals, and which layout is best under constants drawn anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t
from small_plans import FIX, answer, small

from stepsim.calibration.fit.layout_spread import SweepRow, fit_layout_spread, layouts_text
from stepsim.calibration.fit.memory_spread import (
    MemoryRow,
    fit_memory_spread,
    memory_text,
    probabilities_left_out,
    probabilities_of_strangers,
)
from stepsim.sim.brief.memory import memory_by_order
from stepsim.sim.evidence.measured_layouts import layouts_from_document
from stepsim.sim.evidence.measured_memory import (
    below,
    fit_probability,
    measured_memory,
    memory_from_document,
    room_of,
)
from stepsim.sim.plan.certainty import TIED, Contender, certainty_of
from stepsim.sim.plan.certainty import fit_probability as fit_probabilities
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.plan.space import space_of
from stepsim.sim.result.step import LENGTHENS, SHORTENS, IntervalPart

LAYOUT = {"parallelism.tp": 1, "parallelism.pp": 1, "training.micro_batch": 1}


def part(name: str, share: float, sigma: float) -> IntervalPart:
    return IntervalPart(name=name, share=share, sigma=sigma, source="made up", kind="kernels")


def waits(share: float, sigma: float) -> IntervalPart:
    return IntervalPart(name="waits", share=share, sigma=sigma, source="made up", kind=LENGTHENS[0])


def faster(share: float, sigma: float) -> IntervalPart:
    return IntervalPart(name="faster", share=share, sigma=sigma, source="made up", kind=SHORTENS[0])


def contender(value: float, *parts: IntervalPart, **fields: Any) -> Contender:
    changed = {name.replace("__", "."): field for name, field in fields.items()}
    return Contender(value=value, parts=parts, settings=LAYOUT | changed)


@given(st.floats(0.01, 0.4), st.floats(1.01, 2.0), st.floats(0.01, 1.0))
def test_what_only_lengthens_never_makes_the_layout_that_waits_longer_the_best(
    share: float, more: float, sigma: float
) -> None:
    found = certainty_of([contender(1.0, waits(share, sigma)), contender(1.0, waits(more * share, sigma))])
    assert found.probability_best == (1.0, 0.0)
    assert found.expected_regret[0] == 0.0 < found.expected_regret[1]


@given(st.floats(0.01, 0.4), st.floats(1.01, 2.0), st.floats(0.01, 1.0))
def test_what_only_shortens_never_makes_the_layout_that_it_shortens_less_the_best(
    share: float, more: float, sigma: float
) -> None:
    found = certainty_of([contender(1.0, faster(more * share, sigma)), contender(1.0, faster(share, sigma))])
    assert found.probability_best == (1.0, 0.0)
    assert found.expected_regret[0] == 0.0 < found.expected_regret[1]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_the_closed_form_is_students_t(deviations: list[float]) -> None:
    assert below(np.array(deviations)) == pytest.approx(t.cdf(deviations, 4), abs=1e-12)


@given(
    st.sampled_from([*measured_memory().frameworks, "of nobody"]),
    st.floats(-2, 2),
    st.floats(0, 0.5),
    st.floats(0, 1),
)
def test_more_room_never_fits_worse(framework: str, room: float, more: float, moving: float) -> None:
    fits = measured_memory().fits
    assert 0 <= fits(framework, room, moving) <= fits(framework, room + more, moving) <= 1


@given(
    st.floats(-0.3, 0.3), st.floats(-0.5, 0.5), st.floats(0.0, 1.0), st.floats(0.0, 0.1), st.floats(0.0, 0.2)
)
def test_half_of_the_runs_fit_where_the_room_is_what_they_need(
    shift: float, more: float, moving: float, margin: float, doubt: float
) -> None:
    """Their shift, what comes and goes, and the margin; one spread more room is Student's t at one, where
    the margin is known, and less by as much as it is in doubt."""
    entry = {"shift": shift, "moving": more, "spread": 0.1, "margin": margin, "source": "made"}
    made = memory_from_document(
        {"frameworks": {"mine": entry | {"doubt": 0.0}}, "other": entry | {"doubt": doubt}}
    )
    needed = shift + more * (moving - 0.5) + margin
    for name, spread in (("mine", 0.1), ("of nobody", math.hypot(0.1, doubt))):
        assert made.fits(name, needed, moving) == pytest.approx(0.5)
        assert made.fits(name, needed + 0.1, moving) == pytest.approx(t.cdf(0.1 / spread, 4))


def test_a_space_and_a_run_have_the_same_fit_probability() -> None:
    base = small(
        model__num_layers=40,
        model__hidden_size=5120,
        model__num_attention_heads=40,
        model__ffn_hidden_size=20480,
        training__seq_length=4096,
    )
    space = space_of(base, fix={"parallelism.cp": 1, "parallelism.vpp": 1, "training.recompute": "none"})
    found = fit_probabilities(base, screen(space))
    assert 0.02 < np.mean(found > 0.5) < 0.98
    for number in range(0, len(space), max(1, len(space) // 25)):
        stages = memory_by_order(space.scenario_of(number)).high
        assert found[number] == pytest.approx(fit_probability(base.software.name, stages), abs=1e-9)


def test_what_is_alike_errs_alike() -> None:
    """One curve, any error of it: the faster of two layouts of one field is the best for certain."""
    gemm = part("GEMM", 0.7, 0.5)
    sure = certainty_of([contender(1.0, gemm), contender(1.01, gemm)])
    assert sure.probability_best == (1.0, 0.0)
    assert sure.expected_regret == pytest.approx((0.0, 0.01))
    assert sure.ties == (0,)


def test_what_is_not_alike_does_not() -> None:
    one, two = part("GEMM", 0.7, 0.1), part("communication, network", 0.7, 0.1)
    sure = certainty_of([contender(1.0, one), contender(1.01, two)])
    assert 0.4 < sure.probability_best[0] < 0.6
    assert sure.ties == (0, 1)


def test_the_more_fields_differ_the_less_is_sure() -> None:
    near = certainty_of([contender(1.0), contender(1.02, parallelism__tp=2)])
    far = certainty_of(
        [contender(1.0), contender(1.02, parallelism__tp=2, parallelism__pp=2, training__micro_batch=2)]
    )
    assert 0.5 < far.probability_best[0] < near.probability_best[0] < 1
    assert near.expected_regret[0] < far.expected_regret[0]


@given(st.permutations(range(6)))
def test_the_order_of_contenders_does_not_matter(order: list[int]) -> None:
    every = [
        contender(1 + 0.01 * n, part("GEMM", 0.1 * n, 0.05), parallelism__tp=2**n, parallelism__dp=n)
        for n in range(6)
    ]
    whole, mixed = certainty_of(every), certainty_of([every[n] for n in order])
    assert mixed.probability_best == tuple(whole.probability_best[n] for n in order)
    assert mixed.expected_regret == tuple(whole.expected_regret[n] for n in order)
    assert {order[place] for place in mixed.ties} == set(whole.ties)
    assert sum(whole.probability_best) == pytest.approx(1)
    assert sum(whole.probability_best[place] for place in whole.ties) >= TIED


def test_a_plan_says_how_sure_it_is() -> None:
    found = plan(small(), fix=FIX, top=3, jobs=1, audit=0)
    for choice in found.choices:
        assert choice.probability_best is not None
        assert choice.expected_regret is not None
        assert 0 <= choice.probability_best <= 1
        assert choice.expected_regret >= 0
    assert found.choices[0].settings in found.tied
    assert answer(plan(small(), fix=FIX, top=3, jobs=2, audit=0)) == answer(found)


def drawn_rows(
    shift: float, spread: float, many: int, *, margin: float = 0.0, framework: str = "one"
) -> list[MemoryRow]:
    """Runs whose true peaks are so distributed; half of those that ran were measured."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(many):
        room, error = rng.uniform(-0.4, 0.4), shift + spread * rng.standard_t(4)
        ran = error + margin <= room
        told = error if ran and number % 2 else None
        rows.append(
            MemoryRow(
                family=f"{framework}{number}",
                framework=framework,
                room=room,
                moving=0.5,
                error=told,
                ran=bool(ran),
            )
        )
    return rows


def test_runs_that_were_too_large_count() -> None:
    """Measured runs alone are those that ran: their mean error is far below the true one."""
    rows = drawn_rows(0.05, 0.05, 1500)
    measured = [row.error for row in rows if row.error is not None]
    found = fit_memory_spread(rows).frameworks["one"]
    assert np.mean(measured) < 0.04
    assert found.shift + found.margin == pytest.approx(0.05, abs=0.02)
    assert found.spread == pytest.approx(0.05, rel=0.25)


def test_margins_are_a_frameworks_own_where_its_failures_tell_them() -> None:
    """Where none is told, the margin lies between those that are, and is in doubt."""
    silent = [row for row in drawn_rows(0.0, 0.03, 400, framework="silent") if row.ran]
    tight, wide = (drawn_rows(0.0, 0.03, 400, margin=m, framework=str(m)) for m in (0.01, 0.12))
    found = fit_memory_spread([*tight, *wide, *silent])
    assert found.frameworks["0.01"].margin < 0.03
    assert found.frameworks["0.12"].margin == pytest.approx(0.12, abs=0.02)
    assert found.frameworks["0.01"].doubt == found.frameworks["0.12"].doubt == 0.0
    for one in (found.frameworks["silent"], found.other):
        assert 0.01 < one.margin < 0.12
        assert one.doubt > 0.03


def test_strangers_are_told_by_others_alone() -> None:
    """A framework that is left out is any other; of one that reports no failure nothing is told."""
    silent = [row for row in drawn_rows(0.0, 0.03, 60, framework="silent") if row.ran]
    one, two = (drawn_rows(0.0, 0.03, 60, margin=m, framework=str(m)) for m in (0.01, 0.12))
    found = probabilities_of_strangers([*one, *two, *silent])
    without = fit_memory_spread([*two, *silent])
    assert found[: len(one)] == [without.other.fits(row.room, row.moving) for row in one]
    assert all(map(math.isnan, found[len(one) + len(two) :]))
    assert without.other.doubt == pytest.approx(0.05)  # one alone does not say how frameworks differ


@pytest.mark.slow
def test_probabilities_left_out_are_as_often_right() -> None:
    rows = drawn_rows(-0.03, 0.08, 1200, margin=0.03)
    found = np.array(probabilities_left_out(rows))
    ran = np.array([row.ran for row in rows])
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.0)):
        own = (found >= low) & (found <= high)
        assert ran[own].mean() == pytest.approx(found[own].mean(), abs=0.06)


def test_a_spread_without_measured_peaks_is_refused() -> None:
    ran = MemoryRow(family="a", framework="one", room=0.1, moving=0.5, error=None, ran=True)
    with pytest.raises(ValueError, match="measured peak"):
        fit_memory_spread([ran] * 20)
    assert all(map(math.isnan, probabilities_left_out([ran] * 20)))


def test_that_a_run_ran_says_nothing_where_failures_are_not_told() -> None:
    rows = drawn_rows(0.0, 0.05, 200)
    others = [
        MemoryRow(family=f"b{n}", framework="two", room=-0.5, moving=0.5, error=None, ran=True)
        for n in range(50)
    ]
    assert fit_memory_spread(rows + others).frameworks == fit_memory_spread(rows).frameworks


def test_files_are_read_as_they_were_written() -> None:
    memory = fit_memory_spread(drawn_rows(0.0, 0.05, 200))
    assert memory_from_document(yaml.safe_load(memory_text(memory))) == memory


def sweep_rows(sigma: float) -> list[SweepRow]:
    rng = np.random.default_rng(5)
    size = [{value: sigma / 2**0.5 * rng.standard_t(4) for value in range(40)} for _ in range(3)]
    rows = []
    for _ in range(40):
        values = [int(rng.integers(0, 40)) for _ in range(3)]
        fields = dict(zip(LAYOUT, values, strict=True))
        error = sum(size[place][value] for place, value in enumerate(values))
        rows.append(SweepRow(sweep="one", layout=fields, predicted_s=1.0, error=error, parts=()))
    return rows


def test_the_spread_of_a_field_is_found_again() -> None:
    found = fit_layout_spread(sweep_rows(0.04))
    assert found.field_sigma == pytest.approx(0.04, rel=0.35)
    assert layouts_from_document(yaml.safe_load(layouts_text(found))) == found


def test_the_fullest_rank_decides() -> None:
    stages = memory_by_order(small()).high
    room, moving = room_of(stages)
    assert math.exp(-room) == max(stage.needed_bytes / stage.capacity_bytes for stage in stages)
    assert 0 < moving < 1
