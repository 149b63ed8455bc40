"""Fits of collectives: known constants are found again, physics bounds them, files keep their text."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from stepsim.calibration.fit.collective_constants import (
    PARAMETERS,
    Observed,
    constant_intervals,
    constants_of,
    edited_text,
    fit_constants,
    fits_without,
)
from stepsim.calibration.fit.collectives import SizeSweep, ceiling_bytes_per_s, fit_curve, pooled
from stepsim.calibration.validation.collectives import CollectiveCase, compare, errors_by_size, predicted_s
from stepsim.cli.collective_logs import observed, read_logs, sweep_of
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.collectives import (
    collective_constants,
    collectives_document,
    collectives_text,
    constants_from_document,
)
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.network.collectives import collective_curve
from stepsim.sim.network.group_placement import GroupPlacement

SIZES = tuple(8.0 * 2**k for k in range(30))


def cluster_of(gpu: str, nodes: int, interconnect: str) -> Cluster:
    network = get_interconnect(interconnect)
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=8 * nodes,
        gpus_per_node=8,
        interconnect=network,
        fabric=default_fabric(network),
    )


def case_of(
    kind: str, nodes: int, gpu: str = "H100-SXM5-80GB", interconnect: str = "ib-ndr400-x8"
) -> CollectiveCase:
    """A sweep of sizes whose measured times are still to be made."""
    return CollectiveCase(
        log=f"{kind}-{nodes}-{gpu}",
        kind=kind,
        placement=GroupPlacement(ranks=8 * nodes, domains=nodes),
        cluster=cluster_of(gpu, nodes, interconnect),
        points=tuple((size, 1.0) for size in SIZES),
    )


def sweep(alpha_s: float, gamma_s: float, rate: float, ceiling: float = 1e12) -> SizeSweep:
    points = tuple((size, alpha_s + gamma_s * math.sqrt(size) + size / rate) for size in SIZES)
    return SizeSweep(
        kind="all_reduce",
        architecture="hopper",
        tier="node",
        ranks=8,
        domains=1,
        ceiling_bytes_per_s=ceiling,
        points=points,
    )


# Curves --------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.floats(1e-5, 2e-4), st.floats(3e-9, 1e-7), st.floats(3e10, 8e11))
def test_a_known_curve_is_found_again(alpha_s: float, gamma_s: float, rate: float) -> None:
    found = fit_curve(sweep(alpha_s, gamma_s, rate), replicas=0)
    assert found.alpha_s.value == pytest.approx(alpha_s, rel=0.01)
    assert found.gamma_s.value == pytest.approx(gamma_s, rel=0.05)
    assert found.bytes_per_s.value == pytest.approx(rate, rel=0.02)
    assert found.p90_residual < 1e-3


def test_one_cold_measurement_moves_nothing() -> None:
    clean = sweep(3e-5, 2e-8, 2.5e11)
    points = [
        (size, seconds * (3.0 if index == 12 else 1.0)) for index, (size, seconds) in enumerate(clean.points)
    ]
    found = fit_curve(replace(clean, points=tuple(points)), replicas=0)
    assert found.alpha_s.value == pytest.approx(3e-5, rel=0.05)
    assert found.bytes_per_s.value == pytest.approx(2.5e11, rel=0.05)


@settings(max_examples=15)
@given(st.floats(1e11, 8e11), st.floats(0.2, 0.9))
def test_no_fit_exceeds_what_links_allow(rate: float, share: float) -> None:
    found = fit_curve(sweep(3e-5, 2e-8, rate, ceiling=share * rate), replicas=5)
    for estimate in (found.alpha_s, found.gamma_s, found.bytes_per_s):
        assert 0 < estimate.low <= estimate.value <= estimate.high
    assert found.bytes_per_s.high <= share * rate * (1 + 1e-6)


def test_intervals_widen_with_the_scatter() -> None:
    clean = sweep(3e-5, 2e-8, 2.5e11)

    def spread(scatter: float) -> float:
        points = tuple(
            (size, s * math.exp(scatter * math.sin(7 * i))) for i, (size, s) in enumerate(clean.points)
        )
        found = fit_curve(replace(clean, points=points), replicas=40)
        return found.bytes_per_s.high - found.bytes_per_s.low

    assert spread(0.02) < spread(0.2)


def test_three_sizes_are_too_few() -> None:
    with pytest.raises(ValueError, match="needs 4"):
        fit_curve(replace(sweep(1e-5, 1e-8, 1e11), points=((8.0, 1e-5),) * 3))


def test_sweeps_of_one_system_are_pooled() -> None:
    one, other = sweep(1e-5, 1e-8, 1e11), replace(sweep(1e-5, 1e-8, 1e11), ranks=16)
    groups = pooled([one, other, one])
    assert [(len(group.points), group.ranks) for group in groups] == [(2 * len(SIZES), 8), (len(SIZES), 16)]


@pytest.mark.parametrize(
    ("kind", "nodes", "expected"),
    [
        ("all_reduce", 1, 450e9),
        ("all_gather", 1, 450e9 * 8 / 7),
        ("all_reduce", 2, 400e9),  # each host sends the payload to the other, once
        ("all_reduce", 4, 400e9 / 1.5),
        ("all_gather", 2, 450e9 * 16 / 15),  # half of the payload enters a host: NVLink binds
        ("all_gather", 8, 400e9 * 8 / 7),
        ("all_to_all", 2, 100e9),  # half of each GPU's payload leaves the host through its NIC
        ("sendrecv", 2, 50e9),
    ],
)
def test_ceilings_are_line_rates_over_what_must_cross(kind: str, nodes: int, expected: float) -> None:
    cluster = cluster_of("H100-SXM5-80GB", nodes, "ib-ndr400-x8")
    assert ceiling_bytes_per_s(kind, 8 * nodes, nodes, cluster) == pytest.approx(expected)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast"]),
    st.integers(1, 64),
    st.sampled_from(
        [
            ("A100-SXM4-80GB", "ib-hdr200-x8"),
            ("H100-SXM5-80GB", "ib-ndr400-x8"),
            ("B200-SXM-180GB", "efa-3200"),
        ]
    ),
    st.floats(1.0, 1e14),
)
def test_no_prediction_beats_its_ceiling(kind: str, nodes: int, system: tuple[str, str], size: float) -> None:
    cluster = cluster_of(system[0], nodes, system[1])
    curve = collective_curve(kind, size, GroupPlacement(ranks=8 * nodes, domains=nodes), cluster)
    assert size / curve.solo_s(size) <= ceiling_bytes_per_s(kind, 8 * nodes, nodes, cluster)


# Constants -----------------------------------------------------------------------------------------

DOCUMENT = collectives_document()
HIDDEN = {
    "architectures.hopper.base_s": 6e-6,
    "architectures.hopper.step_s": 0.8e-6,
    "fabrics.infiniband.hop_s": 9e-6,
    "nvls.tree_efficiency": 0.85,
}


def made(kinds: tuple[str, ...], nodes: tuple[int, ...]) -> list[Observed[CollectiveCase]]:
    """Cases measured on a machine whose constants are HIDDEN."""
    truth = constants_of(HIDDEN, DOCUMENT)
    cases = [case_of(kind, count) for kind in kinds for count in nodes]
    return [Observed(name=case.log, case=case, seconds=tuple(predicted_s(case, truth))) for case in cases]


def test_a_fit_predicts_numbers_of_nodes_that_it_never_saw() -> None:
    learnt = made(("all_reduce", "all_gather"), (1, 2, 4))
    constants = constants_of(fit_constants(learnt, predicted_s, DOCUMENT), DOCUMENT)
    for unseen in made(("all_reduce", "all_gather"), (16, 64)):
        errors = [
            abs(p / m - 1) for p, m in zip(predicted_s(unseen.case, constants), unseen.seconds, strict=True)
        ]
        assert max(errors) < 0.15
        assert sorted(errors)[len(errors) // 2] < 0.05


def test_what_no_sweep_shows_stays_where_it_starts() -> None:
    fitted = fit_constants(made(("all_reduce",), (1, 2)), predicted_s, DOCUMENT)
    starts = {parameter.path: parameter.start for parameter in PARAMETERS}
    for path in ("architectures.ampere.step_s", "fabrics.efa.hop_s", "pairwise.latency_s"):
        assert fitted[path] == pytest.approx(starts[path], rel=1e-3)


def test_what_is_left_out_teaches_nothing() -> None:
    """A log that is wrong by a factor spoils the fits of the others and not the one without it."""
    cases = made(("all_reduce", "all_gather"), (1, 2))
    wrong = replace(cases[0], seconds=tuple(10 * s for s in cases[0].seconds))
    fits = fits_without([wrong, *cases[1:]], predicted_s, DOCUMENT)
    assert set(fits) == {one.name for one in cases}
    assert fits[wrong.name] == fit_constants(cases[1:], predicted_s, DOCUMENT)
    assert fits[cases[1].name] != fit_constants([cases[0], *cases[2:]], predicted_s, DOCUMENT)


def test_every_parameter_is_in_the_file_and_between_its_bounds() -> None:
    for parameter in PARAMETERS:
        place: Any = DOCUMENT
        for key in parameter.path.split("."):
            place = place[key]
        assert parameter.low <= parameter.start <= parameter.high
        assert parameter.low * (1 - 1e-3) <= place <= parameter.high * (1 + 1e-3), parameter.path


def test_intervals_hold_their_constants() -> None:
    learnt = made(("all_reduce",), (1, 2))
    best = fit_constants(learnt, predicted_s, DOCUMENT)
    for path, one in constant_intervals(learnt, predicted_s, DOCUMENT, best, replicas=2).items():
        assert one.low <= one.value == best[path] <= one.high


@examples(20)
@given(st.dictionaries(st.sampled_from([p.path for p in PARAMETERS]), st.floats(1e-7, 1e3), max_size=5))
def test_the_file_is_edited_in_place(values: dict[str, float]) -> None:
    text = edited_text(collectives_text(), values)
    before, after = collectives_text().splitlines(), text.splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) <= len(values)
    assert [line.partition("#")[2] for line in after] == [line.partition("#")[2] for line in before]
    import yaml

    document = yaml.safe_load(text)
    for path, value in values.items():
        place = document
        for key in path.split("."):
            place = place[key]
        assert float(place) == pytest.approx(value, rel=1e-3)


def test_an_unknown_constant_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has no fabrics\.carrier_pigeon\.hop_s"):
        edited_text(collectives_text(), {"fabrics.carrier_pigeon.hop_s": 1.0})


def test_the_document_gives_the_shipped_constants() -> None:
    assert constants_from_document(DOCUMENT) == collective_constants()


# Published logs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_shipped_constants_are_the_fit_of_the_published_logs(shared: Path) -> None:
    found = read_logs(sorted((shared / "data" / "nccl_logs").glob("*.txt")))
    cases, unstated = found.cases, found.unstated
    fitted = constants_of(fit_constants(observed(cases, unstated), predicted_s, DOCUMENT), DOCUMENT)
    again, shipped = (errors_by_size(compare(cases, which)) for which in (lambda _: fitted, None))
    for size in ("large", "small"):
        new, old = again[size], shipped[size]
        assert new is not None
        assert old is not None
        assert new.median == pytest.approx(old.median, abs=0.01)


def test_curves_of_the_published_logs_fit_and_stay_under_their_links(shared: Path) -> None:
    cases = read_logs(sorted((shared / "data" / "nccl_logs").glob("*.txt"))).cases
    sweeps = [one for one in pooled([sweep_of(case) for case in cases]) if len(one.points) >= 20]
    assert len(sweeps) >= 15
    for one in sweeps:
        found = fit_curve(one, replicas=0)
        assert found.median_residual < 0.16
        assert found.bytes_per_s.value <= one.ceiling_bytes_per_s * (1 + 1e-6)
