"""Predictions of a fit: those remembered are those made anew, and what runs is chosen once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from stepsim.calibration.fit.collective_constants import (
    PARAMETERS,
    Observed,
    constants_of,
    fit_constants,
    fits_without,
)
from stepsim.calibration.fit.constants_read import paths_read, remembered
from stepsim.calibration.validation.collectives import CollectiveCase, predicted_s
from stepsim.hardware.cluster import Cluster
from stepsim.hardware.collective_kinds import KINDS
from stepsim.hardware.collectives import CollectiveConstants, collective_constants, collectives_document
from stepsim.hardware.fabric import default_fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.network.place import place_of
from stepsim.sim.network.selection import selected_curves

DOCUMENT = collectives_document()
PATHS = tuple(parameter.path for parameter in PARAMETERS)
STARTS = [parameter.start for parameter in PARAMETERS]
SIZES = tuple(8.0 * 4**k for k in range(16))
SYSTEMS = (
    ("A100-SXM4-80GB", "ib-hdr200-x8"),
    ("H100-SXM5-80GB", "ib-ndr400-x8"),
    ("H100-SXM5-80GB", "tcpxo-200-x8"),
    ("B200-SXM-180GB", "efa-3200"),
    ("MI300X", "ib-ndr400-x8"),  # not in NCCL's tables: the quickest runs
)


def case_of(
    kind: str,
    nodes: int = 2,
    system: tuple[str, str] = SYSTEMS[1],
    forced: tuple[str | None, str | None] = (None, None),
    local: int = 8,
) -> CollectiveCase:
    """``local`` ranks on each of ``nodes``; ``forced`` are algorithm and protocol."""
    network = get_interconnect(system[1])
    return CollectiveCase(
        log=f"{kind}-{nodes}-{system}",
        kind=kind,
        placement=GroupPlacement(ranks=local * nodes, domains=nodes),
        cluster=Cluster(
            gpu=get_gpu(system[0]),
            gpus=8 * nodes,
            gpus_per_node=8,
            interconnect=network,
            fabric=default_fabric(network),
        ),
        points=tuple((size, 1.0) for size in SIZES),
        algorithm=forced[0],
        protocol=forced[1],
    )


def constants_at(values: Sequence[float]) -> CollectiveConstants:
    return constants_of(dict(zip(PATHS, values, strict=True)), DOCUMENT)


somewhere = st.tuples(*(st.floats(one.low, one.high) for one in PARAMETERS)).map(list)
a_case = st.builds(
    case_of,
    st.sampled_from(KINDS),
    st.integers(1, 5),
    st.sampled_from(SYSTEMS),
    st.sampled_from([(None, None), ("ring", None), ("ring", "LL"), (None, "Simple")]),
    st.sampled_from([2, 4, 8]),
)


def anew(case: CollectiveCase, constants: CollectiveConstants) -> list[float]:
    """The prediction by the way that every size chooses for itself, among all that there are."""
    place = place_of(case.placement, case.cluster, constants)
    found = selected_curves(
        case.kind,
        list(SIZES),
        place,
        algorithm=case.algorithm,
        protocol=case.protocol,
        nccl=case.nccl,
    )
    return [curve.solo_s(size) for curve, size in zip(found, SIZES, strict=True)]


@examples(60)
@given(a_case, somewhere)
def test_what_was_chosen_once_is_what_runs_whatever_the_constants(
    case: CollectiveCase, values: list[float]
) -> None:
    if case.kind == "sendrecv":
        return
    constants = constants_at(values)
    try:
        plain = anew(case, constants)
    except ValueError as refused:
        with pytest.raises(ValueError, match=re.escape(str(refused))):
            predicted_s(case, constants)
        return
    assert predicted_s(case, constants) == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize(("kind", "planned"), [("all_gather", "pat"), ("reduce_scatter", "pat")])
@given(values=somewhere)
@settings(max_examples=10)
def test_also_where_an_algorithm_without_a_log_is_chosen(
    kind: str, planned: str, values: list[float]
) -> None:
    case, constants = case_of(kind, nodes=16, local=1), constants_at(values)
    assert case.selected is not None
    assert planned in {algorithm for algorithm, _ in case.selected}
    assert predicted_s(case, constants) == pytest.approx(anew(case, constants), rel=1e-12)


def test_where_costs_decide_nothing_is_chosen_beforehand() -> None:
    assert case_of("all_reduce", system=SYSTEMS[-1]).selected is None
    assert case_of("all_reduce", forced=("double-binary-tree", None)).selected is None
    chosen = case_of("all_reduce").selected
    assert chosen is not None
    assert len(set(chosen)) > 2


@examples(12)
@given(
    st.lists(a_case.filter(lambda case: case.algorithm is case.protocol is None), min_size=1, max_size=4),
    somewhere,
    st.lists(st.tuples(st.integers(0, len(PATHS) - 1), st.floats(0, 1)), max_size=12),
)
def test_what_is_remembered_is_what_would_be_predicted(
    cases: list[CollectiveCase], start: list[float], moves: list[tuple[int, float]]
) -> None:
    """However constants move, one by one, away from those at which reading was watched."""
    log_seconds = remembered(
        [partial(predicted_s, case) for case in cases],
        PATHS,
        constants_at,
        STARTS,
    )
    values = list(start)
    for place, share in [(0, 0.5), *moves]:
        values[place] = PARAMETERS[place].low + share * (PARAMETERS[place].high - PARAMETERS[place].low)
        plain = [s for case in cases for s in predicted_s(case, constants_at(values))]
        assert np.exp(log_seconds(values)).tolist() == pytest.approx(plain, rel=1e-12)


def test_a_constant_that_is_not_read_costs_no_prediction() -> None:
    asked: Counter[str] = Counter()

    def predict(constants: CollectiveConstants) -> list[float]:
        asked["hopper"] += 1
        return predicted_s(case_of("all_gather"), constants)

    log_seconds = remembered([predict], PATHS, constants_at, STARTS)
    first, before = log_seconds(STARTS), asked["hopper"]
    for path in ("architectures.ampere.base_s", "pairwise.latency_s", "nvls.pipelining"):
        moved = list(STARTS)
        moved[PATHS.index(path)] *= 1.5
        assert log_seconds(moved).tolist() == first.tolist()
    assert asked["hopper"] == before
    moved = list(STARTS)
    moved[PATHS.index("architectures.hopper.base_s")] *= 1.5
    assert log_seconds(moved).tolist() != first.tolist()
    assert asked["hopper"] == before + 1


def test_a_case_reads_the_constants_of_its_own_machine_and_collective() -> None:
    def read(case: CollectiveCase) -> frozenset[str]:
        return paths_read(lambda constants: predicted_s(case, constants), collective_constants())

    assert "architectures.hopper.nvls_efficiency" in read(case_of("all_reduce"))
    assert "fabrics.infiniband.hop_s" in read(case_of("all_reduce"))
    assert not any(path.startswith(("tree.", "nvls.", "pairwise.")) for path in read(case_of("all_gather")))
    assert {"pairwise.peer_s", "fabrics.infiniband.pairwise_bytes_per_s"} <= read(case_of("all_to_all"))
    assert read(case_of("sendrecv")) == frozenset()


def test_a_reading_that_cannot_be_watched_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match=r"protocols\.get"):
        paths_read(lambda constants: [constants.protocols.get("LL", 0)], collective_constants())  # type: ignore[list-item]


def test_who_is_not_observed_is_predicted_by_a_fit_on_all() -> None:
    cases = [case_of("all_to_all", nodes) for nodes in (1, 2)]
    truth = constants_of({"pairwise.latency_s": 2e-5}, DOCUMENT)
    seen = [
        Observed(name=f"{case.placement.domains}", case=case, seconds=tuple(predicted_s(case, truth)))
        for case in cases
    ]
    fits = fits_without(seen, predicted_s, DOCUMENT, names=["1", "unseen"])
    assert list(fits) == ["1", "unseen"]
    assert fits["unseen"] == fit_constants(seen, predicted_s, DOCUMENT)
    assert fits["1"] == fit_constants(seen[1:], predicted_s, DOCUMENT) != fits["unseen"]


def test_a_changed_case_is_chosen_for_again() -> None:
    whole = case_of("all_reduce")
    assert whole.selected is not None
    assert replace(whole, points=whole.points[:3]).selected == whole.selected[:3]
