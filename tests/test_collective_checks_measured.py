"""A measurement of collectives tells whether the job checked them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.calibration.cases.case import read_cases
from stepsim.calibration.cases.to_scenario import scenario_document, to_scenario
from stepsim.sim.network.checks import check_s, mean_call_s
from stepsim.sim.network.collectives import (
    REFERENCE_BYTES,
    GroupPlacement,
    collective_transfer,
    payload_factor,
    shows_checks,
)
from stepsim.sim.network.measured import MeasuredNetwork
from stepsim.sim.scenario.blocks import ClusterSpec
from stepsim.sim.scenario.machine import cluster_of


def p5(gpus: int = 64) -> ClusterSpec:
    return ClusterSpec(gpu="H100-SXM5-80GB", gpus=gpus, gpus_per_node=8, interconnect="efa-3200")


def measured(spec: ClusterSpec, *, checked: bool, links: float = 1.0) -> MeasuredNetwork:
    """What a job would measure of itself, with links at ``links`` of their rate."""
    found = {}
    cluster = cluster_of(spec)
    groups = {"": GroupPlacement(ranks=64, domains=8), "_intra": GroupPlacement(ranks=8, domains=1)}
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        for where, placement in groups.items():
            solo_s = collective_transfer(kind, REFERENCE_BYTES, placement, cluster).solo_s / links
            mean_s = mean_call_s(solo_s, check_s(placement) if checked else 0.0)
            rate = REFERENCE_BYTES * payload_factor(kind, placement.ranks) / mean_s
            found[f"{kind}{where}_bytes_per_s"] = f"{rate!r} B/s"
    return MeasuredNetwork.model_validate(found)


def test_a_measurement_tells_whether_it_was_checked() -> None:
    spec = p5()
    assert shows_checks(measured(spec, checked=True), cluster_of(spec))
    assert not shows_checks(measured(spec, checked=False), cluster_of(spec))
    assert not shows_checks(measured(spec, checked=False, links=0.5), cluster_of(spec)), "slow links"
    assert not shows_checks(MeasuredNetwork(), cluster_of(spec))


@given(st.floats(0.968, 1.0), st.booleans())
def test_links_of_usual_spread_hide_no_check_and_make_none(links: float, checked: bool) -> None:
    """Jobs of the sweep that were not checked measured 449 to 462 GB/s inside a host."""
    spec = p5()
    assert shows_checks(measured(spec, checked=checked, links=links), cluster_of(spec)) == checked


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_checked_measurement_says_nothing_against_the_links(kind: str) -> None:
    spec = p5()
    cluster, group = cluster_of(spec), GroupPlacement(ranks=64, domains=8)
    own = measured(spec, checked=True)
    plain = collective_transfer(kind, 1e9, group, cluster).solo_s
    assert collective_transfer(kind, 1e9, group, cluster, own, checked=True).solo_s == pytest.approx(plain)
    assert collective_transfer(kind, 1e9, group, cluster, own).solo_s > 1.2 * plain


def test_runs_of_the_sweep_are_told_apart_by_what_they_measured(shared: Path) -> None:
    """Both kinds are many, and no other figure of a case decides: not its id, trust or time."""
    cases = read_cases(shared / "data" / "cases" / "hf_nanotron_h100.yaml")[::40]
    presets = Counter[Any]()
    for case in cases:
        network = case.measured_network
        if network is None or network.all_reduce_intra_gbps is None or network.all_reduce_intra_gbps < 400:
            continue
        name = to_scenario(case).software.name
        assert name == ("nanotron-2025" if network.all_reduce_intra_gbps < 440 else "nanotron-2024")
        assert to_scenario(replace(case, id="x", family="y", trust="low")).software.name == name
        presets[name] += 1
    assert len(presets) == 2


def test_all_gathers_and_reduce_scatters_tell_the_same_runs_apart(shared: Path) -> None:
    """They are not read, and hold a check's time too: 0.3 ms of 3.6 with the copies of torch's lists."""
    told = Counter[bool]()
    for case in read_cases(shared / "data" / "cases" / "hf_nanotron_h100.yaml"):
        network = case.measured_network
        if network is None or network.all_reduce_intra_gbps is None or network.all_reduce_intra_gbps < 350:
            continue  # links so slow that nothing tells what else there is
        assert network.all_gather_intra_gbps is not None
        assert network.reduce_scatter_intra_gbps is not None
        spec = ClusterSpec.model_validate(scenario_document(case)["cluster"])
        assert spec.measured_network is not None
        slower = network.all_gather_intra_gbps + network.reduce_scatter_intra_gbps < 2 * 250
        assert shows_checks(spec.measured_network, cluster_of(spec)) == slower, case.id
        told[slower] += 1
    assert min(told.values()) > 100
