"""Collectives measured between processes: right results, a table that the fit reads, all groups."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.calibration.fit.own.collectives import fit_collectives
from stepsim.calibration.measure.collectives import COLUMNS, KINDS, MeasuredGroups, Session, spawn
from stepsim.calibration.readers.tables import read_table
from stepsim.sim.lowering.process_groups import ProcessGroups
from stepsim.sim.scenario.blocks import Parallelism


@given(tp=st.integers(1, 4), cp=st.integers(1, 3), dp=st.integers(1, 4), pp=st.integers(1, 4))
def test_groups_of_an_axis_are_all_ranks_once(tp: int, cp: int, dp: int, pp: int) -> None:
    world = tp * cp * dp * pp
    sizes = {"tp": tp, "cp": cp, "dp": dp * cp, "pp": pp}
    groups = ProcessGroups(parallelism=Parallelism(tp=tp, cp=cp, dp=dp, pp=pp))
    for axis, size in sizes.items():
        rows = groups.of(axis)
        assert sorted(rows.ravel().tolist()) == list(range(world)), axis
        assert rows.shape[1] == size


def test_neighbours_of_tp_are_next_to_each_other_and_those_of_pp_are_far() -> None:
    groups = ProcessGroups(parallelism=Parallelism(tp=2, dp=2, pp=2))
    assert groups.of("tp")[0].tolist() == [0, 1]
    assert groups.of("dp")[0].tolist() == [0, 2]
    assert groups.of("pp")[0].tolist() == [0, 4]
    assert ProcessGroups(parallelism=Parallelism(dp=4, ep=2)).of("ep").tolist() == [[0, 1], [2, 3]]


@pytest.mark.torch
def test_every_collective_is_right_and_its_table_makes_curves(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "c.csv"
    session = Session(
        kinds=KINDS,
        sizes=(64, 1024, 4096, 16384, 65536),
        groups=(MeasuredGroups(axis="world", members=((0, 1),)),),
        backend="gloo",
        out=out,
        budget_s=300.0,
        origin={"stepsim": "0", "date": "2026-01-01", "command": "test"},
    )
    spawn(2, session)
    with out.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert [line["kind"] for line in lines[::5]] == list(KINDS)
    assert all(line["correct"] == "1" and float(line["seconds"]) > 0 for line in lines)
    spawn(2, session)  # all of it is there already
    assert len(out.read_text().splitlines()) == len(lines) + 1
    measured = read_table(out)
    curves, notes = fit_collectives(measured.gpu, measured.collectives, "c.csv", replicas=0)
    assert (measured.gpu, len(curves), notes) == ("cpu", len(KINDS), ())


@pytest.mark.torch
def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    session = Session(
        kinds=("all_reduce",),
        sizes=(64,),
        groups=(MeasuredGroups(axis="world", members=((0, 1, 2),)),),
        backend="gloo",
        out=tmp_path / "c.csv",
        budget_s=60.0,
        origin={},
    )
    with pytest.raises(ValueError, match=r"rank [01] failed"):
        spawn(2, session)
