"""Process groups: slices of one grid that partition the ranks, in any order of its axes."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest
from checkout import modules
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import scenario

from stepsim.sim.fold.ranks import ranks_of
from stepsim.sim.lowering.lower import lower
from stepsim.sim.lowering.process_groups import AXES, GROUPS, ProcessGroups
from stepsim.sim.program.program import Collective, Program
from stepsim.sim.scenario.models import Parallelism
from stepsim.sim.simulate import build_cluster


@st.composite
def layouts(draw: st.DrawFn) -> ProcessGroups:
    """Any layout, with experts, neighbours that exchange heads, and state sharded over some ranks."""
    sizes = {axis: draw(st.sampled_from([1, 2, 4]), label=axis) for axis in ("tp", "cp", "dp", "pp")}
    etp = draw(st.sampled_from([1, sizes["tp"]]), label="etp")
    same = sizes["tp"] * sizes["cp"] * sizes["dp"] // etp
    ep = draw(st.sampled_from([size for size in (1, 2, 3, 4, 8) if same % size == 0]), label="ep")
    two_way = sizes["pp"] > 1 and draw(st.booleans(), label="two_way")
    alike, held = sizes["cp"] * sizes["dp"], same // ep
    divides = [size for size in range(1, alike + 1) if alike % size == 0 and held % (alike // size) == 0]
    return ProcessGroups(
        parallelism=Parallelism(
            **cast(Any, sizes),
            etp=etp,
            ep=ep,
            cp_a2a=draw(st.sampled_from([None, 1, sizes["cp"], min(2, sizes["cp"])]), label="cp_a2a"),
            fsdp_shard_size=None if two_way else draw(st.sampled_from([None, *divides]), label="shards"),
            order="-".join(draw(st.permutations(["tp", "cp", "ep", "dp", "pp"]), label="order")),
        ),
        two_way=two_way,
    )


def world(groups: ProcessGroups) -> int:
    par = groups.parallelism
    return par.tp * par.cp * par.dp * par.pp


def coordinates(groups: ProcessGroups) -> dict[str, np.ndarray]:
    """Where each rank is along tp, cp, dp and pp, digit by digit of its number."""
    par, rest, found = groups.parallelism, np.arange(world(groups)), {}
    for axis in par.order.split("-"):
        if axis != "ep":
            rest, found[axis] = np.divmod(rest, getattr(par, axis))
    return found


@given(layouts(), st.sampled_from(list(GROUPS)))
def test_the_groups_of_a_name_are_all_ranks_once(groups: ProcessGroups, name: str) -> None:
    rows, number, place = groups.of(name), groups.number(name), groups.place(name)
    assert sorted(rows.ravel().tolist()) == list(range(world(groups)))
    assert (rows[number, place] == np.arange(world(groups))).all()
    rank = int(rows[-1, 0])
    assert groups.containing(name, rank).tolist() == rows[number[rank]].tolist()


@given(layouts(), st.sampled_from(list(AXES)), st.data())
def test_groups_along_different_axes_of_a_rank_meet_in_that_rank_alone(
    groups: ProcessGroups, cut: str, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, world(groups) - 1))
    along = [set(groups.containing((axis,), rank).tolist()) for axis in AXES[cut]]
    assert int(np.prod([len(ranks) for ranks in along])) == world(groups)
    for one, other in combinations(along, 2):
        assert one & other == {rank}


@given(layouts())
def test_ranks_of_a_group_differ_in_its_axes_alone(groups: ProcessGroups) -> None:
    """In any order of the axes: the digits of a rank in that order say where it is.

    Experts are spread over the ranks of a stage as these are numbered.
    """
    at, pp, etp = coordinates(groups), groups.parallelism.pp, groups.parallelism.etp
    stage = np.minimum(at["pp"], pp - 1 - at["pp"]) if groups.two_way else at["pp"]
    spread = etp * groups.parallelism.ep
    nth = np.array([int((at["pp"][:rank] == at["pp"][rank]).sum()) for rank in range(world(groups))])
    apart = {
        "tp": (at["pp"], at["dp"], at["cp"]),
        "cp": (at["pp"], at["dp"], at["tp"]),
        "dp": (stage, at["tp"]),
        "pp": (at["dp"], at["cp"], at["tp"]),
        "model": (at["dp"], at["cp"]),
        "world": (np.zeros_like(stage),),
        "etp": (at["pp"], nth // etp),
        "ep": (at["pp"], nth // spread, nth % etp),
        "edp": (stage, nth % spread),
    }
    for name, keys in apart.items():
        expected = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
        pairs = set(zip(groups.number(name).tolist(), expected.tolist(), strict=True))
        assert len(pairs) == len(groups.of(name)) == expected.max() + 1, name
    assert (groups.pipeline_rank == at["pp"]).all()
    assert (at["pp"][groups.of("pp")] == np.arange(pp)).all()


@given(layouts())
def test_parts_of_a_group_lie_in_it_and_hold_as_much_as_the_layout_says(groups: ProcessGroups) -> None:
    par = groups.parallelism
    sizes = {name: groups.of(name).shape[1] for name in GROUPS}
    local = par.fsdp_shard_size or sizes["dp"]
    assert (sizes["ep"], sizes["etp"], sizes["fsdp"], sizes["cp.heads"]) == (
        *(par.ep, par.etp, local),
        par.cp_a2a or 1,
    )
    for parts, whole in (
        (("cp.ring", "cp.heads"), "cp"),
        (("fsdp", "hsdp"), "dp"),
        (("efsdp", "ehsdp"), "edp"),
    ):
        assert sizes[parts[0]] * sizes[parts[1]] == sizes[whole]
        for part in parts:
            for ranks in groups.of(part):
                assert len(set(groups.number(whole)[ranks].tolist())) == 1


@given(layouts())
def test_neighbours_that_exchange_heads_and_shards_are_next_to_each_other_in_their_group(
    groups: ProcessGroups,
) -> None:
    for part, whole in (("cp.heads", "cp"), ("fsdp", "dp"), ("efsdp", "edp")):
        rows = groups.of(part)
        assert (np.diff(groups.place(whole)[rows], axis=1) == 1).all()


def test_a_new_group_costs_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is placed on GPUs, told where it straddles domains, and folded as all others are."""
    monkeypatch.setitem(GROUPS, "dp and tp", ("dp", "tp"))
    run = scenario(
        tp=2, dp=4, pp=2, schedule="1f1b", gpu="GB200-NVL72", gpus_per_node=1, gpus_per_domain=6, mlp="gelu"
    )
    step = lower(run, build_cluster(run))
    plan = step.plan
    assert plan.groups["dp and tp"].parts == (6, 2)
    assert sum(plan.placements.groups["dp and tp"].values()) == 2

    def renamed(program: Program) -> Program:
        ops = (
            op._replace(work=replace(op.work, communicator="dp and tp"))
            if isinstance(op.work, Collective) and op.work.communicator == "dp"
            else op
            for op in program.ops
        )
        return replace(program, ops=tuple(ops))

    programs = replace(step.programs, classes=tuple(renamed(one) for one in step.programs.classes))
    ranks = ranks_of(replace(step, programs=programs))
    assert ranks.members("dp and tp", 3).tolist() == list(range(8))
    assert ranks.members("dp and tp", 12).tolist() == list(range(8, 16))
    assert "dp" not in ranks.instance


def test_two_copies_of_a_stage_reduce_together_and_shard_as_one() -> None:
    groups = ProcessGroups(parallelism=Parallelism(dp=2, pp=4), two_way=True)
    assert groups.of("dp").tolist() == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert groups.of("fsdp").tolist() == groups.of("dp").tolist()
    assert groups.of("pp").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups.of("hsdp").shape == (8, 1)


CHECKS_THE_ORDER = {
    "stepsim.sim.scenario.checks",
    "stepsim.sim.reliability.planning.step_time",
    "stepsim.sim.plan.same_twice",
}
"""They ask whether an order is legal, the usual one, or the same as another; none lays out ranks by it."""


@pytest.mark.slow
def test_one_file_lays_out_ranks_by_the_order_of_their_axes() -> None:
    readers = {
        name
        for name, path in modules().items()
        if ".order" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr == "order"
        and ast.unparse(node.value).endswith(("par", "parallelism"))
    }
    assert readers - CHECKS_THE_ORDER == {"stepsim.sim.lowering.process_groups"}
